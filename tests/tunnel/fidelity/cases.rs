//! How TCP connections behave, as seen by the applications at both ends. Plain TCP passes every case.
//!
//! A case knows nothing of what lies on its route, so the same code judges plain TCP, bentpipe and relays that
//! are wrong on purpose.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use bentpipe_testbed::peer::{
    Service, accept, digest, echo, payload, read_exactly, read_to_eof, read_to_reset,
    read_to_the_end, reset, set_patience, until_acknowledged,
};
use bentpipe_testbed::route::Route;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Socket, Type};

/// One case: passes or says what was wrong.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Route) -> Result<()>,
}

macro_rules! cases {
    ($($(#[$doc:meta])* $list:ident = [$($case:ident),* $(,)?];)*) => {
        $($(#[$doc])* pub(crate) const $list: &[Case] =
            &[$(Case { name: stringify!($case), run: $case }),*];)*
    };
}

cases! {
    /// How connections begin and end.
    ENDS = [
        server_closes_first_and_still_receives,
        server_reset_is_a_reset,
        client_reset_is_a_reset,
        client_end_is_an_end,
        refused_is_an_error,
        unreachable_is_an_error,
        banner_comes_first,
    ];
    /// What fills the link.
    BULK = [digest_after_half_close, upload_digest];
    /// Many connections at once.
    MANY = [thousand_at_once];
    /// Takes as long as the route's silence.
    SILENCE = [silence_is_survived];
    /// What is hardest when packets are lost.
    LOSS = [every_byte_then_the_reset];
    /// Beyond the twelve: what split connections get wrong besides.
    TRAPS = [
        answer_then_reset_while_uploading,
        an_end_before_a_reset_is_an_end,
        refused_again_by_the_kernel,
        urgent_bytes_stay_in_their_place,
    ];
}

/// Time within which a refusal must be known: many times what it takes, and less than any timer of TCP's that ends an attempt.
const SOON: Duration = Duration::from_secs(10);

/// Small enough for any connection, large enough to fill several packets.
const SOME: usize = 20_000;

/// Connects, and has both ends speak at the same time. The user's fault is told first: the server's often follows from it.
pub(crate) fn conversation<S: Send, U>(
    route: &Route,
    server: impl FnOnce(TcpStream) -> Result<S> + Send,
    user: impl FnOnce(TcpStream) -> Result<U>,
) -> Result<(S, U)> {
    let (listener, address) = route.listen()?;
    thread::scope(|scope| {
        let server = scope.spawn(move || server(accept(&listener, route.patience)?));
        let user = route.connect(address).and_then(user);
        let server = server
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match (server, user) {
            (Ok(server), Ok(user)) => Ok((server, user)),
            (Err(server), Err(user)) => Err(anyhow!("user: {user:#}; server: {server:#}")),
            (Err(server), Ok(_)) => Err(server.context("server")),
            (Ok(_), Err(user)) => Err(user.context("user")),
        }
    })
}

/// The server answers only once it has seen the client's end.
fn digest_after_half_close(route: &Route) -> Result<()> {
    let sent = payload(3_000_000);
    let answer = |mut stream: TcpStream| {
        let received = read_to_eof(&mut stream)?;
        Ok(stream.write_all(&digest(&received))?)
    };
    let ask = |mut stream: TcpStream| {
        stream.write_all(&sent)?;
        stream.shutdown(Shutdown::Write)?;
        read_to_eof(&mut stream)
    };
    let ((), answer) = conversation(route, answer, ask)?;
    ensure!(answer == digest(&sent), "wrong digest");
    Ok(())
}

fn server_closes_first_and_still_receives(route: &Route) -> Result<()> {
    let close_first = |mut stream: TcpStream| {
        stream.write_all(&payload(SOME))?;
        stream.shutdown(Shutdown::Write)?;
        read_to_eof(&mut stream)
    };
    let speak_last = |mut stream: TcpStream| {
        let received = read_to_eof(&mut stream)?;
        // Late enough for a relay that closes both directions to have done so.
        thread::sleep(Duration::from_millis(300));
        stream.write_all(&payload(SOME))?;
        stream.shutdown(Shutdown::Write)?;
        Ok(received)
    };
    let (up, down) = conversation(route, close_first, speak_last)?;
    ensure!(down == payload(SOME), "wrong bytes from the server");
    ensure!(up == payload(SOME), "wrong bytes from the user");
    Ok(())
}

fn server_reset_is_a_reset(route: &Route) -> Result<()> {
    let server = |mut stream: TcpStream| {
        read_exactly(&mut stream, 5)?;
        Ok(reset(stream)?)
    };
    let user = |mut stream: TcpStream| {
        stream.write_all(b"reset")?;
        read_to_reset(&mut stream)
    };
    conversation(route, server, user).map(drop)
}

fn client_reset_is_a_reset(route: &Route) -> Result<()> {
    let server = |mut stream: TcpStream| {
        stream.write_all(b"hello")?;
        read_to_reset(&mut stream)
    };
    let user = |mut stream: TcpStream| {
        read_exactly(&mut stream, 5)?;
        stream.write_all(&payload(SOME))?;
        until_acknowledged(&stream, route.patience)?;
        Ok(reset(stream)?)
    };
    let (received, ()) = conversation(route, server, user)?;
    ensure!(
        received == payload(SOME),
        "{} of {SOME} bytes came before the reset",
        received.len()
    );
    Ok(())
}

/// The end is seen while the other direction is still open.
fn client_end_is_an_end(route: &Route) -> Result<()> {
    let server = |mut stream: TcpStream| {
        let request = read_to_eof(&mut stream)?;
        for half in payload(SOME).chunks(SOME / 2) {
            thread::sleep(Duration::from_millis(300));
            stream.write_all(half)?;
        }
        Ok(request)
    };
    let user = |mut stream: TcpStream| {
        stream.write_all(b"that is all")?;
        stream.shutdown(Shutdown::Write)?;
        read_to_eof(&mut stream)
    };
    let (request, response) = conversation(route, server, user)?;
    ensure!(request == b"that is all", "wrong request");
    ensure!(response == payload(SOME), "wrong response");
    Ok(())
}

fn refused_is_an_error(route: &Route) -> Result<()> {
    let (_held, closed) = route.closed_port()?;
    let address = route.in_front_of(closed)?;
    let start = Instant::now();
    let error = first_error(route, address)?;
    ensure!(
        start.elapsed() < SOON,
        "refused only after {:?}",
        start.elapsed()
    );
    let kind = error.kind();
    ensure!(
        matches!(
            kind,
            ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset
        ),
        "refused is seen as: {error}"
    );
    Ok(())
}

fn unreachable_is_an_error(route: &Route) -> Result<()> {
    let address = route.in_front_of(SocketAddr::new(route.nobody, 80))?;
    let error = first_error(route, address)?;
    let kind = error.kind();
    ensure!(
        matches!(
            kind,
            ErrorKind::HostUnreachable
                | ErrorKind::NetworkUnreachable
                | ErrorKind::ConnectionReset
                | ErrorKind::TimedOut
        ),
        "unreachable is seen as: {error}"
    );
    Ok(())
}

/// After the first error the kernel knows: a later `connect` fails by itself.
fn refused_again_by_the_kernel(route: &Route) -> Result<()> {
    let (_held, address) = route.closed_port()?;
    first_error(route, address)?;
    let start = Instant::now();
    loop {
        // The client tells its kernel off the data path, which takes a busy machine a while.
        thread::sleep(Duration::from_millis(200));
        match route.try_connect(address)? {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(()),
            Err(error) => bail!("connect fails with: {error}"),
            Ok(_) => ensure!(
                start.elapsed() < SOON,
                "connect still succeeds after {SOON:?}"
            ),
        }
    }
}

/// The error of connecting and then asking; a connection that ends cleanly or stays silent is no error.
fn first_error(route: &Route, address: SocketAddr) -> Result<io::Error> {
    let mut stream = match route.try_connect(address)? {
        Ok(stream) => stream,
        // What `connect_timeout` returns when its own time is over is no verdict of the network's.
        Err(error) if error.kind() == ErrorKind::TimedOut => {
            return Err(error).context("connect says nothing");
        }
        Err(error) => return Ok(error),
    };
    match stream.read(&mut [0; 1]) {
        Ok(0) => bail!("a clean end instead of an error"),
        Ok(_) => bail!("somebody answered"),
        Err(error) if error.kind() == ErrorKind::WouldBlock => bail!("connected, then silence"),
        Err(error) => Ok(error),
    }
}

fn banner_comes_first(route: &Route) -> Result<()> {
    let server = |mut stream: TcpStream| {
        stream.write_all(b"220 ready\r\n")?;
        read_exactly(&mut stream, 6)
    };
    let user = |mut stream: TcpStream| {
        let banner = read_exactly(&mut stream, 11)?;
        stream.write_all(b"QUIT\r\n")?;
        // Its own end must not be what carries the answer.
        read_to_eof(&mut stream)?;
        Ok(banner)
    };
    let (command, banner) = conversation(route, server, user)?;
    ensure!(banner == b"220 ready\r\n", "wrong banner");
    ensure!(command == b"QUIT\r\n", "wrong command");
    Ok(())
}

/// The digest comes while the client's direction is still open.
fn upload_digest(route: &Route) -> Result<()> {
    const LENGTH: usize = 8_000_000;
    let server = |mut stream: TcpStream| {
        let received = read_exactly(&mut stream, LENGTH)?;
        Ok(stream.write_all(&digest(&received))?)
    };
    let user = |mut stream: TcpStream| {
        stream.write_all(&payload(LENGTH))?;
        read_exactly(&mut stream, 32)
    };
    let ((), answer) = conversation(route, server, user)?;
    ensure!(answer == digest(&payload(LENGTH)), "wrong digest");
    Ok(())
}

fn thousand_at_once(route: &Route) -> Result<()> {
    const CONNECTIONS: usize = 1000;
    let service = Service::start(&route.web, SocketAddr::new(route.server, 0), echo)?;
    let address = route.in_front_of(service.address)?;
    let opened: Vec<Result<Socket>> = route.user.at(|| {
        (0..CONNECTIONS)
            .map(|_| start_connecting(address))
            .collect()
    })?;
    let mut streams = Vec::with_capacity(CONNECTIONS);
    for (number, socket) in opened.into_iter().enumerate() {
        let stream = finish_connecting(socket?, route.patience);
        streams.push(stream.with_context(|| format!("connection {number}"))?);
    }
    let line = |number| format!("this is connection {number:4}\n").into_bytes();
    for (number, stream) in streams.iter_mut().enumerate() {
        stream
            .write_all(&line(number))
            .with_context(|| format!("connection {number}"))?;
    }
    for (number, stream) in streams.iter_mut().enumerate() {
        let echoed = read_exactly(stream, line(number).len());
        let echoed = echoed.with_context(|| format!("connection {number}"))?;
        ensure!(
            echoed == line(number),
            "connection {number} got another's bytes"
        );
    }
    Ok(())
}

fn start_connecting(address: SocketAddr) -> Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&address.into()) {
        Err(error)
            if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) =>
        {
            Err(error.into())
        }
        _ => Ok(socket),
    }
}

fn finish_connecting(socket: Socket, patience: Duration) -> Result<TcpStream> {
    let timeout = Timespec::try_from(patience)?;
    let ready = poll(
        &mut [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::OUT)],
        Some(&timeout),
    )?;
    ensure!(ready == 1, "not connected after {patience:?}");
    if let Some(error) = socket.take_error()? {
        return Err(error.into());
    }
    socket.set_nonblocking(false)?;
    let stream = TcpStream::from(socket);
    set_patience(&stream, patience)?;
    Ok(stream)
}

fn silence_is_survived(route: &Route) -> Result<()> {
    let server = |mut stream: TcpStream| {
        set_patience(&stream, route.silence + route.patience)?;
        for _ in 0..2 {
            let heard = read_exactly(&mut stream, 5)?;
            stream.write_all(&heard)?;
        }
        Ok(())
    };
    let user = |mut stream: TcpStream| {
        for pause in [Duration::ZERO, route.silence] {
            thread::sleep(pause);
            stream.write_all(b"alive")?;
            let echoed = read_exactly(&mut stream, 5);
            echoed.with_context(|| format!("after {pause:?} of silence"))?;
        }
        Ok(())
    };
    conversation(route, server, user).map(drop)
}

/// The reset leaves the server when its own peer has every byte, which need not be the user.
fn every_byte_then_the_reset(route: &Route) -> Result<()> {
    const LENGTH: usize = 300_000;
    let server = |mut stream: TcpStream| {
        stream.write_all(&payload(LENGTH))?;
        until_acknowledged(&stream, route.patience)?;
        Ok(reset(stream)?)
    };
    let ((), received) = conversation(route, server, |mut stream| read_to_reset(&mut stream))?;
    ensure!(
        received == payload(LENGTH),
        "{} of {LENGTH} bytes came before the reset",
        received.len()
    );
    Ok(())
}

/// A server that refuses an upload: it answers and resets while the client is still sending.
fn answer_then_reset_while_uploading(route: &Route) -> Result<()> {
    // More than is on its way through a link: some of it waits in front of the link when the reset comes.
    const ANSWER: usize = 2_000_000;
    let server = |mut stream: TcpStream| {
        read_exactly(&mut stream, 100_000)?;
        stream.write_all(&payload(ANSWER))?;
        until_acknowledged(&stream, route.patience)?;
        Ok(reset(stream)?)
    };
    let user = |mut stream: TcpStream| {
        let mut reader = stream.try_clone()?;
        let reading = thread::spawn(move || read_to_the_end(&mut reader));
        let block = payload(SOME);
        let writing = loop {
            if let Err(error) = stream.write_all(&block) {
                break error;
            }
        };
        let (received, end) = reading
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // One socket, two threads: whichever comes first is told of the reset, the other finds a closed socket.
        let told = [Err(writing), end];
        ensure!(told.iter().any(is_reset), "no reset: {told:?}");
        Ok(received)
    };
    let ((), received) = conversation(route, server, user)?;
    ensure!(
        received == payload(ANSWER),
        "{} of {ANSWER} bytes came before the reset",
        received.len()
    );
    Ok(())
}

/// A server that is gone once its end is acknowledged, as a program is that closes: its kernel resets what comes later, such as a
/// relay's keepalive. The user has all, and an end.
fn an_end_before_a_reset_is_an_end(route: &Route) -> Result<()> {
    const LENGTH: usize = 1_000_000;
    let server = |mut stream: TcpStream| {
        stream.write_all(&payload(LENGTH))?;
        stream.shutdown(Shutdown::Write)?;
        until_acknowledged(&stream, route.patience)?;
        Ok(reset(stream)?)
    };
    let ((), received) = conversation(route, server, |mut stream| read_to_eof(&mut stream))?;
    ensure!(
        received == payload(LENGTH),
        "{} of {LENGTH} bytes came before the end",
        received.len()
    );
    Ok(())
}

fn is_reset(result: &io::Result<()>) -> bool {
    matches!(result, Err(error) if error.kind() == ErrorKind::ConnectionReset)
}

/// Urgent data (RFC 6093) arrives in its place, both ways, as applications with SO_OOBINLINE read it.
fn urgent_bytes_stay_in_their_place(route: &Route) -> Result<()> {
    let speak = |mut stream: TcpStream| {
        let socket = socket2::SockRef::from(&stream);
        socket.set_out_of_band_inline(true)?;
        for (before, urgent) in [(b"one ", b"!"), (b"two ", b"?")] {
            socket.send(before)?;
            socket.send_out_of_band(urgent)?;
            // Long enough for a relay to take in this urgent byte before the next one replaces it.
            thread::sleep(Duration::from_millis(100));
        }
        socket.send(b"end")?;
        stream.shutdown(Shutdown::Write)?;
        read_to_eof(&mut stream)
    };
    let (up, down) = conversation(route, speak, speak)?;
    for (way, came) in [("up", up), ("down", down)] {
        let text = String::from_utf8_lossy(&came);
        ensure!(came == b"one !two ?end", "{way}: {text:?}");
    }
    Ok(())
}

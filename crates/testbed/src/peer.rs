//! Small TCP peers: what both ends of a case say, and the servers that stay up beside a whole suite.

use std::io::{self, Read, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest as sha};
use bentpipe_lab::workload::MARKER;
use bentpipe_sys::socket::unsent_bytes;
use socket2::{Domain, Socket, Type};

use super::route::Place;

/// Time that a peer may be silent before a case gives up on it, unless the case says otherwise.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Handlers of a thousand connections at once need little.
pub const STACK: usize = 128 * 1024;

/// `length` bytes in which every 48 hold the marker that no capture may find, and say where they belong.
pub fn payload(length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length + 64);
    while bytes.len() < length {
        let place = bytes.len();
        bytes.extend_from_slice(MARKER);
        bytes.extend_from_slice(format!("{place:024}").as_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// SHA-256 of `bytes`.
pub fn digest(bytes: &[u8]) -> [u8; SHA256_OUTPUT_LEN] {
    let mut result = [0; SHA256_OUTPUT_LEN];
    result.copy_from_slice(sha(&SHA256, bytes).as_ref());
    result
}

/// A listener with room for thousands of simultaneous connections.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(4096)?;
    Ok(socket.into())
}

/// The next connection, within `patience`; reads and writes on it are bounded by `patience` too.
pub fn accept(listener: &TcpListener, patience: Duration) -> Result<TcpStream> {
    // On Linux the receive timeout of a listener bounds accept.
    socket2::SockRef::from(listener).set_read_timeout(Some(patience))?;
    let (stream, _) = listener.accept().context("nobody connected")?;
    set_patience(&stream, patience)?;
    Ok(stream)
}

/// Bounds each read and each write on `stream`.
pub fn set_patience(stream: &TcpStream, patience: Duration) -> io::Result<()> {
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))
}

/// Reads `length` bytes.
pub fn read_exactly(stream: &mut impl Read, length: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    stream
        .read_exact(&mut bytes)
        .with_context(|| format!("did not get {length} bytes"))?;
    Ok(bytes)
}

/// Everything up to a clean end.
pub fn read_to_eof(stream: &mut impl Read) -> Result<Vec<u8>> {
    let (bytes, end) = read_to_the_end(stream);
    match end {
        Ok(()) => Ok(bytes),
        Err(error) => {
            Err(error).with_context(|| format!("no clean end after {} bytes", bytes.len()))
        }
    }
}

/// Everything up to a reset; a clean end is an error, and so is silence.
pub fn read_to_reset(stream: &mut impl Read) -> Result<Vec<u8>> {
    let (bytes, end) = read_to_the_end(stream);
    match end {
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(bytes),
        Err(error) => Err(error).with_context(|| format!("no reset after {} bytes", bytes.len())),
        Ok(()) => bail!(
            "a clean end instead of a reset, after {} bytes",
            bytes.len()
        ),
    }
}

/// Everything up to any end, and which end it was.
pub fn read_to_the_end(stream: &mut impl Read) -> (Vec<u8>, io::Result<()>) {
    let mut bytes = Vec::new();
    let mut buffer = [0; 65_536];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return (bytes, Ok(())),
            Ok(length) => bytes.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (bytes, Err(error)),
        }
    }
}

/// Has the connection end with RST when its socket is closed.
pub fn set_linger_zero(stream: &TcpStream) -> io::Result<()> {
    socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO))
}

/// Ends a connection with RST.
pub fn reset(stream: TcpStream) -> io::Result<()> {
    set_linger_zero(&stream)?;
    drop(stream);
    Ok(())
}

/// Waits until the other end's TCP has acknowledged all that was written.
pub fn until_acknowledged(stream: &TcpStream, patience: Duration) -> Result<()> {
    let deadline = Instant::now() + patience;
    while unsent_bytes(stream)? > 0 {
        ensure!(
            Instant::now() < deadline,
            "written bytes stay unacknowledged"
        );
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Work of a [`Service`] on each connection.
pub type Handler = fn(TcpStream) -> Result<()>;

/// Sends back what comes, and the end when it comes.
pub fn echo(stream: TcpStream) -> Result<()> {
    io::copy(&mut &stream, &mut &stream)?;
    Ok(stream.shutdown(Shutdown::Write)?)
}

/// Says from which address it was connected to, as one line, and closes.
pub fn who(mut stream: TcpStream) -> Result<()> {
    let peer = stream.peer_addr()?.ip().to_canonical();
    Ok(writeln!(stream, "{peer}")?)
}

/// Sends payload until the connection breaks.
pub fn endless(mut stream: TcpStream) -> Result<()> {
    let block = payload(48 * 1000);
    loop {
        stream.write_all(&block)?;
    }
}

/// A server that stays up until it is dropped, one thread per connection.
#[derive(Debug)]
pub struct Service {
    /// Address that the server listens on.
    pub address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    listener: Arc<TcpListener>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Listens on `address` in `place`; `handler` has each connection.
    pub fn start(place: &Place, address: SocketAddr, handler: Handler) -> Result<Self> {
        Self::on(place.at(|| listen(address))??, handler)
    }

    /// Serves the connections of `listener`; `handler` has each of them.
    pub fn on(listener: TcpListener, handler: Handler) -> Result<Self> {
        let listener = Arc::new(listener);
        let accepted = Arc::new(AtomicUsize::new(0));
        let (from, count) = (Arc::clone(&listener), Arc::clone(&accepted));
        Ok(Self {
            address: listener.local_addr()?,
            accepted,
            listener,
            thread: Some(thread::spawn(move || serve(&from, &count, handler))),
        })
    }

    /// Connections that have reached it so far.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

fn serve(listener: &TcpListener, accepted: &AtomicUsize, handler: Handler) {
    while let Ok((stream, _)) = listener.accept() {
        accepted.fetch_add(1, Ordering::SeqCst);
        let _ = set_patience(&stream, PATIENCE);
        let thread = thread::Builder::new().stack_size(STACK);
        // How a connection ends is for its other end to judge.
        let _ = thread.spawn(move || handler(stream));
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Wakes the thread: accept then fails.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

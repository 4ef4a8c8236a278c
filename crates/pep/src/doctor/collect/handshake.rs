//! Attempts to reach a server: a handshake over UDP, or a connection over TCP.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use bentpipe_tunnel::engine::identity::{self, PrivateKey, PublicKey};
use bentpipe_tunnel::engine::{HandshakeTrial, Link, Profile, Unreachable, UnreachableCause};
use rustix::io::Errno;

use crate::doctor::facts::HandshakeResult;
use crate::process;

/// Time for an attempt: a handshake over a geostationary satellite takes 1.3 s, and its packets may be lost twice.
const PATIENCE: Duration = Duration::from_secs(8);

/// Largest datagram that a server sends before a path has been measured, bytes, and some more.
const DATAGRAM: usize = 4096;

/// End that asks a far one for a handshake.
pub(super) struct HandshakeAsker<'a> {
    pub(super) key: &'a PrivateKey,
    /// Key that the far end has to prove.
    pub(super) peer: PublicKey,
    /// Key exchange without a post-quantum part is taken.
    pub(super) allow_classical: bool,
    pub(super) profile: Profile,
    /// Mark of datagrams that interception leaves alone.
    pub(super) mark: Option<u32>,
}

/// Asks whether, and as whom, the far end answers at `to`.
pub(super) fn shake(asker: &HandshakeAsker<'_>, to: SocketAddr) -> HandshakeResult {
    match attempt(asker, to) {
        Ok(reached) => reached,
        Err(error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {
            let barred = Unreachable {
                cause: UnreachableCause::Barred,
                from: None,
                to,
            };
            HandshakeResult::Unsent(barred.own_fault().unwrap_or_default())
        }
        Err(error) => match unreachable(&error) {
            Some(text) => HandshakeResult::Unreachable(text.into()),
            None => HandshakeResult::NotTried(error.to_string()),
        },
    }
}

/// Asks whether somebody accepts TCP at `to`.
pub(super) fn connect(to: SocketAddr) -> HandshakeResult {
    let began = process::now();
    match TcpStream::connect_timeout(&to, PATIENCE) {
        Ok(_) => HandshakeResult::Connected(process::now().saturating_duration_since(began)),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => HandshakeResult::Silent(PATIENCE),
        Err(error) => HandshakeResult::Unreachable(error.to_string()),
    }
}

fn attempt(asker: &HandshakeAsker<'_>, to: SocketAddr) -> io::Result<HandshakeResult> {
    let key = asker.key;
    let socket = open(asker.mark, to.ip())?;
    socket.connect(to)?;
    let crypto = identity::client_crypto(key, asker.peer, asker.allow_classical, None);
    let crypto = crypto.map_err(io::Error::other)?;
    let link = Link::from(asker.profile);
    let began = process::now();
    let trial = HandshakeTrial::new(began, crypto, identity::reset_key(key), to, link);
    let mut trial = trial.map_err(io::Error::other)?;
    let deadline = began + PATIENCE;
    while trial.outcome().is_none() && process::now() < deadline {
        send(&socket, &mut trial)?;
        receive(&socket, &mut trial, deadline)?;
    }
    let outcome = trial.outcome().cloned();
    trial.close(process::now());
    let _ = send(&socket, &mut trial);
    Ok(match outcome {
        Some(outcome) => HandshakeResult::Shaken(outcome),
        None if trial.is_answered() => HandshakeResult::Unfinished(PATIENCE),
        None => HandshakeResult::Silent(PATIENCE),
    })
}

/// A socket of the family of `to`, with a client's mark where interception would take it in.
fn open(mark: Option<u32>, to: IpAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match to {
        IpAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        IpAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    if let Some(mark) = mark {
        // Without the privilege the attempt is made all the same: a server is left alone by the rules.
        let _ = bentpipe_sys::socket::set_mark(&socket, mark);
    }
    Ok(socket)
}

fn send(socket: &UdpSocket, trial: &mut HandshakeTrial) -> io::Result<()> {
    let mut buffer = Vec::new();
    while let Some(transmit) = trial.poll_transmit(process::now(), &mut buffer) {
        socket.send(&buffer[..transmit.size])?;
        buffer.clear();
    }
    Ok(())
}

/// Waits for a datagram, until a timer of `trial` or the `deadline`.
fn receive(socket: &UdpSocket, trial: &mut HandshakeTrial, deadline: Instant) -> io::Result<()> {
    let until = trial
        .poll_timeout()
        .map_or(deadline, |due| due.min(deadline));
    let wait = until.saturating_duration_since(process::now());
    socket.set_read_timeout(Some(wait.max(Duration::from_millis(1))))?;
    let mut datagram = [0; DATAGRAM];
    match socket.recv(&mut datagram) {
        Ok(size) => trial.handle_datagram(process::now(), &datagram[..size]),
        Err(error) if is_time_up(&error) => trial.handle_timeout(process::now()),
        Err(error) => return Err(error),
    }
    Ok(())
}

fn is_time_up(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

/// Words for what an ICMP error, or this machine's own routes, say about the server.
fn unreachable(error: &io::Error) -> Option<&'static str> {
    Some(match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "no program listens at that UDP port, says the network (ICMP)"
        }
        io::ErrorKind::HostUnreachable => {
            "the host does not answer its router (ICMP or neighbour discovery)"
        }
        io::ErrorKind::NetworkUnreachable => "no route leads there",
        io::ErrorKind::PermissionDenied => "a firewall on the way forbids it (ICMP)",
        _ => return None,
    })
}

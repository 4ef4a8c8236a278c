//! The sockets of published ports.

use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use bentpipe_proto::tunnel::Publish;
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// The listeners of one port.
pub(in crate::server) struct Listeners {
    /// Of IPv4 and IPv6; one of them may be missing.
    both: [Option<TcpListener>; 2],
}

impl Listeners {
    /// Begins to listen.
    pub(in crate::server) fn open(asked: &Publish) -> io::Result<Self> {
        let mut both = [None, None];
        for (socket, listener) in bind(asked, Type::STREAM, Protocol::TCP)?
            .into_iter()
            .zip(&mut both)
        {
            socket.listen(BACKLOG)?;
            *listener = Some(TcpListener::from_std(socket.into())?);
        }
        Ok(Self { both })
    }

    /// The next connection.
    pub(in crate::server) async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        let next = async |listener: &Option<TcpListener>| match listener {
            Some(listener) => listener.accept().await,
            None => pending().await,
        };
        tokio::select! {
            accepted = next(&self.both[0]) => accepted,
            accepted = next(&self.both[1]) => accepted,
        }
    }
}

/// Sockets that keep a UDP port from others: what is for it is led away before it would reach them.
pub(in crate::server) fn claim(asked: &Publish) -> io::Result<Vec<Socket>> {
    bind(asked, Type::DGRAM, Protocol::UDP)
}

/// A socket on every address of each family that the machine has, and that is asked for.
fn bind(asked: &Publish, kind: Type, protocol: Protocol) -> io::Result<Vec<Socket>> {
    let port = asked.port;
    let addresses: [SocketAddr; 2] = [
        (Ipv4Addr::UNSPECIFIED, port).into(),
        (Ipv6Addr::UNSPECIFIED, port).into(),
    ];
    let mut sockets = Vec::new();
    for address in addresses {
        if !asked.families.covers(address.ip()) {
            continue;
        }
        let socket = match Socket::new(Domain::for_address(address), kind, Some(protocol)) {
            Err(error) if error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error()) => {
                continue;
            }
            socket => socket?,
        };
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        // Connections of an earlier listener may linger; a UDP port is to be had alone.
        socket.set_reuse_address(kind == Type::STREAM)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        sockets.push(socket);
    }
    match sockets.is_empty() {
        true => Err(io::ErrorKind::AddrNotAvailable.into()),
        false => Ok(sockets),
    }
}

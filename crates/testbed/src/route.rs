//! Where the two ends of a case stand, and what lies between them.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bentpipe_sys::netns::NetNs;
use socket2::{Domain, Socket, Type};

use super::peer;

/// Receive buffer of an application that reads slowly, bytes.
const LITTLE: usize = 4096;

/// A network namespace, or where the test itself runs.
#[derive(Debug, Clone)]
pub struct Place(pub Option<NetNs>);

impl Place {
    /// Place where the test itself runs.
    pub fn here() -> Self {
        Self(None)
    }

    /// Runs `work` there; sockets that it opens stay there.
    pub fn at<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        match &self.0 {
            Some(netns) => netns.enter(work),
            None => Ok(work()),
        }
    }
}

impl From<&NetNs> for Place {
    fn from(netns: &NetNs) -> Self {
        Self(Some(netns.clone()))
    }
}

/// Something put in front of a server: takes the server's address, returns its own.
pub type Detour = Box<dyn Fn(SocketAddr) -> Result<SocketAddr> + Send + Sync>;

/// A way from applications to servers, and how large the cases on it are.
pub struct Route {
    /// Name of the route in reports.
    pub name: &'static str,
    /// Place of the applications.
    pub user: Place,
    /// Place of the servers.
    pub web: Place,
    /// The servers' address.
    pub server: IpAddr,
    /// An address that nobody has.
    pub nobody: IpAddr,
    /// The time that an operation may take.
    pub patience: Duration,
    /// The time that the silent connection is silent.
    pub silence: Duration,
    /// Relay in front of each server.
    pub detour: Option<Detour>,
}

impl Route {
    /// A listener on a fresh port, and where applications find it.
    pub fn listen(&self) -> Result<(TcpListener, SocketAddr)> {
        let any_port = SocketAddr::new(self.server, 0);
        let listener = self.web.at(|| peer::listen(any_port))??;
        let address = self.in_front_of(listener.local_addr()?)?;
        Ok((listener, address))
    }

    /// A port on which nobody listens, nor will while what comes with it lives.
    pub fn closed_port(&self) -> Result<(Socket, SocketAddr)> {
        let any_port = SocketAddr::new(self.server, 0);
        let socket = self.web.at(|| {
            let socket = Socket::new(Domain::for_address(any_port), Type::STREAM, None)?;
            socket.bind(&any_port.into())?;
            io::Result::Ok(socket)
        })??;
        let address = socket.local_addr()?.as_socket();
        Ok((socket, address.context("an address with a port")?))
    }

    /// Address at which applications find a server at `address`.
    pub fn in_front_of(&self, address: SocketAddr) -> Result<SocketAddr> {
        self.detour
            .as_ref()
            .map_or(Ok(address), |detour| detour(address))
    }

    /// Connects to `address` as an application of the route does.
    pub fn connect(&self, address: SocketAddr) -> Result<TcpStream> {
        let stream = self.try_connect(address)?;
        stream.with_context(|| format!("cannot connect to {address}"))
    }

    /// Connects to `address` as an application whose kernel takes few bytes that it has not read.
    pub fn connect_slowly(&self, address: SocketAddr) -> Result<TcpStream> {
        let stream = self.user.at(|| {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
            socket.set_recv_buffer_size(LITTLE)?;
            socket.connect_timeout(&address.into(), self.patience)?;
            io::Result::Ok(TcpStream::from(socket))
        })??;
        peer::set_patience(&stream, self.patience)?;
        Ok(stream)
    }

    /// The inner result is that of `connect(2)`.
    pub fn try_connect(&self, address: SocketAddr) -> Result<io::Result<TcpStream>> {
        let patience = self.patience;
        let connect = || TcpStream::connect_timeout(&address, patience);
        Ok(self.user.at(connect)?.and_then(|stream| {
            peer::set_patience(&stream, patience)?;
            Ok(stream)
        }))
    }
}

//! Listening for TCP connections, and taking them in.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::sleep;

use crate::config::Place;
use crate::process::{self, RunError};

/// Connections that the kernel completes before we take them in.
const BACKLOG: i32 = 4096;

/// Pause after a failed accept: usually there is no descriptor left, and one must be closed first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Families that a listener at `[::]` serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenFamilies {
    /// IPv6 alone: the IPv4 wildcard has a listener of its own.
    One,
    /// IPv4 as well.
    Both,
}

/// An ordinary listener; `place` is where the configuration asks for it.
pub(crate) fn listen(
    address: SocketAddr,
    families: ListenFamilies,
    place: &Place,
) -> Result<TcpListener, RunError> {
    let open = || {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM,
            Some(Protocol::TCP),
        )?;
        if address.is_ipv6() {
            socket.set_only_v6(families == ListenFamilies::One)?;
        }
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        TcpListener::from_std(socket.into())
    };
    let place = place.clone();
    open().map_err(|source| RunError::Bind {
        place,
        address,
        what: "TCP",
        source,
    })
}

/// Hands every connection of `listener` to a task of its own.
pub(crate) fn accept<F: Future<Output = ()> + 'static>(
    listener: TcpListener,
    serve: impl Fn(TcpStream, SocketAddr) -> F + 'static,
) -> JoinHandle<()> {
    spawn_local(async move {
        loop {
            match listener.accept().await {
                Ok((socket, peer)) => drop(spawn_local(serve(socket, process::canonical(peer)))),
                // It was reset while it waited: nobody is left to serve.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    process::tell_of_files(&error);
                    tracing::debug!("cannot take in connections: {error}");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    })
}

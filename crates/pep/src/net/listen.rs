//! Binding addresses to listen at, and taking in TCP connections.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::sleep;

use crate::config::{Place, Placed};
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
    let place = place.clone();
    open(address, families).map_err(|source| RunError::Bind {
        place,
        address,
        what: "TCP",
        source,
    })
}

/// Ordinary listeners at `addresses`, each for its own family.
pub(crate) fn listen_each(
    addresses: &Placed<Vec<SocketAddr>>,
) -> Result<Vec<TcpListener>, RunError> {
    bind_each(addresses, "TCP", |address| {
        open(address, ListenFamilies::One)
    })
}

fn open(address: SocketAddr, families: ListenFamilies) -> io::Result<TcpListener> {
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
}

/// Binds each of `addresses` by `bind`, for the protocol `what`. On a kernel without IPv6, the wildcard of IPv4 serves alone.
pub(crate) fn bind_each<T>(
    addresses: &Placed<Vec<SocketAddr>>,
    what: &'static str,
    bind: impl Fn(SocketAddr) -> io::Result<T>,
) -> Result<Vec<T>, RunError> {
    let mut bound = Vec::new();
    for &address in addresses.iter() {
        let is_spare = |other: &SocketAddr| is_other_half(address, *other);
        match bind(address) {
            Err(error)
                if error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error())
                    && addresses.iter().any(is_spare) =>
            {
                tracing::info!("this machine has no IPv6: {address} ({what}) is not served");
            }
            one => bound.push(one.map_err(|source| RunError::Bind {
                place: addresses.place.clone(),
                address,
                what,
                source,
            })?),
        }
    }
    Ok(bound)
}

/// True if both are wildcards of one port, `address` that of IPv6.
fn is_other_half(address: SocketAddr, other: SocketAddr) -> bool {
    let wildcards = address.ip().is_unspecified() && other.ip().is_unspecified();
    wildcards && address.is_ipv6() && other.is_ipv4() && address.port() == other.port()
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bentpipe_config::Source;
    use toml::Spanned;

    use super::*;

    #[test]
    fn a_kernel_without_ipv6_serves_the_wildcard_of_ipv4_alone() {
        let source = Source::new(Path::new("server.toml"), "[les]");
        let each = |addresses: &[&str]| {
            let addresses = addresses.iter().map(|one| one.parse().unwrap()).collect();
            let bind = |address: SocketAddr| match address.is_ipv6() {
                true => Err(Errno::AFNOSUPPORT.into()),
                false => Ok(address),
            };
            bind_each(&source.placed(Spanned::new(0..5, addresses)), "UDP", bind)
                .map_err(|error| error.to_string())
        };
        let ipv4 = "0.0.0.0:4501".parse().unwrap();
        assert_eq!(each(&["[::]:4501", "0.0.0.0:4501"]), Ok(vec![ipv4]));
        // Who names an address of IPv6 alone is told.
        for asked in [&["[::]:4501"][..], &["[::1]:4501", "0.0.0.0:4501"]] {
            let refused = each(asked).unwrap_err();
            assert!(refused.contains("4501"), "{refused}");
        }
    }
}

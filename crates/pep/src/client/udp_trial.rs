//! Finds out whether UDP passes to a server, beside a tunnel that goes over TLS: by a handshake from a socket of its own.
//!
//! A handshake proves more than an echo would: datagrams of full size pass both ways, and the server is who it should be.

use std::io;
use std::net::SocketAddr;

use bentpipe_tunnel::engine::{HandshakeTrial, Link, TrialOutcome};
use tokio::net::UdpSocket;
use tokio::time::timeout_at;

use super::servers::Servers;
use crate::process;

/// Largest datagram that a server sends before a path has been measured, bytes, and some more.
const DATAGRAM: usize = 4096;

/// True once the server has completed a handshake at `remote`.
///
/// # Errors
/// A datagram could not be sent, or the network says that it did not arrive.
pub(super) async fn passes(
    servers: &Servers,
    server: usize,
    remote: SocketAddr,
    mark: Option<u32>,
) -> io::Result<bool> {
    let any: SocketAddr = match remote {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    #[cfg(target_os = "linux")]
    if let Some(mark) = mark {
        bentpipe_sys::socket::set_mark(&socket, mark)?;
    }
    #[cfg(not(target_os = "linux"))]
    let _ = mark;
    socket.connect(remote).await?;
    let (crypto, reset_key) = servers.trial_crypto(server);
    let begun = HandshakeTrial::new(process::now(), crypto, reset_key, remote, Link::default());
    let mut trial = begun.map_err(io::Error::other)?;
    let mut datagram = [0; DATAGRAM];
    while trial.outcome().is_none() {
        send(&socket, &mut trial).await?;
        let Some(due) = trial.poll_timeout() else {
            break;
        };
        match timeout_at(due.into(), socket.recv(&mut datagram)).await {
            Ok(received) => trial.handle_datagram(process::now(), &datagram[..received?]),
            Err(_) => trial.handle_timeout(process::now()),
        }
    }
    let passes = matches!(trial.outcome(), Some(TrialOutcome::Known { .. }));
    trial.close(process::now());
    send(&socket, &mut trial).await?;
    Ok(passes)
}

async fn send(socket: &UdpSocket, trial: &mut HandshakeTrial) -> io::Result<()> {
    let mut buffer = Vec::new();
    while let Some(transmit) = trial.poll_transmit(process::now(), &mut buffer) {
        socket.send(&buffer[..transmit.size]).await?;
        buffer.clear();
    }
    Ok(())
}

//! SOCKS5 and HTTP: applications that name their destination themselves.
//!
//! Host names travel in OPEN and are resolved by the server, so they cost no round trip of DNS and
//! show nothing outside the tunnel.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bentpipe_proto::proxy::socks5;
use bentpipe_proto::tunnel::{Destination, ReplyCode};
use bytes::Bytes;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::direct::Decisions;
use super::flow::{Answer, Intake, carry, tell};
use super::http;
use super::share::{SPEECHLESS, Shares};
use crate::client::Transport;
use crate::config::{Action, Placed, ProxyFrontEnd};
use crate::process::RunError;
use crate::relay;

/// How long an application may take to say what it wants.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy)]
pub(super) enum Protocol {
    Socks5,
    Http,
}

/// Listens for applications.
pub(super) fn start(
    transport: &Transport,
    decisions: &Rc<Decisions>,
    front_end: &Placed<ProxyFrontEnd>,
    protocol: Protocol,
) -> Result<JoinHandle<()>, RunError> {
    let listener = super::listen(front_end.listen, &front_end.place)?;
    let address = front_end.listen;
    if !address.ip().is_loopback() {
        tracing::warn!("{address} lets everyone who reaches it use the tunnel");
    }
    let (transport, decisions) = (transport.clone(), decisions.clone());
    let shares = Shares::new(SPEECHLESS);
    Ok(super::accept(listener, move |socket, peer| {
        let (transport, decisions) = (transport.clone(), decisions.clone());
        serve(transport, decisions, shares.clone(), socket, peer, protocol)
    }))
}

async fn serve(
    transport: Transport,
    decisions: Rc<Decisions>,
    shares: Rc<Shares>,
    socket: TcpStream,
    peer: SocketAddr,
    protocol: Protocol,
) {
    if relay::prepare(&socket).is_err() {
        return;
    }
    let wanted = Box::pin(async {
        match protocol {
            Protocol::Socks5 => {
                let asked = timeout(PATIENCE, socks5(socket));
                shares.run(peer.ip(), asked).await?.ok()?.ok()?
            }
            Protocol::Http => {
                let server = http::Server {
                    transport: &transport,
                    decisions: &decisions,
                    shares: &shares,
                    peer,
                };
                server.serve(socket).await.ok()?
            }
        }
    });
    let Some((socket, destination, first)) = wanted.await else {
        return;
    };
    let answer = match protocol {
        Protocol::Socks5 => Answer::Socks5,
        Protocol::Http => Answer::Connect,
    };
    let text = destination.to_string();
    let outcome = match decisions.decide(transport.front(), &destination, peer) {
        Some(Action::Block) => tell(socket, answer, ReplyCode::Denied).await,
        Some(Action::Direct) => {
            let carried = decisions.carry(socket, &destination, first, answer);
            Box::pin(carried).await
        }
        Some(Action::Tunnel) | None => {
            let intake = Intake {
                socket,
                destination,
                source: Some(peer),
                first,
                answer,
                shares: Some(shares),
            };
            carry(&transport, intake).await
        }
    };
    tracing::debug!("{protocol:?} {peer} to {text}: {outcome:?}");
}

/// What the application wants; `None` if it was turned away.
type Wanted = io::Result<Option<(TcpStream, Destination, Bytes)>>;

async fn socks5(mut socket: TcpStream) -> Wanted {
    let mut buffer = Vec::with_capacity(socks5::MAX_MESSAGE);
    let greeted = loop {
        match socks5::decode_greeting(&buffer) {
            Ok(Some(used)) => break used,
            Ok(None) => more(&mut socket, &mut buffer).await?,
            Err(error) => return turn_away(&mut socket, &error.reply()).await,
        }
    };
    buffer.drain(..greeted);
    socket.write_all(&socks5::GREETING_REPLY).await?;
    loop {
        match socks5::decode_request(&buffer) {
            Ok(Some((destination, used))) => {
                let first = Bytes::copy_from_slice(&buffer[used..]);
                return Ok(Some((socket, destination, first)));
            }
            Ok(None) => more(&mut socket, &mut buffer).await?,
            Err(error) => return turn_away(&mut socket, &error.reply()).await,
        }
    }
}

/// Reads on; the decoders bound how far.
async fn more(socket: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<()> {
    match socket.read_buf(buffer).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// Says why, and closes in order: a reset could overtake the answer.
async fn turn_away(socket: &mut TcpStream, text: &[u8]) -> Wanted {
    socket.write_all(text).await?;
    SockRef::from(&*socket).set_linger(None)?;
    socket.shutdown().await?;
    Ok(None)
}

//! SOCKS5 and HTTP: applications that name their destination themselves.
//!
//! Host names travel in OPEN and are resolved by the server, so they cost no round trip of DNS and
//! show nothing outside the tunnel. Datagrams are for `associate.rs`.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bentpipe_proto::proxy::socks5::{self, Request};
use bentpipe_proto::tunnel::{Destination, ReplyCode};
use bytes::Bytes;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Context;
use super::associate::Associates;
use super::direct::Decisions;
use super::dns::Dns;
use super::flow::{Answer, Intake, carry, tell};
use super::http;
use super::share::{SPEECHLESS, Shares};
use crate::client::Carrier;
use crate::config::{Action, Placed, ProxyFrontEnd};
use crate::net::listen::{self, ListenFamilies};
use crate::process::RunError;
use crate::relay;

/// Time that an application may take to say what it wants.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy)]
pub(super) enum ProxyProtocol {
    Socks5,
    Http,
}

/// Server of the applications of one listener.
struct ProxyListener {
    protocol: ProxyProtocol,
    carrier: Carrier,
    decisions: Rc<Decisions>,
    shares: Rc<Shares>,
    associates: Associates,
}

/// Wish of an application, its socket, and what it has sent already.
struct ProxyRequest {
    socket: TcpStream,
    request: Request,
    first: Bytes,
}

/// Listens for applications.
pub(super) fn start(
    context: &Context<'_>,
    dns: Option<&Rc<Dns>>,
    front_end: &Placed<ProxyFrontEnd>,
    protocol: ProxyProtocol,
) -> Result<JoinHandle<()>, RunError> {
    let listener = listen::listen(front_end.listen, ListenFamilies::Both, &front_end.place)?;
    let address = front_end.listen;
    if !address.ip().is_loopback() {
        tracing::warn!("{address} lets everyone who reaches it use the tunnel");
    }
    let Context {
        carrier,
        decisions,
        open,
    } = *context;
    let server = Rc::new(ProxyListener {
        protocol,
        carrier: carrier.clone(),
        decisions: decisions.clone(),
        shares: Shares::new(
            SPEECHLESS,
            "connections to a proxy that have not said where they go",
        ),
        associates: Associates::new(carrier, decisions, dns),
    });
    let open = open.clone();
    Ok(listen::accept(listener, move |socket, peer| {
        open.clone()
            .run(peer.ip(), server.clone().serve(socket, peer))
    }))
}

impl ProxyListener {
    async fn serve(self: Rc<Self>, socket: TcpStream, peer: SocketAddr) {
        if relay::prepare(&socket).is_err() {
            return;
        }
        let Some(wanted) = Box::pin(self.listen_to(socket, peer)).await else {
            return;
        };
        match wanted.request {
            Request::Connect(destination) => {
                self.connect(wanted.socket, peer, destination, wanted.first)
                    .await;
            }
            Request::Associate { port } => {
                Box::pin(self.associates.serve(wanted.socket, peer, port)).await;
            }
        }
    }

    /// Wish of the application; `None` if it was turned away.
    async fn listen_to(&self, socket: TcpStream, peer: SocketAddr) -> Option<ProxyRequest> {
        match self.protocol {
            ProxyProtocol::Socks5 => {
                let asked = timeout(PATIENCE, socks5(socket));
                self.shares.run(peer.ip(), asked).await?.ok()?.ok()?
            }
            ProxyProtocol::Http => {
                let server = http::HttpConnection {
                    carrier: &self.carrier,
                    decisions: &self.decisions,
                    shares: &self.shares,
                    peer,
                };
                let (socket, destination, first) = server.serve(socket).await.ok()??;
                Some(ProxyRequest {
                    socket,
                    request: Request::Connect(destination),
                    first,
                })
            }
        }
    }

    async fn connect(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
        destination: Destination,
        first: Bytes,
    ) {
        let answer = match self.protocol {
            ProxyProtocol::Socks5 => Answer::Socks5,
            ProxyProtocol::Http => Answer::Connect,
        };
        let text = destination.to_string();
        let front = self.carrier.front();
        let outcome = match self.decisions.decide(front, &destination, peer) {
            Some(Action::Block) => tell(socket, answer, ReplyCode::Denied).await,
            Some(Action::Direct) => {
                let _attended = self.carrier.attendance().enter();
                let carried = self.decisions.carry(socket, &destination, first, answer);
                Box::pin(carried).await
            }
            Some(Action::Tunnel) | None => {
                let intake = Intake {
                    socket,
                    destination,
                    source: Some(peer),
                    first,
                    answer,
                    shares: Some(self.shares.clone()),
                };
                carry(&self.carrier, intake).await
            }
        };
        tracing::debug!("{:?} {peer} to {text}: {outcome:?}", self.protocol);
    }
}

/// Wish that an application says; `None` if it was turned away.
async fn socks5(mut socket: TcpStream) -> io::Result<Option<ProxyRequest>> {
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
            Ok(Some((request, used))) => {
                let first = Bytes::copy_from_slice(&buffer[used..]);
                return Ok(Some(ProxyRequest {
                    socket,
                    request,
                    first,
                }));
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
async fn turn_away(socket: &mut TcpStream, text: &[u8]) -> io::Result<Option<ProxyRequest>> {
    socket.write_all(text).await?;
    SockRef::from(&*socket).set_linger(None)?;
    socket.shutdown().await?;
    Ok(None)
}

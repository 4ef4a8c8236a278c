//! Plain HTTP through the proxy: each request goes to its origin in a connection of its own, through the tunnel.
//!
//! ```text
//!   application ═ keep-alive ═► serve() ─ request head, body ─► pair of local sockets ─► flow.rs ─► tunnel
//!               ◄══════════════         ◄─ response head, body ─
//! ```
//!
//! Heads and the ends of bodies are decided on in `proto::proxy::forward`; this reads heads and finds ways, `http_exchange.rs` has one
//! request answered.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use bentpipe_proto::proxy::connect::{self, ConnectError};
use bentpipe_proto::proxy::forward::{self, Asked, RequestHead};
use bentpipe_proto::tunnel::{Destination, ReplyCode};
use bytes::Bytes;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::timeout;

use super::direct::Decisions;
use super::flow::{Answer, Intake, carry};
use super::http_exchange::{Answered, exchange};
use super::proxy::PATIENCE;
use super::share::Shares;
use crate::client::Carrier;
use crate::config::Action;
use crate::relay::{self, Outcome};

/// An application's connection that has become a tunnel by CONNECT: where to, and what was read of it already.
type Connected = (TcpStream, Destination, Bytes);

/// Server of the requests of one connection.
pub(super) struct HttpConnection<'a> {
    pub(super) carrier: &'a Carrier,
    pub(super) decisions: &'a Rc<Decisions>,
    pub(super) shares: &'a Rc<Shares>,
    pub(super) peer: SocketAddr,
}

impl HttpConnection<'_> {
    /// Serves requests one after another, until one is CONNECT or the connection ends. A client that stops answers what was asked,
    /// and then ends the connection in order.
    pub(super) async fn serve(&self, mut socket: TcpStream) -> io::Result<Option<Connected>> {
        let (mut buffer, mut answered) = (Vec::with_capacity(1024), false);
        let attendance = self.carrier.attendance();
        loop {
            let asked = timeout(PATIENCE, read_request(&mut socket, &mut buffer));
            let asked = tokio::select! {
                asked = self.shares.run(self.peer.ip(), asked) => asked,
                () = attendance.ending(), if answered => {
                    close(&mut socket).await?;
                    return Ok(None);
                }
            };
            let Some(Ok(Ok(Some(asked)))) = asked else {
                return Ok(None);
            };
            let _attended = attendance.enter();
            let request = match asked {
                Err(error) => {
                    turn_away(&mut socket, &error.reply()).await?;
                    return Ok(None);
                }
                Ok(Asked::Connect(destination)) => {
                    return Ok(Some((socket, destination, buffer.into())));
                }
                Ok(Asked::Forward(request)) => *request,
            };
            match self.answer(&mut socket, &request, &mut buffer).await? {
                Ok(Answered::Whole) => answered = true,
                Ok(Answered::Last | Answered::Nothing) => {
                    close(&mut socket).await?;
                    return Ok(None);
                }
                Ok(Answered::Cut) => {
                    // What has come precedes the reset that dropping the socket is.
                    relay::delivered(&socket).await;
                    return Ok(None);
                }
                Err(code) => {
                    turn_away(&mut socket, &connect::reply(code)).await?;
                    return Ok(None);
                }
            }
        }
    }

    /// Has the origin answer one request.
    async fn answer(
        &self,
        socket: &mut TcpStream,
        request: &RequestHead,
        buffer: &mut Vec<u8>,
    ) -> io::Result<Result<Answered, ReplyCode>> {
        let mut origin = match self.reach(&request.destination).await {
            Ok(origin) => origin,
            Err(code) => return Ok(Err(code)),
        };
        match exchange(socket, &mut origin.socket, request, buffer).await? {
            Answered::Nothing => Ok(Err(origin.cause().await)),
            // Its end of the connection is to see a reset, as the application does.
            Answered::Cut => Ok(Ok(Answered::Cut)),
            answered => {
                // Its end of the connection is to see a FIN, not a reset.
                SockRef::from(&origin.socket).set_linger(None)?;
                Ok(Ok(answered))
            }
        }
    }
}

/// The next request; what follows its head stays in `buffer`. `None`: the application has ended.
async fn read_request(
    socket: &mut TcpStream,
    buffer: &mut Vec<u8>,
) -> Result<Option<Result<Asked, ConnectError>>, io::Error> {
    loop {
        match forward::decode(buffer) {
            Ok(Some((asked, used))) => {
                buffer.drain(..used);
                return Ok(Some(Ok(asked)));
            }
            Ok(None) => {}
            Err(error) => return Ok(Some(Err(error))),
        }
        if socket.read_buf(buffer).await? == 0 {
            return match buffer.is_empty() {
                true => Ok(None),
                false => Err(io::ErrorKind::UnexpectedEof.into()),
            };
        }
    }
}

/// Says why, and closes in order: a reset could overtake the answer.
async fn turn_away(socket: &mut TcpStream, text: &[u8]) -> io::Result<()> {
    socket.write_all(text).await?;
    close(socket).await
}

async fn close(socket: &mut TcpStream) -> io::Result<()> {
    SockRef::from(&*socket).set_linger(None)?;
    socket.shutdown().await
}

/// The way to an origin: our end of a pair of local sockets, and the task that relays the other.
struct Origin {
    socket: TcpStream,
    relayed: JoinHandle<Outcome>,
}

impl Origin {
    /// Reason why the origin gave no answer.
    async fn cause(self) -> ReplyCode {
        drop(self.socket);
        match timeout(PATIENCE, self.relayed).await {
            Ok(Ok(Outcome::Refused(code))) => code,
            Ok(Ok(Outcome::TunnelLost)) | Err(_) => ReplyCode::TimedOut,
            // It was reached, and ended.
            _ => ReplyCode::Refused,
        }
    }
}

impl HttpConnection<'_> {
    /// Opens the way to an origin.
    async fn reach(&self, destination: &Destination) -> Result<Origin, ReplyCode> {
        let peer = self.peer;
        let action = self
            .decisions
            .decide(self.carrier.front(), destination, peer);
        if action == Some(Action::Block) {
            return Err(ReplyCode::Denied);
        }
        let pair = async {
            let (socket, other) = pair().await?;
            relay::prepare(&socket)?;
            relay::prepare(&other)?;
            Ok::<_, io::Error>((socket, other))
        };
        let (socket, other) = pair.await.map_err(|_| ReplyCode::Internal)?;
        let (destination, decisions, carrier) = (
            destination.clone(),
            self.decisions.clone(),
            self.carrier.clone(),
        );
        let relayed = spawn_local(async move {
            let (first, answer) = (Bytes::new(), Answer::Silent);
            if action == Some(Action::Direct) {
                return Box::pin(decisions.carry(other, &destination, first, answer)).await;
            }
            let intake = Intake {
                socket: other,
                destination,
                source: Some(peer),
                first,
                answer,
                shares: None,
            };
            carry(&carrier, intake).await
        });
        Ok(Origin { socket, relayed })
    }
}

/// Two connected sockets of this machine. Nobody else can get in between: the second is the one that the first is.
async fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let near = TcpStream::connect(listener.local_addr()?).await?;
    let own = near.local_addr()?;
    loop {
        let (far, from) = listener.accept().await?;
        if from == own {
            return Ok((near, far));
        }
    }
}

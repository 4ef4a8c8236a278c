//! Plain HTTP through the proxy: each request goes to its origin in a connection of its own, through the tunnel.
//!
//! ```text
//!   application ═ keep-alive ═► serve() ─ request head, body ─► pair of local sockets ─► flow.rs ─► tunnel
//!               ◄══════════════         ◄─ response head, body ─
//! ```
//!
//! What a head says and where a body ends is decided in `proto::proxy::forward`; this reads and writes.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use bentpipe_proto::proxy::connect::{self, ConnectError};
use bentpipe_proto::proxy::forward::{self, Asked, RequestHead, ResponseHead};
use bentpipe_proto::tunnel::{Destination, ReplyCode};
use bytes::Bytes;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::timeout;

use super::direct::Decisions;
use super::flow::{Answer, Intake, carry};
use super::http_body::Body;
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

/// Answer that a request got.
enum Answered {
    /// The next request may follow.
    Whole,
    /// Nothing can follow it.
    Last,
    /// The origin was not reached, or gave no answer, and the application has heard nothing.
    Nothing,
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

/// Sends a request and its body, and brings the response.
async fn exchange(
    socket: &mut TcpStream,
    origin: &mut TcpStream,
    request: &RequestHead,
    buffer: &mut Vec<u8>,
) -> io::Result<Answered> {
    let answered = {
        let (mut from_application, mut to_application) = socket.split();
        let (mut from_origin, mut to_origin) = origin.split();
        let mut taken = Body::new(request.body);
        let upload = async {
            to_origin.write_all(&request.head).await?;
            taken
                .copy(buffer, &mut from_application, &mut to_origin)
                .await
        };
        let download = respond(&mut from_origin, &mut to_application, request);
        let mut upload = Box::pin(upload);
        let mut download = Box::pin(download);
        let (mut sent, early) = tokio::select! {
            sent = &mut upload => (Some(sent), None),
            answered = &mut download => (None, Some(answered)),
        };
        let answered = match early {
            Some(answered) => answered,
            None => {
                // An origin that has not read everything may answer all the same.
                if let Some(Err(error)) = &sent
                    && error.kind() == io::ErrorKind::UnexpectedEof
                {
                    return Err(error.kind().into());
                }
                download.await
            }
        };
        drop(upload);
        // Whatever is left of the body would be taken for the next request.
        let whole = matches!(sent.take(), Some(Ok(()))) || taken.is_done();
        match answered {
            Ok((Answered::Whole, _)) if !whole => (Answered::Last, None),
            Ok(answered) => answered,
            Err(_) => (Answered::Nothing, None),
        }
    };
    if let (Answered::Last, Some(rest)) = &answered {
        // 101: the two speak another protocol from now on.
        socket.write_all(rest).await?;
        origin.write_all(buffer).await?;
        buffer.clear();
        copy_bidirectional(socket, origin).await?;
    }
    Ok(answered.0)
}

/// Brings the response to `request`; after a change of protocol also what has come of that one.
async fn respond(
    origin: &mut ReadHalf<'_>,
    application: &mut WriteHalf<'_>,
    request: &RequestHead,
) -> io::Result<(Answered, Option<Vec<u8>>)> {
    let mut buffer = Vec::with_capacity(1024);
    let mut said = false;
    let response = loop {
        let Some(response) = read_response(origin, &mut buffer, request).await? else {
            return Ok((
                if said {
                    Answered::Last
                } else {
                    Answered::Nothing
                },
                None,
            ));
        };
        application.write_all(&response.head).await?;
        said = true;
        if !response.is_interim() {
            break response;
        }
    };
    if response.status == 101 {
        return Ok((Answered::Last, Some(buffer)));
    }
    let mut body = Body::new(response.body);
    // The application has heard a part: only the end of the connection can say that the rest is missing.
    let whole = body.copy(&mut buffer, origin, application).await.is_ok();
    let answered = match whole && response.keeps {
        true => Answered::Whole,
        false if whole => Answered::Last,
        false => return Ok((Answered::Last, None)),
    };
    Ok((answered, None))
}

/// The next response; `None`: there is none, or it cannot be understood.
async fn read_response(
    origin: &mut ReadHalf<'_>,
    buffer: &mut Vec<u8>,
    request: &RequestHead,
) -> io::Result<Option<ResponseHead>> {
    loop {
        match forward::decode_response(buffer, request) {
            Ok(Some((response, used))) => {
                buffer.drain(..used);
                return Ok(Some(response));
            }
            Ok(None) => {}
            Err(_) => return Ok(None),
        }
        match origin.read_buf(buffer).await {
            Ok(0) | Err(_) => return Ok(None),
            Ok(_) => {}
        }
    }
}

//! From a connection that a front end took in to a relayed flow.
//!
//! Optimistic: the application is told "connected" (an intercepted one has been, by the kernel), its
//! first bytes leave together with OPEN, and a refusal reaches it as a reset. Not optimistic: OPEN goes
//! alone and the application hears the server's own answer; one RTT slower, never wrong.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Instant;

use bentpipe_proto::proxy::{connect, socks5};
use bentpipe_proto::tunnel::{Destination, Host, ReplyCode};
use bytes::Bytes;
use socket2::SockRef;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::share::Shares;
use crate::client::plain::{NotOpened, Said};
use crate::client::{Session, Transport, Unready};
use crate::process;
use crate::relay::split::{Bench, Far, Split};
use crate::relay::{self, FlowHandle, Outcome, Relay};
use bentpipe_tunnel::transport::OpenError;

/// Tunnels tried for one flow: the one at hand may be draining or just lost.
const MAX_TUNNELS: usize = 3;

/// How a front end's application is told the outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// By TCP itself.
    Intercepted,
    /// By a SOCKS5 reply.
    Socks5,
    /// By an HTTP status.
    Connect,
}

impl Answer {
    fn text(self, code: ReplyCode, bound: Option<SocketAddr>) -> Vec<u8> {
        match self {
            Self::Intercepted => Vec::new(),
            Self::Socks5 => socks5::reply(code, bound),
            Self::Connect => connect::reply(code),
        }
    }
}

impl Answer {
    /// Tells the application that it is connected.
    pub(super) async fn accept(
        self,
        socket: &mut TcpStream,
        bound: Option<SocketAddr>,
    ) -> io::Result<()> {
        socket.write_all(&self.text(ReplyCode::Ok, bound)).await
    }
}

/// Tells the application that it is not connected, and why.
pub(super) async fn tell(socket: TcpStream, answer: Answer, code: ReplyCode) -> Outcome {
    turn_away(socket, &answer.text(code, None)).await;
    Outcome::Refused(code)
}

/// A connection that a front end took in.
pub(super) struct Intake {
    /// Prepared for relaying ([`crate::relay::prepare`]).
    pub(super) socket: TcpStream,
    /// Where it wants to go.
    pub(super) destination: Destination,
    /// Who asked.
    pub(super) source: Option<SocketAddr>,
    /// Bytes for the destination that were read already.
    pub(super) first: Bytes,
    /// How the application is told.
    pub(super) answer: Answer,
    /// Bounds how many connections of one host wait to be opened; `None`: that was seen to.
    pub(super) shares: Option<Rc<Shares>>,
}

/// Why a flow was not opened.
pub(super) enum Failure {
    /// The application is gone.
    Application,
    /// No tunnel came up in the time that a flow waits.
    NoTunnel,
    /// There is no connection, and this is the reason.
    Code(ReplyCode),
}

impl From<Unready> for Failure {
    fn from(_: Unready) -> Self {
        Self::NoTunnel
    }
}

/// The application was lost.
impl From<io::Error> for Failure {
    fn from(_: io::Error) -> Self {
        Self::Application
    }
}

impl From<NotOpened> for Failure {
    fn from(reason: NotOpened) -> Self {
        match reason {
            NotOpened::NoServer => Self::NoTunnel,
            NotOpened::Application => Self::Application,
            NotOpened::Code(code) => Self::Code(code),
        }
    }
}

/// A flow, by its transport.
pub(super) enum Flow {
    Tunnel(FlowHandle),
    Plain(Box<Far>),
}

impl Flow {
    /// Waits for the server's answer: the address that it connected from.
    async fn reply(&mut self) -> Result<Option<SocketAddr>, ReplyCode> {
        match self {
            Self::Tunnel(flow) => flow.reply().await,
            Self::Plain(far) => far.reply().await,
        }
    }

    /// Between the flow and its application.
    pub(super) fn relay(self, transport: &Transport, socket: TcpStream) -> Carried {
        match (self, transport) {
            (Self::Tunnel(flow), _) => Carried::Tunnel(Relay::new(flow, socket)),
            (Self::Plain(far), Transport::Plain(splitter)) => {
                splitter.take(&socket);
                Bench::count(&splitter.bench().far_in, &far.read);
                Carried::Plain(Box::new(Split {
                    near: socket,
                    far: *far,
                    bench: splitter.bench().clone(),
                }))
            }
            (Self::Plain(_), Transport::Tunnel(_)) => unreachable!("a tunnel opens its own flows"),
        }
    }
}

/// A relay, by its transport.
pub(super) enum Carried {
    Tunnel(Relay),
    Plain(Box<Split>),
}

impl Carried {
    /// Relays until the flow is over.
    pub(super) async fn run(self) -> Outcome {
        match self {
            Self::Tunnel(relay) => relay.run().await,
            // Apart: its lanes hold more than a relay of the tunnel.
            Self::Plain(split) => Box::pin(split.run()).await,
        }
    }
}

/// A flow that is open as far as its application is concerned.
pub(super) struct Opened {
    pub(super) flow: Flow,
    /// The application has sent FIN already.
    ended: bool,
    /// The address that the server connected from, if it was waited for.
    bound: Option<SocketAddr>,
    /// When the application's request was at hand, if it came at once.
    asked: Option<Instant>,
}

/// Opens a flow for `intake` and relays it to its end.
pub(super) fn carry(transport: &Transport, intake: Intake) -> impl Future<Output = Outcome> {
    // Apart, so that what opening needs does not stay with the flow for its life.
    let waits = intake.shares.clone().zip(intake.source);
    let establishing = Box::pin(establish(transport, intake));
    async move {
        let established = match waits {
            Some((shares, source)) => Box::pin(shares.run(source.ip(), establishing)).await,
            None => Some(establishing.await),
        };
        match established {
            Some(Ok(relay)) => relay.run().await,
            Some(Err(outcome)) => outcome,
            None => Outcome::LanReset,
        }
    }
}

/// Opens a flow and tells the application.
async fn establish(transport: &Transport, intake: Intake) -> Result<Carried, Outcome> {
    let Intake {
        mut socket,
        destination,
        source,
        first,
        answer,
        shares: _,
    } = intake;
    let optimistic = transport.is_optimistic(&destination);
    if optimistic && answer.accept(&mut socket, None).await.is_err() {
        return Err(Outcome::LanReset);
    }
    let opened = if optimistic {
        open_with_first_bytes(transport, &socket, &destination, source, first).await
    } else {
        open_and_wait(transport, &destination, source, first).await
    };
    match opened {
        Ok(opened) => {
            if !optimistic && answer.accept(&mut socket, opened.bound).await.is_err() {
                return Err(Outcome::LanReset);
            }
            Ok(match opened.flow.relay(transport, socket) {
                Carried::Tunnel(relay) => {
                    let relay = timed(relay, transport, opened.asked);
                    Carried::Tunnel(match opened.ended {
                        true => relay.half_closed(),
                        false => relay,
                    })
                }
                relay @ Carried::Plain(_) => relay,
            })
        }
        Err(failure) => {
            let (code, outcome) = match failure {
                Failure::Application => return Err(Outcome::LanReset),
                Failure::NoTunnel => (ReplyCode::TimedOut, Outcome::TunnelLost),
                Failure::Code(code) => (code, Outcome::Refused(code)),
            };
            // Who was promised a connection can only be reset: by dropping the socket.
            if !optimistic {
                turn_away(socket, &answer.text(code, None)).await;
            }
            Err(outcome)
        }
    }
}

/// Has the time to the first byte of the answer taken, where it is served.
fn timed(relay: Relay, transport: &Transport, asked: Option<Instant>) -> Relay {
    match (transport, asked) {
        (Transport::Tunnel(session), Some(asked)) => match session.first_byte().cloned() {
            Some(told) => relay.on_first_byte(move || {
                told.observe(process::now().saturating_duration_since(asked));
            }),
            None => relay,
        },
        _ => relay,
    }
}

async fn open_with_first_bytes(
    transport: &Transport,
    socket: &TcpStream,
    destination: &Destination,
    source: Option<SocketAddr>,
    first: Bytes,
) -> Result<Opened, Failure> {
    let (flow, ended, asked) = match transport {
        Transport::Tunnel(session) => {
            // Whatever the application says while there is no tunnel comes with the first bytes, too.
            session.tunnel().await?;
            let (first, ended) = match first.is_empty() {
                true => relay::first_bytes(socket, session.shard().scratch()).await?,
                false => (first, false),
            };
            let asked = (!first.is_empty()).then(process::now);
            let flow = open_in_tunnel(session, destination, source, &first).await?;
            (Flow::Tunnel(flow), ended, asked)
        }
        Transport::Plain(splitter) => {
            let said = Said::Soon(first, socket);
            let far = splitter.open(destination, source, said).await?;
            (Flow::Plain(Box::new(far)), false, None)
        }
    };
    Ok(Opened {
        flow,
        ended,
        bound: None,
        asked,
    })
}

/// Opens a flow and waits for the server's answer.
pub(super) async fn open_and_wait(
    transport: &Transport,
    destination: &Destination,
    source: Option<SocketAddr>,
    first: Bytes,
) -> Result<Opened, Failure> {
    let mut flow = open(transport, destination, source, &first).await?;
    let bound = flow.reply().await.map_err(Failure::Code)?;
    Ok(Opened {
        flow,
        ended: false,
        bound,
        asked: None,
    })
}

/// Opens a flow.
async fn open(
    transport: &Transport,
    destination: &Destination,
    source: Option<SocketAddr>,
    first: &Bytes,
) -> Result<Flow, Failure> {
    Ok(match transport {
        Transport::Tunnel(session) => {
            Flow::Tunnel(open_in_tunnel(session, destination, source, first).await?)
        }
        Transport::Plain(splitter) => {
            let said = Said::All(first.clone());
            Flow::Plain(Box::new(splitter.open(destination, source, said).await?))
        }
    })
}

/// Opens the flow in the tunnel, as soon as there is one.
async fn open_in_tunnel(
    session: &Session,
    destination: &Destination,
    source: Option<SocketAddr>,
    first: &Bytes,
) -> Result<FlowHandle, Failure> {
    for _ in 0..MAX_TUNNELS {
        let tunnel = session.tunnel().await?;
        let families = session.families();
        let lacking = match destination.host {
            Host::Ip(IpAddr::V4(_)) => !families.ipv4,
            Host::Ip(IpAddr::V6(_)) => !families.ipv6,
            Host::Name(_) => false,
        };
        if lacking {
            return Err(Failure::Code(ReplyCode::FamilyUnsupported));
        }
        let opened = session.shard().change(tunnel, |connection| {
            let (tunnel, quic) = connection.parts();
            tunnel.open(quic, destination.clone(), source, first.clone())
        });
        match opened {
            Some(Ok(flow)) => return Ok(FlowHandle::new(session.shard().clone(), tunnel, flow)),
            Some(Err(OpenError::LimitReached)) => {
                return Err(Failure::Code(ReplyCode::LimitReached));
            }
            Some(Err(OpenError::NotReady | OpenError::Draining)) | None => {}
        }
    }
    Err(Failure::Code(ReplyCode::Draining))
}

/// Says `text` and closes in order; an intercepted connection, which has no text, is reset.
async fn turn_away(mut socket: TcpStream, text: &[u8]) {
    if !text.is_empty() && socket.write_all(text).await.is_ok() {
        let _ = SockRef::from(&socket).set_linger(None);
        let _ = socket.shutdown().await;
    }
}

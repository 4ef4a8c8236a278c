//! What carries a client's connections on: the tunnel, or TCP in clear. Front ends ask here, and know neither.
//!
//! ```text
//!   front end ─► Carrier::open ─► Flow ─► reply ─► relay ─► run      one connection
//!   front end ◄─ Reach, watched                                      where connections can go just now
//! ```

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
#[cfg(target_os = "linux")]
use std::sync::Arc;
use std::time::Instant;

use bentpipe_proto::tunnel::{Destination, Host, ReplyCode};
use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::attendance::Attendance;
#[cfg(target_os = "linux")]
use super::kept_device::KeptDevice;
use super::reach::Reach;
use super::session::{Session, Unready};
use super::sle::{Sealing, SleFlow};
use super::splitter::Splitter;
use crate::config::FrontEnds;
use crate::metrics::FirstByte;
use crate::process;
use crate::relay::split::{Far, Split};
use crate::relay::{self, FlowHandle, Outcome, Relay};
use bentpipe_tunnel::transport::OpenError;

/// Tunnels tried for one flow: the one at hand may be draining or just lost.
const MAX_TUNNELS: usize = 3;

/// Carrier of a running client's connections.
#[derive(Clone)]
pub(crate) enum Carrier {
    /// The QUIC tunnel.
    Tunnel(Rc<Session>),
    /// A TCP connection for each, sealed, beside the QUIC tunnel, which carries the rest.
    Sle(Rc<Session>, Rc<Sealing>),
    /// A TCP connection for each, in clear.
    Plain(Rc<Splitter>),
}

/// Words of an application before its flow is open.
pub(crate) enum Said<'a> {
    /// First bytes of the application, which waits for an answer to them.
    All(Bytes),
    /// First bytes of the application; if there are none, its socket has what it says.
    Soon(Bytes, &'a TcpStream),
}

/// Reason why there is no flow.
pub(crate) enum NotOpened {
    /// The server cannot be reached, in the time that a flow waits.
    NoServer,
    /// The destination cannot be connected to, for the reason that the code names.
    Code(ReplyCode),
    /// The application was lost meanwhile.
    Application,
}

impl From<Unready> for NotOpened {
    fn from(_: Unready) -> Self {
        Self::NoServer
    }
}

/// The application was lost.
impl From<io::Error> for NotOpened {
    fn from(_: io::Error) -> Self {
        Self::Application
    }
}

impl Carrier {
    /// Carrier of a client with a tunnel.
    pub(super) fn of(session: &Rc<Session>) -> Self {
        match session.sle() {
            Some(sle) => Self::Sle(session.clone(), sle.clone()),
            None => Self::Tunnel(session.clone()),
        }
    }

    /// Session of the tunnel, if there is one.
    pub(crate) fn session(&self) -> Option<&Rc<Session>> {
        match self {
            Self::Tunnel(session) | Self::Sle(session, _) => Some(session),
            Self::Plain(_) => None,
        }
    }

    /// Front ends of the client.
    pub(crate) fn front(&self) -> &FrontEnds {
        match self {
            Self::Tunnel(session) | Self::Sle(session, _) => session.front(),
            Self::Plain(splitter) => splitter.front(),
        }
    }

    /// Reach of the other side, now and after every change.
    pub(crate) fn reach(&self) -> watch::Receiver<Reach> {
        match self {
            Self::Tunnel(session) | Self::Sle(session, _) => session.reach(),
            Self::Plain(splitter) => splitter.reach(),
        }
    }

    /// Applications that are being answered, and whether the client is about to stop.
    pub(crate) fn attendance(&self) -> &Rc<Attendance> {
        match self {
            Self::Tunnel(session) | Self::Sle(session, _) => session.attendance(),
            Self::Plain(splitter) => splitter.attendance(),
        }
    }

    /// True if an application hears "connected" before the server has connected.
    pub(crate) fn is_optimistic(&self, destination: &Destination) -> bool {
        let address = match destination.host {
            Host::Ip(address) => Some(address),
            Host::Name(_) => None,
        };
        self.front().is_optimistic(address, destination.port)
    }

    /// Makes a device for all but TCP, and what is to be kept of it; `None` if none of that is carried.
    #[cfg(target_os = "linux")]
    pub(crate) fn open_device(&self) -> io::Result<Option<Arc<KeptDevice>>> {
        match self {
            Self::Tunnel(session) | Self::Sle(session, _) => session.packet_road().open_device(),
            Self::Plain(_) => Ok(None),
        }
    }

    /// Opens a flow for an application that has `said` something.
    pub(crate) async fn open(
        &self,
        destination: &Destination,
        source: Option<SocketAddr>,
        said: Said<'_>,
    ) -> Result<Flow, NotOpened> {
        match self {
            Self::Tunnel(session) => open_in_tunnel(session, destination, source, said).await,
            Self::Sle(session, sle) => open_sealed(session, sle, destination, source, said).await,
            Self::Plain(splitter) => {
                let far = Box::new(splitter.open(destination, source, said).await?);
                let splitter = splitter.clone();
                Ok(Flow::Plain { far, splitter })
            }
        }
    }
}

/// Opens a flow beside the tunnel, or in it where that cannot be.
async fn open_sealed(
    session: &Session,
    sle: &Rc<Sealing>,
    destination: &Destination,
    source: Option<SocketAddr>,
    said: Said<'_>,
) -> Result<Flow, NotOpened> {
    if !sle.takes(destination) {
        return open_in_tunnel(session, destination, source, said).await;
    }
    session.tunnel().await?;
    let Some(outer) = sle.connect(destination).await else {
        return open_in_tunnel(session, destination, source, said).await;
    };
    let words = Words::of(said, session).await?;
    let sealed = sle.open(
        outer,
        destination,
        source,
        (words.first.clone(), words.ended),
    );
    match sealed {
        Some(flow) => Ok(Flow::Sle {
            flow: Box::new(flow),
            asked: words.asked(session),
        }),
        None => open_with_words(session, destination, source, words).await,
    }
}

/// First words of an application.
struct Words {
    first: Bytes,
    /// The application has sent FIN behind them.
    ended: bool,
    /// The application has said them at once: the time to an answer counts.
    timed: bool,
}

impl Words {
    async fn of(said: Said<'_>, session: &Session) -> io::Result<Self> {
        let (first, socket) = match said {
            Said::All(first) => (first, None),
            Said::Soon(first, socket) => (first, Some(socket)),
        };
        let timed = socket.is_some();
        let (first, ended) = match socket {
            Some(socket) if first.is_empty() => {
                relay::first_bytes(socket, session.shard().scratch()).await?
            }
            _ => (first, false),
        };
        Ok(Self {
            timed: timed && !first.is_empty(),
            first,
            ended,
        })
    }

    /// The present instant, and who takes the time from it to the first answer, if that counts.
    fn asked(&self, session: &Session) -> Option<(Instant, FirstByte)> {
        let asked = self.timed.then(process::now);
        asked.zip(session.first_byte().cloned())
    }
}

/// Opens a flow in the tunnel, as soon as there is one. Whatever the application says while there is none comes with its first
/// bytes.
async fn open_in_tunnel(
    session: &Session,
    destination: &Destination,
    source: Option<SocketAddr>,
    said: Said<'_>,
) -> Result<Flow, NotOpened> {
    if matches!(said, Said::Soon(..)) {
        session.tunnel().await?;
    }
    let words = Words::of(said, session).await?;
    open_with_words(session, destination, source, words).await
}

async fn open_with_words(
    session: &Session,
    destination: &Destination,
    source: Option<SocketAddr>,
    words: Words,
) -> Result<Flow, NotOpened> {
    let asked = words.asked(session);
    let handle = open_handle(session, (destination, source), &words.first, false).await?;
    Ok(Flow::Tunnel {
        handle,
        ended: words.ended,
        asked,
    })
}

/// Opens a flow in the tunnel that there is, or waits for one: for the bytes of a connection, or for frames of a `page`.
pub(super) async fn open_handle(
    session: &Session,
    (destination, source): (&Destination, Option<SocketAddr>),
    first: &Bytes,
    page: bool,
) -> Result<FlowHandle, NotOpened> {
    for _ in 0..MAX_TUNNELS {
        let tunnel = session.tunnel().await?;
        let families = session.tunnels().families();
        let lacking = match destination.host {
            Host::Ip(IpAddr::V4(_)) => !families.ipv4,
            Host::Ip(IpAddr::V6(_)) => !families.ipv6,
            Host::Name(_) => false,
        };
        if lacking {
            return Err(NotOpened::Code(ReplyCode::FamilyUnsupported));
        }
        let opened = session.shard().change(tunnel, |connection| {
            let (tunnel, quic) = connection.parts();
            let (destination, first) = (destination.clone(), first.clone());
            match page {
                true => tunnel.open_page(quic, destination, source, first),
                false => tunnel.open(quic, destination, source, first),
            }
        });
        match opened {
            Some(Ok(flow)) => return Ok(FlowHandle::new(session.shard().clone(), tunnel, flow)),
            Some(Err(OpenError::LimitReached)) => {
                return Err(NotOpened::Code(ReplyCode::LimitReached));
            }
            Some(Err(OpenError::NotReady | OpenError::Draining)) | None => {}
        }
    }
    Err(NotOpened::Code(ReplyCode::Draining))
}

/// Flow of a carrier.
pub(crate) enum Flow {
    Tunnel {
        handle: FlowHandle,
        /// The application has sent FIN already.
        ended: bool,
        /// Instant at which the application's request was at hand, if it came at once, and who takes the time to its answer.
        asked: Option<(Instant, FirstByte)>,
    },
    Sle {
        flow: Box<SleFlow>,
        /// As with a flow of the tunnel.
        asked: Option<(Instant, FirstByte)>,
    },
    Plain {
        far: Box<Far>,
        splitter: Rc<Splitter>,
    },
}

impl Flow {
    /// Waits for the server's answer: the address that it connected from.
    ///
    /// # Errors
    /// Its code.
    pub(crate) async fn reply(&mut self) -> Result<Option<SocketAddr>, ReplyCode> {
        match self {
            Self::Tunnel { handle, .. } => handle.reply().await,
            Self::Sle { flow, .. } => flow.reply().await,
            Self::Plain { far, .. } => far.reply().await,
        }
    }

    /// Between the flow and its application.
    pub(crate) fn relay(self, socket: TcpStream) -> FlowRelay {
        match self {
            Self::Tunnel {
                handle,
                ended,
                asked,
            } => {
                let mut relay = Relay::new(handle, socket);
                if let Some(asked) = asked {
                    relay = relay.on_first_byte(observer(asked));
                }
                FlowRelay::Tunnel(if ended { relay.half_closed() } else { relay })
            }
            Self::Sle { flow, asked } => FlowRelay::Sle {
                flow,
                socket,
                asked,
            },
            Self::Plain { far, splitter } => FlowRelay::Plain(splitter.split(socket, *far)),
        }
    }
}

/// Takes the time since an application has asked.
fn observer((asked, told): (Instant, FirstByte)) -> impl FnOnce() + 'static {
    move || told.observe(process::now().saturating_duration_since(asked))
}

/// Relay of a flow, by its carrier.
pub(crate) enum FlowRelay {
    Tunnel(Relay),
    Sle {
        flow: Box<SleFlow>,
        socket: TcpStream,
        asked: Option<(Instant, FirstByte)>,
    },
    Plain(Box<Split>),
}

impl FlowRelay {
    /// Relays until the flow is over.
    pub(crate) async fn run(self) -> Outcome {
        match self {
            Self::Tunnel(relay) => relay.run().await,
            Self::Sle {
                flow,
                socket,
                asked,
            } => {
                let told = asked.map(|asked| Box::new(observer(asked)) as Box<dyn FnOnce()>);
                Box::pin(flow.run(socket, told)).await
            }
            // Apart: its lanes hold more than a relay of the tunnel.
            Self::Plain(split) => Box::pin(split.run()).await,
        }
    }
}

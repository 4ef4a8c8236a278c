//! A flow of a carrier: what waits for the server's answer, then what relays.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use bentpipe_proto::tunnel::ReplyCode;
use tokio::net::TcpStream;

use super::super::sle::SleFlow;
use super::super::splitter::Splitter;
use crate::metrics::FirstByte;
use crate::process;
use crate::relay::split::{Far, Split};
use crate::relay::{FlowHandle, Outcome, Relay};

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

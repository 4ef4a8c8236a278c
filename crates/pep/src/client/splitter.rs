//! Connections of a client without a tunnel: each goes on over a TCP connection of its own, to the
//! server or to its destination.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bentpipe_proto::tunnel::{Destination, Host, Open, ReplyCode};
use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::attendance::Attendance;
use super::carrier::{NotOpened, Said};
use super::reach::Reach;
use crate::config::{self, PlainClient};
use crate::congestion_control::CongestionControl;
use crate::net::dial;
use crate::process::{self, RunError};
use crate::relay;
use crate::relay::split::{Far, Split, Splits};
use crate::sandbox;
use crate::status::{self, Side, StatusReport, TunnelState};

/// Between looks at whether all is over.
const POLL: Duration = Duration::from_millis(20);

/// State that all connections share.
pub(crate) struct Splitter {
    config: Rc<PlainClient>,
    controller: Option<CongestionControl>,
    /// Of our own sockets, where interception would take them in.
    mark: Option<u32>,
    splits: Rc<Splits>,
    started: Instant,
    waiting: Cell<u64>,
    last_error: RefCell<Option<String>>,
    attendance: Rc<Attendance>,
    reach: watch::Sender<Reach>,
}

impl Splitter {
    /// For the sockets of `config`, marked with `mark` where interception would take them in.
    pub(super) fn new(config: Rc<PlainClient>, mark: Option<u32>) -> Result<Self, RunError> {
        let controller = CongestionControl::find(config.controller.as_ref())?;
        Ok(Self {
            controller,
            mark,
            splits: Splits::new(),
            started: process::now(),
            waiting: Cell::new(0),
            last_error: RefCell::default(),
            attendance: Attendance::new(),
            reach: watch::Sender::new(Reach::of(
                config.server.iter().map(SocketAddr::ip).collect(),
            )),
            config,
        })
    }

    pub(super) fn front(&self) -> &config::FrontEnds {
        &self.config.front
    }

    /// Applications that are being answered.
    pub(super) fn attendance(&self) -> &Rc<Attendance> {
        &self.attendance
    }

    /// Reach of the splitter: that never changes, as far as is known.
    pub(super) fn reach(&self) -> watch::Receiver<Reach> {
        self.reach.subscribe()
    }

    /// Between who asked and the far side.
    pub(super) fn split(&self, near: TcpStream, far: Far) -> Box<Split> {
        self.take(&near);
        Splits::count(&self.splits.far_in, &far.read);
        Box::new(Split { near, far })
    }

    /// Prepares the socket of who asked.
    fn take(&self, near: &TcpStream) {
        if let Some(controller) = &self.controller {
            controller.apply(near);
        }
    }

    /// Connects a new flow for an application that has `said` something.
    pub(crate) async fn open(
        &self,
        destination: &Destination,
        source: Option<SocketAddr>,
        said: Said<'_>,
    ) -> Result<Far, NotOpened> {
        if self.attendance.is_ending() {
            return Err(NotOpened::Code(ReplyCode::Draining));
        }
        self.waiting.set(self.waiting.get() + 1);
        let opened = match self.config.server {
            Some(server) => self.ask(server, destination, source, said).await,
            None => self.connect(destination, said).await,
        };
        self.waiting.set(self.waiting.get() - 1);
        opened
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let patience = self.config.connect_timeout;
        let socket = timeout(patience, dial::open(address, self.mark))
            .await
            .unwrap_or(Err(io::ErrorKind::TimedOut.into()))?;
        // Connecting has set what the route says.
        self.take(&socket);
        Ok(socket)
    }

    /// Through the server.
    async fn ask(
        &self,
        server: SocketAddr,
        destination: &Destination,
        source: Option<SocketAddr>,
        said: Said<'_>,
    ) -> Result<Far, NotOpened> {
        let socket = match self.dial(server).await {
            Ok(socket) => socket,
            Err(error) => {
                let text = format!("cannot connect to the server at {server}: {error}");
                let last = self.last_error.replace(Some(text.clone()));
                if last.as_ref() != Some(&text) {
                    tracing::warn!("{text}");
                }
                return Err(NotOpened::NoServer);
            }
        };
        self.last_error.replace(None);
        // In one segment with OPEN: a lone small one is acknowledged sooner than full ones, and HyStart would take that
        // for the round trip.
        let first = self.first_bytes(said).await?;
        let open = Open::alone(destination.clone(), source);
        let mut owed = Vec::with_capacity(64 + first.len());
        open.encode(&mut owed);
        owed.extend_from_slice(&first);
        // Who waits for the answer before he relays needs it to have left.
        let sent = socket.try_write(&owed).unwrap_or(0);
        Ok(Far {
            open: self.splits.begin(),
            socket,
            owed: Bytes::from(owed).slice(sent..),
            read: Bytes::new(),
            replies: true,
        })
    }

    /// First bytes of the application, if they come soon.
    async fn first_bytes(&self, said: Said<'_>) -> Result<Bytes, NotOpened> {
        let first = match said {
            Said::Soon(first, near) if first.is_empty() => {
                let read = relay::first_bytes(near, self.splits.scratch()).await;
                // The lane finds its end again.
                read.map_err(|_| NotOpened::Application)?.0
            }
            Said::Soon(first, _) | Said::All(first) => first,
        };
        Splits::count(&self.splits.near_in, &first);
        Ok(first)
    }

    /// Straight to the destination.
    async fn connect(&self, destination: &Destination, said: Said<'_>) -> Result<Far, NotOpened> {
        let Host::Ip(address) = destination.host else {
            // Names come from proxies, which need a server (`config/plain.rs`).
            return Err(NotOpened::Code(ReplyCode::NameNotFound));
        };
        let address = SocketAddr::new(address, destination.port);
        let socket = self.dial(address).await.map_err(|error| {
            self.splits.refused.set(self.splits.refused.get() + 1);
            NotOpened::Code(dial::code_of(&error))
        })?;
        let owed = match said {
            Said::Soon(first, _) | Said::All(first) => first,
        };
        Splits::count(&self.splits.near_in, &owed);
        Ok(Far {
            open: self.splits.begin(),
            socket,
            owed,
            read: Bytes::new(),
            replies: false,
        })
    }

    /// No new flows from now on.
    pub(super) fn drain(&self) {
        self.attendance.end();
    }

    pub(super) async fn until_idle(&self) {
        while self.splits.open() + self.waiting.get() + self.attendance.open() > 0 {
            sleep(POLL).await;
        }
    }

    pub(super) fn report(&self) -> StatusReport {
        let up = process::now()
            .saturating_duration_since(self.started)
            .as_secs();
        let session = status::Session {
            tunnel: status::Tunnel {
                state: if self.attendance.is_ending() {
                    TunnelState::Draining
                } else {
                    TunnelState::Ready
                },
                peer: self.config.server.map(|server| server.to_string()),
                since_s: up,
                last_error: self.last_error.borrow().clone(),
                ..status::Tunnel::default()
            },
            flows: status::Flows {
                waiting: self.waiting.get(),
                ..self.splits.flows()
            },
            bytes: self.splits.volumes(),
            ..status::Session::default()
        };
        StatusReport {
            transport: Some(config::Transport::Plain),
            sandbox: sandbox::entered(),
            ..StatusReport::new(self.config.file.clone(), up, Side::Client(session.into()))
        }
    }
}

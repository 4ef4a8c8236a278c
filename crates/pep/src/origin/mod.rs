//! An origin of DSSL (`PROTOCOL.md` §21): a reverse proxy before a web server that knows nothing of it.
//!
//! ```text
//!  terminal ══ dssl/1 ═════► terminal ── requests ──►┐
//!                               │ links              ├──► web server
//!  hub ═══════ dssl-hub/1 ═► hub ── objects, sealed ─►┤
//!  browser ═══ other ══════► ordinary ── bytes ──────►┘
//! ```
//!
//! One port and one certificate; ALPN tells who is there. Who has shown nothing yet is judged by its address (`net/strangers.rs`);
//! later connections have places, which whoever has most gives up to others (`guests.rs`).

mod counts;
mod guests;
mod hub;
mod ordinary;
mod places;
mod reading;
mod reload;
mod sessions;
mod terminal;
mod tls;
mod upstream;
mod web_server;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::server::Acceptor;
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::{sleep, timeout};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use crate::config::{OriginConfig, Role};
use crate::events;
use crate::keys::PublicKey;
use crate::metrics::Metrics;
use crate::net::listen::{accept, listen_each};
use crate::net::strangers::{Stranger, Strangers};
use crate::process::{self, RunError};
use crate::relay::over_tcp::OverTcp as _;
use crate::relay::prepare;
use crate::sandbox::{self, Needs};
use crate::service_manager::ServiceManager;
use crate::status::{OriginCertificate, OriginFigures, OriginWebServer, Side, StatusReport};
use crate::stop::{self, StopSignal};
use counts::{OriginComplaints, OriginCounts, UnlistedHubs, count};
use guests::{GuestPeer, Guests};
use reading::ReadingShares;
use sessions::SealedSessions;
use tls::{Speaker, Speakers};
use web_server::WebServer;

/// Time that a connection has for its handshake, and a terminal for its first words.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time for which a peer may leave sent bytes unacknowledged, and a terminal say nothing.
const SILENT: Duration = Duration::from_secs(60);

/// Objects that one hub fetches at one time, for all its clients.
const MAX_FETCHES: usize = 256;

/// Time for which a stop waits for connections.
const DRAIN: Duration = Duration::from_secs(10);

/// Time between lines about a certificate that is not good, or not for long.
const DAILY: Duration = Duration::from_secs(24 * 60 * 60);

/// Time between lines about what the origin has done.
const REPORT: Duration = Duration::from_secs(600);

/// Has the kernel end a connection whose peer acknowledges nothing, or reads nothing, for [`SILENT`].
fn bound_silence(socket: &TcpStream) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return socket2::SockRef::from(socket).set_tcp_user_timeout(Some(SILENT));
    #[cfg(not(target_os = "linux"))]
    return socket.nodelay().map(drop);
}

/// A running origin.
struct OriginServer {
    config: OriginConfig,
    web: Rc<WebServer>,
    speakers: RefCell<Rc<Speakers>>,
    /// Time at which the certificate was read.
    certified: Cell<Instant>,
    unlisted: Arc<UnlistedHubs>,
    sessions: SealedSessions,
    strangers: Rc<Strangers>,
    guests: Rc<Guests>,
    /// Processor time for links in pages.
    reading: ReadingShares,
    /// Places for fetches of hubs that are connected.
    fetching: RefCell<HashMap<PublicKey, Weak<Semaphore>>>,
    counts: OriginCounts,
    complaints: OriginComplaints,
}

/// Runs the origin until SIGINT or SIGTERM.
///
/// # Errors
/// [`RunError`] says what could not be set up.
pub fn run(config: OriginConfig) -> Result<(), RunError> {
    let unlisted = Arc::new(UnlistedHubs::new());
    let speakers = Speakers::read(&config, &unlisted)?;
    Needs::of_origin(&config).enter()?;
    let runtime = process::runtime()?;
    let origin = Rc::new(OriginServer {
        web: WebServer::new(config.upstream),
        config,
        speakers: RefCell::new(Rc::new(speakers)),
        certified: Cell::new(process::now()),
        unlisted,
        sessions: SealedSessions::default(),
        strangers: Strangers::new(),
        guests: Rc::default(),
        reading: ReadingShares::default(),
        fetching: RefCell::default(),
        counts: OriginCounts::default(),
        complaints: OriginComplaints::new(),
    });
    LocalSet::new().block_on(&runtime, serve(&origin))
}

async fn serve(origin: &Rc<OriginServer>) -> Result<(), RunError> {
    let (config, started) = (&origin.config, process::now());
    let mut tasks: Vec<JoinHandle<()>> = Vec::new();
    for listener in listen_each(&config.listen)? {
        let origin = origin.clone();
        tasks.push(accept(listener, move |socket, peer| {
            origin.admit(socket, peer);
            std::future::ready(())
        }));
    }
    let mut stop = StopSignal::take()?;
    let mut hangup = signal(SignalKind::hangup())?;
    let metrics = Metrics::bind(config.monitoring.metrics.as_ref(), None)?;
    let status = process::status_socket(Role::Origin, config.monitoring.status_socket.as_ref())?;
    process::raise_file_limit();
    sandbox::announce();
    let listening = process::join(&config.listen);
    tracing::info!(
        target: events::STATE,
        "ready: an origin of DSSL on {listening}, before http://{}",
        config.upstream
    );
    let snapshot = || origin.report(started);
    let manager = ServiceManager::find();
    manager.ready();
    tokio::select! {
        () = status.serve(&snapshot) => {}
        () = metrics.serve(&snapshot) => {}
        () = manager.inform(&[], &snapshot) => {}
        () = origin.web.watch() => {}
        () = origin.watch_certificate() => {}
        () = async {
            loop {
                tokio::select! {
                    () = stop.wait() => break,
                    _ = hangup.recv() => {
                        manager.reloading();
                        origin.reload();
                        manager.ready();
                    }
                    () = sleep(REPORT) => origin.tell(),
                }
            }
            stop::tell_of_first(DRAIN);
            manager.stopping(DRAIN);
            tasks.iter().for_each(JoinHandle::abort);
            stop.drain(DRAIN, origin.until_idle()).await;
        } => {}
    }
    origin.tell();
    Ok(())
}

impl OriginServer {
    /// Waits until no guest is left.
    async fn until_idle(&self) {
        while self.guests.len() > 0 {
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// TLS and lists that are in force.
    fn speakers(&self) -> Rc<Speakers> {
        self.speakers.borrow().clone()
    }

    /// Figures for `status`.
    fn figures(&self) -> OriginFigures {
        let now = process::now();
        let age = now.saturating_duration_since(self.certified.get());
        let (fault, lasts) = self.web.fault(now).unzip();
        let (speakers, date) = (self.speakers(), process::since_1970().as_secs());
        let validity = speakers.validity();
        OriginFigures {
            web_server: OriginWebServer {
                address: Some(self.web.address()),
                fault,
                fault_s: lasts.map(|lasts| lasts.as_secs()),
            },
            certificate: OriginCertificate {
                age_s: age.as_secs(),
                expires: validity.expires(),
                left_s: validity.left(date),
                fault: validity.fault(date),
                warning: validity.warning(date),
            },
            connections: self.guests.len() as u64,
            sessions: self.sessions.len() as u64,
            ..self.counts.report(&self.unlisted)
        }
    }

    fn report(&self, started: Instant) -> StatusReport {
        let uptime = process::now().saturating_duration_since(started);
        let side = Side::Origin {
            listen: self.config.listen.to_vec(),
            origin: Box::new(self.figures()),
        };
        StatusReport {
            sandbox: sandbox::entered(),
            events: events::last(),
            ..StatusReport::new(self.config.file.clone(), uptime.as_secs(), side)
        }
    }

    /// Tells the log of a certificate that is not good, or not for long, now and every day.
    async fn watch_certificate(&self) {
        loop {
            self.tell_of_certificate();
            sleep(DAILY).await;
        }
    }

    fn tell_of_certificate(&self) {
        let (speakers, now) = (self.speakers(), process::since_1970().as_secs());
        let validity = speakers.validity();
        if let Some(text) = validity.fault(now).or_else(|| validity.warning(now)) {
            tracing::warn!("{text}");
        }
    }

    /// Tells the log what was done so far.
    fn tell(&self) {
        let figures = self.figures();
        let refused = figures.refused_total.to_string();
        let refused = if refused.is_empty() {
            "nobody"
        } else {
            &refused
        };
        tracing::info!(
            "so far: {figures}; {}; refused: {refused}",
            figures.objects()
        );
    }

    /// Places for fetches of the hub with this key.
    fn fetches_of(&self, key: PublicKey) -> Rc<Semaphore> {
        let mut fetching = self.fetching.borrow_mut();
        if let Some(places) = fetching.get(&key).and_then(Weak::upgrade) {
            return places;
        }
        fetching.retain(|_, places| places.strong_count() > 0);
        let places = Rc::new(Semaphore::new(MAX_FETCHES));
        fetching.insert(key, Rc::downgrade(&places));
        places
    }

    /// Finds out who is there, unless the host or its network has had its share.
    fn admit(self: &Rc<Self>, socket: TcpStream, peer: SocketAddr) {
        if prepare(&socket).is_err() || bound_silence(&socket).is_err() {
            return;
        }
        let origin = self.clone();
        let met = self.strangers.meet(peer, |stranger| async move {
            origin.welcome(socket, peer, stranger).await;
        });
        if !met {
            self.complain("a host begins too many handshakes; its new connections are reset");
        }
    }

    /// Serves a connection to its end.
    async fn welcome(self: Rc<Self>, socket: TcpStream, peer: SocketAddr, stranger: Stranger) {
        let met = timeout(PATIENCE, self.meet(socket)).await;
        let Ok(Ok((speaker, tls))) = met else {
            count(&self.counts.refused.strangers);
            if let Ok(Err(error)) = met {
                tracing::debug!(%peer, "no handshake: {error}");
            }
            return;
        };
        let speakers = self.speakers();
        let from = match &speaker {
            Speaker::Terminal(key) if speakers.is_client(key) => GuestPeer::Client(*key),
            Speaker::Hub(key) if speakers.is_hub(key) => GuestPeer::Hub(*key),
            // It was listed when the handshake began.
            Speaker::Hub(key) => return self.unlisted.note(key),
            Speaker::Terminal(_) | Speaker::Other => GuestPeer::at(peer.ip()),
        };
        match from {
            GuestPeer::Hub(_) | GuestPeer::Client(_) => stranger.prove(),
            // Whoever ends a handshake has cost as much as who does not.
            GuestPeer::Host(_) => drop(stranger),
        }
        let Some(guest) = self.guests.admit(from) else {
            return self.complain("too many connections at one time; new ones are reset");
        };
        tokio::select! {
            () = self.attend((speaker, from), tls) => {}
            () = guest.evicted() => count(&self.counts.refused.displaced),
        }
    }

    /// Serves a peer whose handshake is done.
    async fn attend(
        self: &Rc<Self>,
        (speaker, from): (Speaker, GuestPeer),
        tls: TlsStream<TcpStream>,
    ) {
        match speaker {
            Speaker::Terminal(key) => {
                count(&self.counts.terminals);
                Box::pin(terminal::serve(self, tls, (key, from))).await;
            }
            Speaker::Hub(key) => {
                count(&self.counts.hubs);
                Box::pin(hub::serve(self, tls, key)).await;
            }
            Speaker::Other => {
                count(&self.counts.ordinary);
                Box::pin(ordinary::serve(self, tls)).await;
            }
        }
    }

    /// Counts a session whose hub takes no links, and tells the log.
    fn note_lost(&self) {
        count(&self.counts.refused.slow_hubs);
        if self.complaints.slow.is_due(process::now()) {
            tracing::warn!("a hub takes no links: pages of its session come without objects");
        }
    }

    fn complain(&self, text: &str) {
        count(&self.counts.refused.crowded);
        if self.complaints.crowded.is_due(process::now()) {
            tracing::warn!("{text}");
        }
    }

    /// Completes a handshake, and says who is there.
    async fn meet(&self, socket: TcpStream) -> io::Result<(Speaker, TlsStream<TcpStream>)> {
        let start = LazyConfigAcceptor::new(Acceptor::default(), socket).await?;
        let speakers = self.speakers();
        let config = speakers.answer(&start.client_hello());
        let shaken = start.into_stream(config).into_fallible().await;
        let tls = shaken.map_err(|(error, tcp)| {
            // A hub that is not listed hears so by the alert, which a reset would overtake.
            tcp.close_in_order();
            error
        })?;
        let speaker = speakers.of(tls.get_ref().1)?;
        Ok((speaker, tls))
    }
}

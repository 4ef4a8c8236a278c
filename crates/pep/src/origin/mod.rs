//! An origin of DSSL (`PROTOCOL.md` §21): a reverse proxy before a web server that knows nothing of it.
//!
//! ```text
//!  terminal ══ dssl/1 ═════► terminal ── requests ──►┐
//!                               │ links              ├──► web server
//!  hub ═══════ dssl-hub/1 ═► hub ── objects, sealed ─►┤
//!  browser ═══ other ══════► ordinary ── bytes ──────►┘
//! ```
//!
//! One port and one certificate; ALPN tells who is there. Who has shown nothing yet costs a place among few, for ten seconds at most.

mod hub;
mod ordinary;
mod sessions;
mod terminal;
mod tls;
mod upstream;

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use rustls::server::Acceptor;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::{sleep, timeout};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use crate::config::OriginConfig;
use crate::events;
use crate::net::listen::{accept, listen_each};
use crate::process::{self, RunError};
use crate::relay::prepare;
use crate::sandbox::{self, Needs};
use crate::service_manager::ServiceManager;
use crate::stop::{self, StopSignal};
use crate::throttle::Throttle;
use sessions::SealedSessions;
use tls::{Speaker, Speakers};

/// Time that a connection has for its handshake, and a terminal for its first words.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time for which a peer may leave sent bytes unacknowledged, and a terminal say nothing.
const SILENT: Duration = Duration::from_secs(60);

/// Connections whose handshake is under way.
const MAX_STRANGERS: usize = 256;

/// Connections that have had their handshake.
const MAX_GUESTS: usize = 1024;

/// Time for which a stop waits for connections.
const DRAIN: Duration = Duration::from_secs(10);

/// Time between lines about what the origin has done.
const REPORT: Duration = Duration::from_secs(600);

/// OriginCounts since the origin started.
#[derive(Debug, Default)]
struct OriginCounts {
    terminals: Cell<u64>,
    hubs: Cell<u64>,
    ordinary: Cell<u64>,
    /// Connections that did not come to a handshake's end.
    strangers: Cell<u64>,
    /// Connections for which there was no place.
    crowded: Cell<u64>,
    objects: Cell<u64>,
    /// Hubs that asked for what they may not have.
    refused: Cell<u64>,
}

/// Has the kernel end a connection whose peer acknowledges nothing, or reads nothing, for [`SILENT`].
fn bound_silence(socket: &TcpStream) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return socket2::SockRef::from(socket).set_tcp_user_timeout(Some(SILENT));
    #[cfg(not(target_os = "linux"))]
    return socket.nodelay().map(drop);
}

fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

/// A running origin.
struct OriginServer {
    upstream: SocketAddr,
    speakers: Speakers,
    sessions: SealedSessions,
    strangers: Semaphore,
    guests: Semaphore,
    counts: OriginCounts,
    complaints: Throttle,
}

/// Runs the origin until SIGINT or SIGTERM.
///
/// # Errors
/// [`RunError`] says what could not be set up.
pub fn run(config: &OriginConfig) -> Result<(), RunError> {
    let speakers = Speakers::read(config)?;
    Needs::of_origin(config).enter()?;
    let runtime = process::runtime()?;
    LocalSet::new().block_on(&runtime, serve(config, speakers))
}

async fn serve(config: &OriginConfig, speakers: Speakers) -> Result<(), RunError> {
    let origin = Rc::new(OriginServer {
        upstream: config.upstream,
        speakers,
        sessions: SealedSessions::default(),
        strangers: Semaphore::new(MAX_STRANGERS),
        guests: Semaphore::new(MAX_GUESTS),
        counts: OriginCounts::default(),
        complaints: Throttle::new(),
    });
    let mut tasks: Vec<JoinHandle<()>> = Vec::new();
    for listener in listen_each(&config.listen)? {
        let origin = origin.clone();
        tasks.push(accept(listener, move |socket, peer| {
            origin.clone().take(socket, peer)
        }));
    }
    let mut stop = StopSignal::take()?;
    process::raise_file_limit();
    sandbox::announce();
    let listening = process::join(&config.listen);
    tracing::info!(
        target: events::STATE,
        "ready: an origin of DSSL on {listening}, before http://{}",
        config.upstream
    );
    let manager = ServiceManager::find();
    manager.ready();
    loop {
        tokio::select! {
            () = stop.wait() => break,
            () = sleep(REPORT) => origin.tell(),
        }
    }
    stop::tell_of_first(DRAIN);
    manager.stopping(DRAIN);
    tasks.iter().for_each(JoinHandle::abort);
    stop.drain(DRAIN, origin.until_idle()).await;
    origin.tell();
    Ok(())
}

impl OriginServer {
    /// Waits until no guest is left.
    async fn until_idle(&self) {
        while self.guests.available_permits() < MAX_GUESTS {
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Tells the log what was done so far.
    fn tell(&self) {
        let counts = &self.counts;
        tracing::info!(
            "so far {} connections of terminals, {} of hubs, {} of others; {} objects sealed; {} hubs refused, {} handshakes not completed, \
             {} connections too many",
            counts.terminals.get(),
            counts.hubs.get(),
            counts.ordinary.get(),
            counts.objects.get(),
            counts.refused.get(),
            counts.strangers.get(),
            counts.crowded.get(),
        );
    }

    /// Serves a connection to its end.
    async fn take(self: Rc<Self>, socket: TcpStream, peer: SocketAddr) {
        if prepare(&socket).is_err() || bound_silence(&socket).is_err() {
            return;
        }
        let Ok(place) = self.strangers.try_acquire() else {
            return self.complain("too many handshakes at one time; new connections are reset");
        };
        let met = timeout(PATIENCE, self.meet(socket)).await;
        drop(place);
        let Ok(Ok((speaker, tls))) = met else {
            count(&self.counts.strangers);
            if let Ok(Err(error)) = met {
                tracing::debug!(%peer, "no handshake: {error}");
            }
            return;
        };
        let Ok(_guest) = self.guests.try_acquire() else {
            return self.complain("too many connections at one time; new ones are reset");
        };
        match speaker {
            Speaker::Terminal(listed) => {
                count(&self.counts.terminals);
                Box::pin(terminal::serve(&self, tls, listed)).await;
            }
            Speaker::Hub(key) => {
                count(&self.counts.hubs);
                Box::pin(hub::serve(&self, tls, key)).await;
            }
            Speaker::Other => {
                count(&self.counts.ordinary);
                Box::pin(ordinary::serve(&self, tls)).await;
            }
        }
    }

    fn complain(&self, text: &str) {
        count(&self.counts.crowded);
        if self.complaints.is_due(process::now()) {
            tracing::warn!("{text}");
        }
    }

    /// Completes a handshake, and says who is there.
    async fn meet(&self, socket: TcpStream) -> io::Result<(Speaker, TlsStream<TcpStream>)> {
        let start = LazyConfigAcceptor::new(Acceptor::default(), socket).await?;
        let config = self.speakers.answer(&start.client_hello());
        let tls = start.into_stream(config).await?;
        let speaker = self.speakers.of(tls.get_ref().1)?;
        Ok((speaker, tls))
    }
}

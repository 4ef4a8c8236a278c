//! A running client: front ends, what asks for its figures, and the way it stops.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bentpipe_tunnel::engine::{ConnectionNotice, Event};
use bentpipe_tunnel::transport::{MemoryPool, TunnelEvent};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::frontend::{Dns, FrontEnds};
use super::{Carrier, Session};
use crate::config::written::Written;
use crate::config::{ClientConfig, ClientFile, Role};
use crate::events;
use crate::metrics::Metrics;
use crate::page::PageServer;
use crate::process::{self, RunError};
use crate::reload::tell_of_reload;
use crate::sandbox;
use crate::service_manager::ServiceManager;
use crate::shard::{Driver, PulseView};
use crate::status::{Measured, Memory, Side, StatusReport, StatusSocket};
use crate::stop::{self, StopSignal};

/// A client whose rules are in force.
pub(super) struct Running {
    config: Rc<ClientConfig>,
    session: Rc<Session>,
    front_ends: FrontEnds,
    dns: Option<Rc<Dns>>,
    pool: Arc<MemoryPool>,
    started: Instant,
    orders: ClientOrders,
}

/// Source of signals, and of questions for figures.
struct ClientOrders {
    stop: StopSignal,
    hangup: Signal,
    metrics: Metrics,
    page: PageServer,
    status: StatusSocket,
}

impl ClientOrders {
    fn take(config: &ClientConfig, session: &Session) -> Result<Self, RunError> {
        let monitoring = &config.monitoring;
        // Signals first: whoever sees the status socket may send them, and ask for metrics.
        Ok(Self {
            stop: StopSignal::take()?,
            hangup: signal(SignalKind::hangup())?,
            metrics: Metrics::bind(monitoring.metrics.as_ref(), session.first_byte().cloned())?,
            page: PageServer::bind(monitoring.page.as_ref())?,
            status: process::status_socket(Role::Client, monitoring.status_socket.as_ref())?,
        })
    }
}

impl Running {
    /// Opens the front ends, and enters the sandbox.
    pub(super) fn start(
        config: Rc<ClientConfig>,
        session: Rc<Session>,
        pool: Arc<MemoryPool>,
    ) -> Result<Self, RunError> {
        let started = process::now();
        let orders = ClientOrders::take(&config, &session)?;
        let carrier = Carrier::of(&session);
        let front_ends = FrontEnds::start(&config.front, &carrier, config.dns.as_ref())?;
        process::raise_file_limit();
        sandbox::announce();
        Ok(Self {
            dns: front_ends.dns(),
            config,
            session,
            front_ends,
            pool,
            started,
            orders,
        })
    }

    /// Serves until the operator stops the client, and then lets flows end.
    pub(super) async fn serve(self, driver: Driver, pulse: &PulseView) -> Result<(), RunError> {
        let Self {
            config,
            session,
            front_ends,
            dns,
            pool,
            started,
            orders,
        } = self;
        let ClientOrders {
            mut stop,
            mut hangup,
            metrics,
            page,
            status,
        } = orders;
        let figures = Figures {
            config: &config,
            session: &session,
            front_ends: &front_ends,
            dns: dns.as_ref(),
            pool: &pool,
            started,
        };
        let snapshot = || figures.report();
        // Rules are in force from here on; the tunnel may take as long as the link does.
        let manager = ServiceManager::find();
        manager.ready();
        let rtt = Cell::new(Duration::ZERO);
        let ended = tokio::select! {
            ended = driver.run(|event| on_event(&session, dns.as_ref(), event)) => ended,
            () = session.keep_up() => Ok(()),
            () = session.sample() => Ok(()),
            () = session.watch_allowance() => Ok(()),
            ended = session.packet_road().carry() => ended,
            () = session.follow_assigned() => Ok(()),
            () = session.keep_wires() => Ok(()),
            () = session.paths().keep() => Ok(()),
            () = status.serve(&snapshot) => Ok(()),
            () = metrics.serve(&snapshot) => Ok(()),
            () = page.serve(&snapshot) => Ok(()),
            () = manager.inform(std::slice::from_ref(pulse), &snapshot) => Ok(()),
            () = async {
                until_stopped(&mut stop, &mut hangup, &config.file, Some(&session)).await;
                stop::tell_of_first(config.drain_timeout);
                manager.stopping(config.drain_timeout);
                front_ends.drain().await;
                session.drain();
                let ended = async {
                    session.until_idle().await;
                    front_ends.until_delivered().await;
                };
                stop.drain(config.drain_timeout, ended).await;
                session.close();
                rtt.set(process::flush(session.shard()).await);
            } => Ok(()),
        };
        session.paths().write();
        if let Err(error) = ended {
            let fault = RunError::Io(error);
            front_ends.leave(&fault);
            return Err(fault);
        }
        let stopped = front_ends.stop();
        // A flush ends with the server's first answer; others may be on their way.
        tokio::time::sleep((rtt.get() * 2).min(process::MAX_LINGER)).await;
        stopped
    }
}

/// Hands the engine's news to the part of the client that they are for.
fn on_event(session: &Session, dns: Option<&Rc<Dns>>, event: Event) {
    match (event.notice, dns) {
        (ConnectionNotice::Tunnel(TunnelEvent::Answer(query, message)), Some(dns)) => {
            dns.on_answer(event.connection, query, message);
        }
        (ConnectionNotice::Tunnel(TunnelEvent::Inbound(flow, inbound)), _) => {
            session
                .published()
                .on_inbound(event.connection, flow, &inbound);
        }
        (notice, _) => session.on_event(Event { notice, ..event }),
    }
}

/// Parts of a client that have figures.
struct Figures<'a> {
    config: &'a ClientConfig,
    session: &'a Session,
    front_ends: &'a FrontEnds,
    dns: Option<&'a Rc<Dns>>,
    pool: &'a MemoryPool,
    started: Instant,
}

impl Figures<'_> {
    fn report(&self) -> StatusReport {
        let mut session = self.session.status();
        session.dns = self.dns.map(|dns| dns.status());
        session.measured = Measured::load(&self.config.state_dir);
        let uptime = process::now().saturating_duration_since(self.started);
        StatusReport {
            sandbox: sandbox::entered(),
            rules: self.front_ends.rules(),
            all_tunnels_memory: Some(Memory::of(self.pool)),
            kernel: self.front_ends.kernel(),
            events: events::last(),
            ..StatusReport::new(
                self.config.file.clone(),
                uptime.as_secs(),
                Side::Client(session.into()),
            )
        }
    }
}

/// Until the client is to stop. A reload takes over the PEPs of LES, and says what a restart would change; the signal's default
/// action would be death.
pub(super) async fn until_stopped(
    stop: &mut StopSignal,
    hangup: &mut Signal,
    file: &Path,
    session: Option<&Session>,
) {
    let started = Written::read(file);
    loop {
        tokio::select! {
            () = stop.wait() => return,
            Some(()) = hangup.recv() => reload(&started, file, session),
        }
    }
}

fn reload(started: &Written, file: &Path, session: Option<&Session>) {
    let fresh = match ClientFile::load(file) {
        Ok(fresh) => fresh,
        Err(error) => {
            tracing::error!("nothing was reloaded, and the client would not start again: {error}");
            return;
        }
    };
    let taken = session.and_then(|session| session.reload(&fresh));
    let mut changed = started.changes(&Written::read(file));
    if session.is_some_and(|session| session.packet_road().les().is_some()) {
        changed.retain(|key| key != "les.pep");
    }
    tell_of_reload(file, taken, &changed, "the client");
}

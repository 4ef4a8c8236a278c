//! An operator's PEP: relays TCP segments between the hosts of its own side and another PEP across the link.
//!
//! ```text
//!   hosts ══ lan ══► rules ─► device ─► SegmentIntake ─► SegmentRelays ─ a stream per flow ─► PeerLink ══ tunnel ══ the other PEP
//!   hosts ◄═ lan ═══ kernel ◄─ device ◄──┴─ untouched ─┴─ segments in the other end's name
//!   the same for what comes from the side of the other PEP
//! ```
//!
//! What is done with a segment is decided in crate `segments`. Here are the devices through which the kernel leads packets
//! (`devices.rs`, `rules.rs`), the tunnel to the other PEP (`link.rs`), and what joins both (`relays.rs`). Whatever is missing,
//! the tunnel, room, a key or this process, packets pass as without a PEP.

mod counts;
mod devices;
mod intake;
mod journal;
mod kept;
mod keys;
mod les;
mod link;
mod redial;
mod relays;
mod rules;
mod setup;
mod silence;
mod surroundings;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bentpipe_sealed::les::Pair;
use bentpipe_segments::Side as End;
use bytes::Bytes;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::LocalSet;
use tokio::time::{interval, sleep_until};

use crate::config::written::Written;
use crate::config::{MeetingPlace, PepConfig, Role};
use crate::events;
use crate::keys as files;
use crate::metrics::Metrics;
use crate::page::PageServer;
use crate::process::{self, Diagnosis, RunError};
use crate::qlog::Qlog;
use crate::reload::tell_of_reload;
use crate::sandbox::{self, Needs};
use crate::service_manager::ServiceManager;
use crate::shard::{Driver, PulseView, Shard};
use crate::status::{self, Memory, PepSide, Side, StatusReport};
use crate::stop::{self, StopSignal};
use bentpipe_tunnel::engine::{ConnectionNotice, Event};
use bentpipe_tunnel::transport::{MemoryPool, TunnelEvent};

pub(crate) use rules::trial;
pub(crate) use surroundings::{closed_chains, forwarding, mend};

use devices::Devices;
use intake::SegmentIntake;
use journal::{Journal, JournalFile};
use keys::ClientKeys;
use les::{HeaderKeys, NoKeys};
use link::{PeerLink, PeerNews};
use relays::SegmentRelays;
use rules::PepRules;
use setup::{bounds, engine, setup, socket};

/// Runs the PEP until SIGINT or SIGTERM.
///
/// # Errors
/// [`RunError`] says what could not be set up, or that a device was taken away; another PEP that cannot be reached is no error.
pub fn run(config: PepConfig, diagnosis: &Diagnosis) -> Result<(), RunError> {
    let key = files::read(&config.identity.private_key_file).map_err(RunError::key)?;
    let key_log = process::open_key_log(diagnosis.key_log.as_deref())?;
    let qlog = Qlog::open(diagnosis.qlog.as_deref(), Role::Pep)?;
    Needs::of_pep(&config, diagnosis).enter()?;
    let runtime = process::runtime()?;
    let config = Rc::new(config);
    LocalSet::new().block_on(&runtime, async move {
        let memory = process::total_memory(config.limits.total_memory);
        let pool = Arc::new(MemoryPool::new(memory / 2));
        let socket = socket(&config)?;
        let dual_stack = socket.local_addr()?.is_ipv6();
        let setup = match &config.peer.meeting {
            MeetingPlace::Here(_) => Some(setup(&config, &key, key_log.clone())?),
            MeetingPlace::There(_) => None,
        };
        let mut engine = engine(&config, &key, setup, &pool);
        if let Some(qlog) = qlog {
            qlog.follow(&mut engine);
        }
        let shard = Shard::new(engine);
        let (driver, pulse) = Driver::of_only_shard(shard.clone(), socket)?;
        let link = PeerLink::new(config.clone(), &key, key_log, (shard.clone(), dual_stack))?;
        let layered = config.les.as_ref();
        let keys = layered.map(|les| ClientKeys::open(les, &key, config.identity.allow_classical));
        let pep = Pep::start(config.clone(), (shard, link), keys.transpose()?, memory / 2)?;
        pep.serve(driver, &pulse, &pool).await
    })
}

/// A running PEP.
struct Pep {
    config: Rc<PepConfig>,
    link: PeerLink,
    devices: Devices,
    relays: RefCell<SegmentRelays>,
    intake: RefCell<SegmentIntake>,
    /// Timers of relays may have changed.
    changed: Notify,
    rules: PepRules,
    /// Keys of headers that clients of LES hand over, if there are any.
    keys: Option<ClientKeys>,
}

impl Pep {
    /// Makes the devices and leads packets into them; relays may hold `memory` bytes, and open packets of LES with `keys`.
    fn start(
        config: Rc<PepConfig>,
        (shard, link): (Rc<Shard>, PeerLink),
        keys: Option<ClientKeys>,
        memory: u64,
    ) -> Result<Rc<Self>, RunError> {
        let privilege = |error| RunError::privilege(&config.sides.place, &error);
        // Before the journal, which a PEP that already runs goes on writing: a second one ends here.
        let devices = Devices::create().map_err(privilege)?;
        let journal = Journal::load(
            JournalFile::new(config.state_dir.join("pep-flows")),
            process::now(),
        );
        // Each form has a table of its own.
        let forms = u64::from(config.clear.is_some()) + u64::from(config.les.is_some());
        let bounds = bounds(&config, memory / forms.max(1));
        let rules = PepRules::install(&config).map_err(privilege)?;
        let granted: Box<dyn HeaderKeys> = match &keys {
            Some(keys) => Box::new(keys.granted()),
            None => Box::new(NoKeys),
        };
        Ok(Rc::new(Self {
            relays: RefCell::new(SegmentRelays::new(shard, bounds, journal, granted)),
            keys,
            intake: RefCell::new(SegmentIntake::new(&config)),
            link,
            devices,
            changed: Notify::new(),
            rules,
            config,
        }))
    }

    async fn serve(
        self: Rc<Self>,
        driver: Driver,
        pulse: &PulseView,
        pool: &MemoryPool,
    ) -> Result<(), RunError> {
        let started = process::now();
        let mut stop = StopSignal::take()?;
        let mut hangup = signal(SignalKind::hangup())?;
        let monitoring = &self.config.monitoring;
        let metrics = Metrics::bind(monitoring.metrics.as_ref(), None)?;
        let page = PageServer::bind(monitoring.page.as_ref())?;
        let status = process::status_socket(Role::Pep, monitoring.status_socket.as_ref())?;
        process::raise_file_limit();
        sandbox::announce();
        let snapshot = || self.report(started, pool);
        let manager = ServiceManager::find();
        manager.ready();
        tracing::info!(
            target: events::STATE,
            "ready: between {} and {}",
            process::join(&self.config.sides.lan),
            process::join(&self.config.sides.wan)
        );
        tokio::select! {
            result = driver.run(|event| self.on_event(event)) => result?,
            result = self.take_in(End::Lan) => result?,
            result = self.take_in(End::Wan) => result?,
            result = self.take_keys() => result?,
            () = self.keep_time() => {}
            () = self.link.keep_up() => {}
            () = self.tick() => {}
            () = self.link.paths().keep() => {}
            () = status.serve(&snapshot) => {}
            () = metrics.serve(&snapshot) => {}
            () = page.serve(&snapshot) => {}
            () = manager.inform(std::slice::from_ref(pulse), &snapshot) => {}
            () = async {
                let written = Written::read(&self.config.file);
                loop {
                    tokio::select! {
                        () = stop.wait() => break,
                        _ = hangup.recv() => self.reload(&written),
                    }
                }
                stop::tell_of_first(self.config.drain_timeout);
                manager.stopping(self.config.drain_timeout);
                self.drain(&mut stop).await;
            } => {}
        }
        self.link.paths().write();
        Ok(())
    }

    /// Lets relayed flows end, and resets those that do not.
    async fn drain(&self, stop: &mut StopSignal) {
        self.relays.borrow_mut().drain();
        self.link.drain();
        // The last words of a flow are the tunnel's for a while after the flow has ended.
        let relayed = || self.relays.borrow().active() as u64;
        let idle = process::until_idle(self.link.shard(), relayed);
        stop.drain(self.config.drain_timeout, idle).await;
        self.act(|relays, now| relays.give_up(now));
        // Who is reset is asked first, and answers: packets are taken in meanwhile.
        tokio::time::sleep(rules::LAST_WORDS).await;
        self.rules.remove();
        self.relays.borrow_mut().close();
        if let Some(keys) = &self.keys {
            keys.close();
        }
        self.link.close();
        process::flush(self.link.shard()).await;
    }

    /// Takes packets from the device of what comes from `side`; never ends but with an error.
    async fn take_in(&self, side: End) -> std::io::Result<()> {
        loop {
            let packets = self.devices.read(side).await?;
            self.act(|relays, now| {
                let mut intake = self.intake.borrow_mut();
                packets
                    .into_iter()
                    .for_each(|packet| intake.take(now, side, packet, relays));
            });
            // The tunnel and the other device have their turn, however fast packets come.
            tokio::task::yield_now().await;
        }
    }

    /// Takes keys of headers from clients; never ends but with an error.
    async fn take_keys(&self) -> std::io::Result<()> {
        match &self.keys {
            Some(keys) => keys.serve(|pair| self.withdraw(&pair)).await,
            None => std::future::pending().await,
        }
    }

    /// Resets what cannot be written to its ends any more once the keys are erased.
    fn withdraw(&self, pair: &Pair) {
        self.act(|relays, now| relays.withdraw(now, &pair.scope()));
    }

    /// Reads the list of clients again, and says what else of the file has changed since the PEP `started` with it.
    fn reload(&self, started: &Written) {
        let file = &self.config.file;
        let fresh = match PepConfig::load(file) {
            Ok(fresh) => fresh,
            Err(fault) => {
                tracing::error!("nothing was reloaded, and the PEP would not start again: {fault}");
                return;
            }
        };
        let mut changed = started.changes(&Written::read(file));
        let taken = fresh.les.zip(self.keys.as_ref()).map(|(les, keys)| {
            changed.retain(|key| key != "les.clients");
            let count = les.clients.len() as u64;
            keys.list(les.clients, |pair| self.withdraw(&pair));
            format!("{} of [les]", status::quantity(count, "client"))
        });
        tell_of_reload(file, taken, &changed, "the PEP");
    }

    /// Has relays act, and hands on what they send.
    fn act(&self, act: impl FnOnce(&mut SegmentRelays, Instant)) {
        let now = process::now();
        let mut relays = self.relays.borrow_mut();
        act(&mut relays, now);
        relays.serve(now);
        let out: Vec<(End, Bytes)> = relays.take_out();
        drop(relays);
        self.devices.write(out);
        self.changed.notify_one();
    }

    /// Takes the engine's news.
    fn on_event(&self, event: Event) {
        let id = event.connection;
        match &event.notice {
            ConnectionNotice::Tunnel(TunnelEvent::Segments(flow)) => {
                let place = (id, *flow);
                self.act(|relays, now| relays.on_opened(now, place));
            }
            ConnectionNotice::Tunnel(TunnelEvent::Flow(flow)) => {
                let place = (id, *flow);
                self.act(|relays, now| relays.on_news(now, place));
            }
            _ => {}
        }
        match self.link.on_event(event) {
            PeerNews::None => {}
            PeerNews::Up => self.relays.borrow_mut().set_tunnel(self.link.tunnel()),
            PeerNews::Lost(lost) => {
                self.relays.borrow_mut().set_tunnel(self.link.tunnel());
                self.act(|relays, now| relays.on_lost(now, lost));
            }
        }
    }

    /// Has relays act when their timers run out; never ends.
    async fn keep_time(&self) {
        loop {
            let due = self.relays.borrow().poll_timeout();
            let timer = async {
                match due {
                    Some(due) => sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = timer => self.act(SegmentRelays::handle_timeout),
                () = self.changed.notified() => {}
            }
        }
    }

    /// Looks at what changes slowly, once a second; never ends.
    async fn tick(&self) {
        let mut tick = interval(Duration::from_secs(1));
        loop {
            tick.tick().await;
            self.link.shard().share_memory();
            self.link.learn();
            if let Some(since) = self.link.attend() {
                self.act(|relays, now| relays.drop_unheard(now, since));
            }
            self.act(SegmentRelays::tick);
            if let Some(keys) = &self.keys {
                keys.tick(|pair| self.withdraw(&pair));
            }
        }
    }

    /// Reasons why hosts reach each other less, or flows are relayed less, than they could be.
    fn reasons(&self) -> Vec<String> {
        let mut reasons = self.rules.lacks();
        reasons.extend(self.relays.borrow().lack());
        reasons
    }

    fn report(&self, started: Instant, pool: &MemoryPool) -> StatusReport {
        let uptime = process::now().saturating_duration_since(started);
        let listen = match &self.config.peer.meeting {
            MeetingPlace::Here(address) => Some(**address),
            MeetingPlace::There(_) => None,
        };
        let passed = self.intake.borrow().counts();
        let side = PepSide {
            listen,
            session: self.link.report(),
            reasons: self.reasons(),
            segments: self.relays.borrow().report(passed),
            keys: self.keys.as_ref().map(ClientKeys::report),
        };
        StatusReport {
            sandbox: sandbox::entered(),
            all_tunnels_memory: Some(Memory::of(pool)),
            events: events::last(),
            kernel: self.rules.repairs(),
            ..StatusReport::new(
                self.config.file.clone(),
                uptime.as_secs(),
                Side::Pep(Box::new(side)),
            )
        }
    }
}

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
mod granted;
mod intake;
mod journal;
mod les;
mod link;
mod redial;
mod relays;
mod rules;

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bentpipe_proto::tunnel::{Forward, Hello, VERSION, capability};
use bentpipe_segments::{Bounds, Side as End};
use bentpipe_units::Seed;
use bytes::Bytes;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::LocalSet;
use tokio::time::{interval, sleep_until};

use crate::config::{MeetingPlace, PepConfig, Placed, Role};
use crate::events;
use crate::keys::{self, PrivateKey, PublicKey};
use crate::les_keys::{KeyDoor, KeyEvent};
use crate::metrics::Metrics;
use crate::page::PageServer;
use crate::process::{self, Diagnosis, RunError};
use crate::qlog::Qlog;
use crate::sandbox::{self, Needs};
use crate::service_manager::ServiceManager;
use crate::shard::{Driver, Pulse, PulseView, Shard};
use crate::status::{Memory, PepSide, Side, StatusReport};
use crate::stop::{self, StopSignal};
use bentpipe_tunnel::engine::identity;
use bentpipe_tunnel::engine::{ConnectionNotice, Engine, EngineConfig, Event, ServerSetup, Wishes};
use bentpipe_tunnel::transport::{MemoryPool, TunnelEvent};

use devices::Devices;
use granted::GrantedKeys;
use intake::SegmentIntake;
use journal::{Journal, JournalFile};
use les::{HeaderKeys, NoKeys};
use link::{PeerLink, PeerNews};
use relays::SegmentRelays;
use rules::PepRules;

/// First credit of a stream, announced before anything is known of the path, in bytes.
const INITIAL_CREDIT: u64 = 1 << 20;

/// Flows that are known besides those that are relayed, for each of these.
const KNOWN: usize = 8;

/// Runs the PEP until SIGINT or SIGTERM.
///
/// # Errors
/// [`RunError`] says what could not be set up, or that a device was taken away; another PEP that cannot be reached is no error.
pub fn run(config: PepConfig, diagnosis: &Diagnosis) -> Result<(), RunError> {
    let key = keys::read(&config.identity.private_key_file).map_err(RunError::key)?;
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
            engine.trace_with(Box::new(move |now| qlog.trace(now)));
        }
        let shard = Shard::new(engine);
        let driver_pulse = Pulse::default();
        let pulse = driver_pulse.view();
        let mut driver = Driver::new(shard.clone(), socket, None, driver_pulse)?;
        driver.hear_failures();
        let link = PeerLink::new(config.clone(), &key, key_log, (shard.clone(), dual_stack))?;
        let door = door(&config, &key)?;
        let pep = Pep::start(config, (shard, link), door, memory / 2)?;
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
    /// Door at which clients of LES hand over keys of headers, if there are any.
    door: Option<Rc<KeyDoor>>,
}

impl Pep {
    /// Makes the devices and leads packets into them; relays may hold `memory` bytes, and open packets of LES with keys of `door`.
    fn start(
        config: Rc<PepConfig>,
        (shard, link): (Rc<Shard>, PeerLink),
        door: Option<Rc<KeyDoor>>,
        memory: u64,
    ) -> Result<Rc<Self>, RunError> {
        let privilege = |error| RunError::privilege(&config.sides.place, &error);
        let journal = Journal::load(
            JournalFile::new(config.state_dir.join("pep-flows")),
            process::since_1970(),
        );
        let bounds = bounds(&config, memory);
        let devices = Devices::create().map_err(privilege)?;
        let rules = PepRules::install(&config).map_err(privilege)?;
        let keys: Box<dyn HeaderKeys> = match &door {
            Some(door) => Box::new(GrantedKeys::new(door.clone())),
            None => Box::new(NoKeys),
        };
        Ok(Rc::new(Self {
            relays: RefCell::new(SegmentRelays::new(shard, bounds, journal, keys)),
            door,
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
                loop {
                    tokio::select! {
                        () = stop.wait() => break,
                        _ = hangup.recv() => tracing::warn!("nothing is reloaded: a PEP reads its file at the start alone; restart it"),
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
        let idle = async {
            while self.relays.borrow().active() > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        stop.drain(self.config.drain_timeout, idle).await;
        self.act(|relays, now| relays.give_up(now));
        // Who is reset is asked first, and answers.
        tokio::time::sleep(rules::LAST_WORDS).await;
        self.rules.remove();
        if let Some(door) = &self.door {
            door.close();
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
        let Some(door) = &self.door else {
            return std::future::pending().await;
        };
        door.serve(|event| self.on_key_event(event)).await
    }

    fn on_key_event(&self, event: KeyEvent) {
        // Bytes that were acknowledged can be written to their ends no more once the key is erased.
        if let KeyEvent::Withdrawn(pair) = event {
            self.act(|relays, now| relays.withdraw(now, &pair.scope()));
        }
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
            self.relays.borrow_mut().tick(process::since_1970());
        }
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
            segments: self.relays.borrow().report(passed),
        };
        StatusReport {
            sandbox: sandbox::entered(),
            all_tunnels_memory: Some(Memory::of(pool)),
            events: events::last(),
            ..StatusReport::new(
                self.config.file.clone(),
                uptime.as_secs(),
                Side::Pep(Box::new(side)),
            )
        }
    }
}

/// Bounds of the relays, which may hold `memory` bytes.
fn bounds(config: &PepConfig, memory: u64) -> Bounds {
    let room = usize::try_from(config.limits.flow_memory.as_u64()).unwrap_or(usize::MAX);
    let fit = usize::try_from(memory / 2).unwrap_or(usize::MAX) / room.max(1);
    let wanted = usize::try_from(config.limits.flows).unwrap_or(usize::MAX);
    if fit < wanted {
        tracing::info!(
            "memory for {fit} flows, of {wanted}: more pass untouched; lower `flow_memory` or raise `total_memory` of `[limits]`"
        );
    }
    let relayed = wanted.min(fit).max(1);
    Bounds {
        known: relayed.saturating_mul(KNOWN),
        relayed,
        room,
    }
}

/// Socket at which this PEP waits for the other one, or by which it connects.
fn socket(config: &PepConfig) -> Result<UdpSocket, RunError> {
    match &config.peer.meeting {
        MeetingPlace::Here(address) => bound(address),
        MeetingPlace::There(_) => {
            let any = open(([0_u16; 8], 0).into());
            Ok(any.or_else(|_| open(([0, 0, 0, 0], 0).into()))?)
        }
    }
}

/// UDP socket at an address of the file; `[::]` is for both families.
fn bound(address: &Placed<SocketAddr>) -> Result<UdpSocket, RunError> {
    let either = open(**address).or_else(|error| match address.ip().is_unspecified() {
        // A kernel without IPv6.
        true => open((Ipv4Addr::UNSPECIFIED, address.port()).into()),
        false => Err(error),
    });
    either.map_err(|source| RunError::Bind {
        place: address.place.clone(),
        address: **address,
        what: "UDP",
        source,
    })
}

fn open(address: SocketAddr) -> std::io::Result<UdpSocket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    process::widen(&socket);
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Door at which clients of LES hand over keys of headers, if the file has some.
fn door(config: &PepConfig, key: &PrivateKey) -> Result<Option<Rc<KeyDoor>>, RunError> {
    let Some(les) = &config.les else {
        return Ok(None);
    };
    let clients = les.clients.clone();
    let accepts = Arc::new(move |key: &PublicKey| clients.contains(key));
    let socket = bound(&les.listen)?;
    KeyDoor::open(socket, key, accepts, config.identity.allow_classical)
        .map(|door| Some(Rc::new(door)))
}

fn setup(
    config: &PepConfig,
    key: &PrivateKey,
    key_log: Option<Arc<dyn rustls::KeyLog>>,
) -> Result<ServerSetup, RunError> {
    let peer = config.peer.public_key;
    let crypto = identity::server_crypto(
        key,
        Arc::new(move |shown| *shown == peer),
        config.identity.allow_classical,
        key_log,
    );
    Ok(ServerSetup {
        crypto: crypto.map_err(RunError::key)?,
        token_key: identity::token_key(key),
    })
}

fn engine(
    config: &PepConfig,
    key: &PrivateKey,
    setup: Option<ServerSetup>,
    pool: &Arc<MemoryPool>,
) -> Engine {
    // Each PEP has its own file and sets its own direction: `return` as at a client that connects, `forward` as a server's.
    let (own, other) = match setup {
        None => (&config.link.return_link, &config.link.forward),
        Some(_) => (&config.link.forward, &config.link.return_link),
    };
    Engine::new(EngineConfig {
        reset_key: identity::reset_key(key),
        shard: setup.as_ref().map(|_| 0),
        hello: Hello {
            version: VERSION,
            agent: process::agent(),
            instance: process::random_u64() >> 2,
            forward: match setup {
                None => Forward {
                    controller: other.controller.map(|kind| kind.name().to_owned()),
                    max_rate: other.max_rate,
                    initial_window: other.initial_window,
                    rate: other.rate,
                    fec: other.fec,
                },
                Some(_) => Forward::default(),
            },
            initial_credit: INITIAL_CREDIT,
            max_flows: config.limits.flows.into(),
            capabilities: capability::SEGMENTS,
            return_controller: Some(own.controller.unwrap_or_default().name().to_owned()),
            ..Hello::default()
        },
        server: setup,
        memory: pool.ceiling(),
        pool: pool.clone(),
        wishes: Wishes {
            controller: own.controller.unwrap_or_default(),
            initial_window: own.initial_window,
            max_rate: own.max_rate,
            rate: own.rate,
            ack_packets: own.ack_ratio(),
            fec: own.fec.unwrap_or_default(),
        },
        seed: Seed::new(process::random_u64()),
        deterministic: false,
    })
}

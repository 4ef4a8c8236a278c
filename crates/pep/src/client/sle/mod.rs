//! Flows that are sealed beside the tunnel (SLE, `PROTOCOL.md` §18): keys by the tunnel, bytes by a TCP connection each, so that
//! an operator's proxies can split it.
//!
//! ```text
//!   tunnel ready ─► Association: exporter, epochs ─► keys of one connection ─► SealedFlow ══ TCP ══ server
//! ```
//!
//! A flow that cannot be sealed goes through the tunnel, unless bytes of it may have reached its destination: then its
//! application is reset.

mod outer;
mod trust;
mod ways;

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bentpipe_proto::tunnel::{Destination, EpochRandom, FlowId, Host, Open, Reply, ReplyCode};
use bentpipe_sealed::Exporter;
use bentpipe_sealed::sle::{Conn, EXPORTER, Keys, Offers};
use bytes::Bytes;
use ipnet::IpNet;
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::task::spawn_local;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::connections::Attempt;
use super::tunnels::Tunnels;
use crate::config::ClientSle;
use crate::process;
use crate::relay::{Outcome, SealedFlow};
use crate::sle_traffic::{SleMemory, SleTraffic};
use crate::status;
use bentpipe_tunnel::engine::{Connection, ConnectionId};
pub(super) use outer::OuterSocket;
use outer::{NotThere, OuterTarget};
use ways::{OuterWay, Pause, TriedWays, WayKind};

/// Time after which a flow without an answer speaks against its way, if no other was answered meanwhile: more than a server
/// takes for a name and a destination that are dead.
const SLOW: Duration = Duration::from_secs(15);

/// Time from one epoch to the next.
const EPOCH: Duration = Duration::from_secs(3600);

/// Flows of a client that are sealed beside its tunnel.
pub(crate) struct Sealing {
    config: ClientSle,
    tunnels: Rc<Tunnels>,
    /// Mark of our own sockets, where this machine's traffic is intercepted.
    mark: Option<u32>,
    association: RefCell<Option<Association>>,
    ways: RefCell<TriedWays>,
    /// Lacks of the server that are in the log.
    lacking_told: Cell<Option<Lacks>>,
    /// Last failure after which all flows of a kind went through the tunnel, until a way of that kind is answered.
    paused: RefCell<Option<Paused>>,
    traffic: Arc<SleTraffic>,
    /// Ends all flows at once, those as well that look only later.
    cut: watch::Sender<()>,
}

/// Lacks of a server, as far as flows are to be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lacks {
    /// Sealed flows at all.
    All,
    /// Connections to the flows' own destinations, which this client would make.
    Intake,
}

impl Lacks {
    /// Text about it for `status`.
    const fn text(self) -> &'static str {
        match self {
            Self::All => "the server seals no flows: they go through the tunnel",
            Self::Intake => {
                "the server takes in no connections on their way: flows go to its own port"
            }
        }
    }
}

/// Time for which flows go through the tunnel, and why.
struct Paused {
    kind: WayKind,
    until: Instant,
    why: String,
}

/// What one tunnel has agreed on.
struct Association {
    tunnel: ConnectionId,
    /// Address of the server for outer connections, if it has one.
    server: Option<SocketAddr>,
    /// Prefixes to whose addresses outer connections may go.
    prefixes: Vec<IpNet>,
    exporter: Exporter,
    offers: Offers,
    epoch: u16,
    begun: Instant,
    /// Random bytes of the next epoch, which the server has not confirmed yet.
    next: Option<EpochRandom>,
}

impl Association {
    /// The agreement of a tunnel that is ready; `None` if its server seals nothing.
    fn of(attempt: &Attempt, connection: &mut Connection, now: Instant) -> Option<Self> {
        let (id, port) = connection.tunnel.agreement().sle_offered()?;
        let random = connection.tunnel.agreement_mut().take_sle_random()?;
        let exporter = Exporter::new(connection.exporter(EXPORTER, &[])?);
        let prefixes = connection.tunnel.agreement().sle_prefixes().to_vec();
        (port != 0 || !prefixes.is_empty()).then(|| Self {
            tunnel: attempt.id,
            server: (port != 0).then(|| (attempt.address.ip(), port).into()),
            prefixes,
            offers: Offers::new(id, exporter.epoch(0, random.into_bytes())),
            exporter,
            epoch: 0,
            begun: now,
            next: None,
        })
    }
}

impl Sealing {
    /// Sealed flows as `config` says, which may hold `memory` bytes, over the tunnels of `tunnels`.
    pub(super) fn new(
        (config, memory): (ClientSle, u64),
        tunnels: &Rc<Tunnels>,
        mark: Option<u32>,
    ) -> Rc<Self> {
        Rc::new(Self {
            config,
            tunnels: tunnels.clone(),
            mark,
            association: RefCell::default(),
            ways: RefCell::default(),
            lacking_told: Cell::default(),
            paused: RefCell::default(),
            traffic: SleTraffic::new(memory, &SleMemory::new(memory)),
            cut: watch::Sender::new(()),
        })
    }

    /// Asks the server of a connection that begins for sealed flows.
    pub(super) fn ask(connection: &mut Connection) {
        connection.tunnel.agreement_mut().ask_for_sle(random());
    }

    /// The tunnel is the one of this attempt from now on.
    pub(super) fn on_ready(&self, attempt: &Attempt) {
        let now = process::now();
        let agreed = self.tunnels.change(attempt.id, |connection| {
            Association::of(attempt, connection, now)
        });
        let agreed = self.usable(agreed.flatten());
        self.ways.borrow_mut().forget_answers();
        self.association.replace(agreed);
    }

    /// The agreement, if flows can be sealed as this client is to. Tells the log what its server lacks.
    fn usable(&self, agreed: Option<Association>) -> Option<Association> {
        let transparent = self.config.is_transparent();
        let agreed = agreed.filter(|it| transparent || it.server.is_some());
        let lacks = match &agreed {
            None => Some(Lacks::All),
            Some(it) if transparent && it.prefixes.is_empty() => Some(Lacks::Intake),
            Some(_) => None,
        };
        if lacks != self.lacking_told.replace(lacks) {
            match lacks {
                Some(Lacks::All) => tracing::warn!(
                    "the server seals no flows: they go through the tunnel; give its configuration `[sle]`, and this client no `max_rate` there"
                ),
                Some(Lacks::Intake) => tracing::warn!(
                    "the server takes in no connections on their way: sealed flows go to its own port; give its `[sle]` `interfaces`, `prefixes` and `sources`"
                ),
                None => {}
            }
        }
        agreed
    }

    /// There is no tunnel any more. Flows that are open go on: they have their keys.
    pub(super) fn on_lost(&self) {
        self.association.replace(None);
    }

    /// The server has begun the next epoch, or withdraws what it has offered.
    pub(super) fn on_epoch(&self, tunnel: ConnectionId, epoch: u16) {
        let mut association = self.association.borrow_mut();
        let Some(agreed) = association.as_mut().filter(|it| it.tunnel == tunnel) else {
            return;
        };
        if epoch == u16::MAX && agreed.epoch + 1 != epoch {
            tracing::warn!(
                "the server seals no more flows: they go through the tunnel; this client may have a `max_rate` there now"
            );
            *association = None;
            self.lacking_told.set(Some(Lacks::All));
            return;
        }
        let Some(random) = agreed.next.take().filter(|_| agreed.epoch + 1 == epoch) else {
            return tracing::debug!("epoch {epoch} of SLE was not asked for");
        };
        let now = process::now();
        let next = agreed.exporter.epoch(epoch, random.into_bytes());
        if agreed.offers.begin(now, next).is_ok() {
            (agreed.epoch, agreed.begun) = (epoch, now);
            // So that the random bytes cannot be opened later in what was recorded.
            self.tunnels.change(tunnel, Connection::renew_keys);
        }
    }

    /// Looks whether an epoch is to begin or to be forgotten; to be called every second.
    pub(super) fn tick(&self) {
        let now = process::now();
        let mut association = self.association.borrow_mut();
        let Some(agreed) = association.as_mut() else {
            return;
        };
        agreed.offers.handle_timeout(now);
        if now < agreed.begun + EPOCH || agreed.next.is_some() {
            return;
        }
        let Some(epoch) = agreed.epoch.checked_add(1) else {
            // No number is left: what begins now goes through the tunnel.
            *association = None;
            return;
        };
        let random = random();
        agreed.next = Some(random.clone());
        self.tunnels.change(agreed.tunnel, |connection| {
            connection.tunnel.begin_sle_epoch(epoch, random);
        });
    }

    /// True if a flow to `destination` is to be sealed, as far as its destination says.
    pub(super) fn takes(&self, destination: &Destination) -> bool {
        self.config.takes(destination)
    }

    /// Connects for one flow to `destination`; `None` if that is to go through the tunnel.
    pub(super) async fn connect(&self, destination: &Destination) -> Option<OuterSocket> {
        let Some(target) = self.target(destination) else {
            self.traffic.fell_back();
            return None;
        };
        let (now, way) = (process::now(), target.way);
        if !self.ways.borrow_mut().permits(now, way) {
            self.traffic.fell_back();
            return None;
        }
        let asking = way.kind == WayKind::Transparent && !self.ways.borrow().is_proven(now, way);
        let connected = async {
            let outer = OuterSocket::connect(target, self.mark).await?;
            match asking {
                true => outer.ask(self.keys(target.tunnel, true)).await,
                false => Ok(outer),
            }
        };
        match connected.await {
            Ok(outer) => {
                if asking {
                    self.on_answered(target);
                }
                Some(outer)
            }
            Err(why) => {
                self.traffic.fell_back();
                if !matches!(why, NotThere::NoTunnel) {
                    self.distrust(target, &why.to_string());
                }
                None
            }
        }
    }

    /// Begins a flow over `outer`; `None` if its tunnel was lost or replaced meanwhile: another server knows other keys.
    pub(super) fn open(
        self: &Rc<Self>,
        outer: OuterSocket,
        destination: &Destination,
        source: Option<SocketAddr>,
        words: (Bytes, bool),
    ) -> Option<SleFlow> {
        let opened = self.open_over(outer, destination, source, words);
        if opened.is_none() {
            self.traffic.fell_back();
        }
        opened
    }

    fn open_over(
        self: &Rc<Self>,
        outer: OuterSocket,
        destination: &Destination,
        source: Option<SocketAddr>,
        (first, ended): (Bytes, bool),
    ) -> Option<SleFlow> {
        let target = outer.target;
        let (socket, asked) = outer.into_parts();
        let keys = match asked {
            Some(asked) if self.is_of(target.tunnel) => asked,
            Some(_) => return None,
            None => self.keys(target.tunnel, false)?,
        };
        let open = Open {
            flow: FlowId(0),
            destination: destination.clone(),
            source,
            credit: 0,
            page: false,
        };
        let mut body = Vec::with_capacity(64);
        open.encode(&mut body);
        // The stream's kind, one byte, is of the tunnel.
        let conn = Conn::client(process::now(), keys, &body[1..], is_connected);
        let shard = self.tunnels.shard();
        let mut flow = SealedFlow::new(conn, (socket, Bytes::new()), shard, &self.traffic);
        let (answered, answer) = oneshot::channel();
        let sle = self.clone();
        flow.on_answer(Box::new(move || {
            sle.on_answered(target);
            // Nobody waits any more for one that comes late.
            let _ = answered.send(());
        }));
        let sle = self.clone();
        spawn_local(async move { sle.watch(target, answer).await });
        flow.say_first(first, ended);
        Some(SleFlow {
            flow,
            cut: self.cut.subscribe(),
            reading: !ended,
            sle: self.clone(),
            target,
        })
    }

    /// Goal of the outer connection of a flow to `destination`; `None` if the flow cannot be sealed.
    fn target(&self, destination: &Destination) -> Option<OuterTarget> {
        let association = self.association.borrow();
        let agreed = association.as_ref()?;
        let taken_in = |address: &IpAddr| {
            let prefixes = &agreed.prefixes;
            self.config.is_transparent()
                && is_elsewhere(address)
                && prefixes.iter().any(|net| net.contains(address))
        };
        let way = match destination.host {
            Host::Ip(ip) if taken_in(&ip.to_canonical()) => OuterWay {
                kind: WayKind::Transparent,
                address: (ip.to_canonical(), destination.port).into(),
            },
            _ => OuterWay {
                kind: WayKind::Addressed,
                address: agreed.server?,
            },
        };
        let tunnel = agreed.tunnel;
        Some(OuterTarget { way, tunnel })
    }

    /// True if flows are sealed with keys of `tunnel` now.
    fn is_of(&self, tunnel: ConnectionId) -> bool {
        let association = self.association.borrow();
        association.as_ref().is_some_and(|it| it.tunnel == tunnel)
    }

    /// Keys for one more outer connection, whose preface `asks` or not.
    fn keys(&self, tunnel: ConnectionId, asks: bool) -> Option<Keys> {
        let mut association = self.association.borrow_mut();
        let agreed = association.as_mut().filter(|it| it.tunnel == tunnel)?;
        Some(match asks {
            true => agreed.offers.ask(),
            false => agreed.offers.open(),
        })
    }

    /// A flow has ended before the server's answer, or never left.
    fn distrust(&self, target: OuterTarget, why: &str) {
        let address = target.way.address;
        let pause = self.ways.borrow_mut().on_failed(process::now(), target.way);
        match pause {
            Some(Pause::All(pause)) => {
                tracing::warn!(
                    "flows cannot be sealed beside the tunnel: {why}; they go through the tunnel for {} s",
                    pause.as_secs()
                );
                self.paused.replace(Some(Paused {
                    kind: target.way.kind,
                    until: process::now() + pause,
                    why: why.to_owned(),
                }));
            }
            Some(Pause::One(pause)) => tracing::info!(
                "flows to {address} cannot be sealed beside the tunnel: {why}; they go through the tunnel for {} s",
                pause.as_secs()
            ),
            None => {}
        }
    }

    /// Loses trust in the way if `answer` does not come in time, and none of another flow. A box that takes outer connections
    /// and hands nothing on would hold up every flow else.
    async fn watch(&self, target: OuterTarget, answer: oneshot::Receiver<()>) {
        let began = process::now();
        // Ends at once if the flow ends without an answer.
        if timeout(SLOW, answer).await.is_err()
            && !self.ways.borrow().has_answered(target.way, began)
        {
            self.distrust(target, &format!("no answer for {} s", SLOW.as_secs()));
        }
    }

    fn on_answered(&self, target: OuterTarget) {
        // By the server of a tunnel that is no more, about which nothing is asked.
        if self.is_of(target.tunnel) {
            self.ways
                .borrow_mut()
                .on_answered(process::now(), target.way);
            let mut paused = self.paused.borrow_mut();
            paused.take_if(|paused| paused.kind == target.way.kind);
        }
    }

    /// Resets every flow.
    pub(super) fn close(&self) {
        self.on_lost();
        self.cut.send_replace(());
    }

    /// Flows that are open.
    pub(crate) fn active(&self) -> u64 {
        self.traffic.active()
    }

    /// Flows and bytes, counted.
    pub(super) fn traffic(&self) -> &Arc<SleTraffic> {
        &self.traffic
    }

    /// Part of `status`.
    pub(super) fn report(&self) -> status::Sle {
        status::Sle {
            reason: self.reason(),
            ..self.traffic.report()
        }
    }

    /// Reason why flows are not sealed now, or not as they are to be.
    fn reason(&self) -> Option<String> {
        let paused = self.paused.borrow();
        let paused = paused.as_ref().map(|Paused { until, why, .. }| {
            match until.saturating_duration_since(process::now()).as_secs() {
                0 => format!("{why}; the next flow tries again"),
                left => format!("{why}; tried again in {left} s"),
            }
        });
        let lacking = self.lacking_told.get();
        paused.or_else(|| lacking.map(|lacks| lacks.text().to_owned()))
    }
}

/// Random bytes for one epoch.
fn random() -> EpochRandom {
    let mut bytes = Zeroizing::new([0; 32]);
    bentpipe_tunnel::engine::random(&mut *bytes);
    EpochRandom::new(bytes)
}

/// True if the body of a REPLY is that of a connected flow.
fn is_connected(body: &[u8]) -> bool {
    matches!(Reply::decode(body), Ok(Some((reply, _))) if reply.code == ReplyCode::Ok)
}

/// A flow that is sealed beside the tunnel.
pub(crate) struct SleFlow {
    flow: SealedFlow,
    /// Changes once all flows are to end.
    cut: watch::Receiver<()>,
    /// The application has not sent FIN.
    reading: bool,
    sle: Rc<Sealing>,
    target: OuterTarget,
}

impl SleFlow {
    /// Waits for the server's answer: the address that it connected from.
    ///
    /// # Errors
    /// Its code.
    pub(super) async fn reply(&mut self) -> Result<Option<SocketAddr>, ReplyCode> {
        let reply = tokio::select! {
            reply = self.flow.reply() => reply,
            _ = self.cut.changed() => return Err(ReplyCode::Internal),
        };
        self.judge();
        reply.map(|reply| reply.bound)
    }

    /// Learns from an end without an answer.
    fn judge(&self) {
        if !self.flow.is_answered() && self.flow.is_broken() {
            self.sle.distrust(
                self.target,
                "a connection to the server ended before its answer",
            );
        }
    }

    /// Relays between the flow and its application until the flow is over; `on_first_byte` is told of the first answer.
    pub(super) async fn run(
        mut self,
        lan: TcpStream,
        on_first_byte: Option<Box<dyn FnOnce()>>,
    ) -> Outcome {
        tokio::select! {
            outcome = self.flow.run(lan, self.reading, on_first_byte) => {
                self.judge();
                outcome
            }
            _ = self.cut.changed() => Outcome::TunnelLost,
        }
    }
}

/// False for addresses that this machine would not send to a server on the way, whatever prefixes that names: its own loopback, and
/// such as stand for no host or for several.
fn is_elsewhere(address: &IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !(address.is_loopback() || address.is_unspecified() || address.is_multicast() || link_local)
}

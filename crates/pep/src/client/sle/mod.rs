//! Flows that are sealed beside the tunnel (SLE, `PROTOCOL.md` §18): keys by the tunnel, bytes by a TCP connection each, so that
//! an operator's proxies can split it.
//!
//! ```text
//!   tunnel ready ─► Association: exporter, epochs ─► keys of one connection ─► SealedFlow ══ TCP ══ server
//! ```
//!
//! A flow that cannot be sealed goes through the tunnel, unless bytes of it may have reached its destination: then its
//! application is reset.

mod flow;
mod opening;
mod outer;
#[cfg(all(test, target_os = "linux"))]
mod tests;
mod trust;
mod ways;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bentpipe_proto::tunnel::EpochRandom;
use bentpipe_sealed::Exporter;
use bentpipe_sealed::sle::{EXPORTER, Offers};
use ipnet::IpNet;
use tokio::sync::watch;

use super::connections::Attempt;
use super::tunnels::Tunnels;
use crate::config::ClientSle;
use crate::process;
use crate::sle_traffic::{SleMemory, SleTraffic};
use crate::status;
use bentpipe_tunnel::engine::{Connection, ConnectionId};
pub(crate) use flow::SleFlow;
use ways::{TriedWays, WayKind};

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
            offers: Offers::new(id, exporter.epoch(0, random.as_bytes())),
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

    /// Notes that the tunnel has ended. Flows that are open go on: they have their keys.
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
        let next = agreed.exporter.epoch(epoch, random.as_bytes());
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
        if now < agreed.begun + self.config.epoch_span() || agreed.next.is_some() {
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
    EpochRandom::new(|bytes| bentpipe_tunnel::engine::random(bytes))
}

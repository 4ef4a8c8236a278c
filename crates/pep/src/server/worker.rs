//! One shard of the server: a thread, its socket and its engine. What happens on it is in `sessions.rs`.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use bentpipe_congestion::Kind as ControllerKind;
use bentpipe_proto::tunnel::{Families, Hello, VERSION, capability};
use bentpipe_units::Seed;
use quinn_proto::crypto::HmacKey;
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use super::clients::Clients;
use super::command::Command;
use super::delivery;
use super::les::{LayeredTunnels, LesInbox};
use super::notices::Notices;
use super::packets::{Inbox, Packets, Sockets};
use super::pool::Reports;
use super::registry::Registry;
use super::sessions::Sessions;
use super::shares::ClientPlaces;
use super::sle::{FreshFlow, SealedTunnels};
use super::tls::{self, FreshWire};
use crate::config::{Dialling, ServerDns as Dns};
use crate::net::nat64::Translations;
use crate::paths::PathMemory;
use crate::process;
use crate::qlog::Qlog;
use crate::shard::{Driver, Exits, Neighbours, Pulse, Shard};
use bentpipe_tunnel::engine::{Engine, EngineConfig, ServerSetup, Wishes};
use bentpipe_tunnel::transport::MemoryPool;

/// First credit of an upload, announced before anything is known of the path, in bytes.
const INITIAL_CREDIT: u64 = 1 << 20;

/// State that all shards of a server share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) clients: Arc<Clients>,
    pub(super) registry: Arc<Registry>,
    pub(super) paths: Arc<PathMemory>,
    pub(super) packets: Option<Arc<Packets>>,
    /// In place of a device, without the privilege for one.
    pub(super) sockets: Option<Arc<Sockets>>,
    /// Packets of clients that are not carried, and why, for `status`.
    pub(super) packets_limited: Option<Arc<str>>,
    /// Memory for the tunnels of all shards.
    pub(super) pool: Arc<MemoryPool>,
    pub(super) notices: Arc<Notices>,
    /// Descriptors for the clients of all shards.
    pub(super) places: Arc<ClientPlaces>,
    pub(super) translations: Translations,
    /// Tunnels with sealed flows, where some are taken.
    pub(super) sealed: Option<Arc<SealedTunnels>>,
    /// Tunnels with associations of LES, where some are taken.
    pub(super) layered: Option<Arc<LayeredTunnels>>,
    /// Pages are fetched ahead.
    pub(super) pages: bool,
    /// Trust in origins' certificates, where pages over TLS are fetched ahead.
    pub(super) trust: Option<Arc<rustls::ClientConfig>>,
    /// TLS with origins of DSSL, where the server is a hub.
    pub(super) hub: Option<Arc<rustls::ClientConfig>>,
}

/// Connections and packets that come to the shard by the main thread.
pub(super) struct Arrivals {
    /// TLS connections, where the server takes some.
    pub(super) wires: Option<mpsc::Receiver<FreshWire>>,
    /// Sealed flows, where the server takes some.
    pub(super) flows: Option<mpsc::Receiver<FreshFlow>>,
    /// Packets of LES, where the server takes some.
    pub(super) layered: Option<LesInbox>,
}

/// Everything that a shard's thread is started with.
pub(super) struct Worker {
    pub(super) index: u8,
    pub(super) shared: Shared,
    pub(super) reset_key: Arc<dyn HmacKey>,
    pub(super) setup: ServerSetup,
    pub(super) commands: mpsc::UnboundedReceiver<Command>,
    pub(super) report: Reports,
    pub(super) pulse: Pulse,
    pub(super) drain_timeout: Duration,
    pub(super) controller: ControllerKind,
    pub(super) dialling: Dialling,
    /// Address at which the responder waits for clients.
    pub(super) responder: Option<SocketAddr>,
    pub(super) inbox: Option<Inbox>,
    pub(super) arrivals: Arrivals,
    pub(super) qlog: Option<Qlog>,
    pub(super) families: Families,
}

impl Worker {
    /// Runs the shard on this thread until it is drained.
    pub(super) fn run(
        mut self,
        sockets: (UdpSocket, Exits),
        neighbours: Neighbours,
    ) -> io::Result<()> {
        let (max_flows, memory) = self.shared.clients.limits();
        let mut engine = Engine::new(EngineConfig {
            reset_key: self.reset_key.clone(),
            shard: Some(self.index),
            server: Some(self.setup.clone()),
            hello: hello(self.families, max_flows, &self.dialling.dns, &self.shared),
            memory,
            pool: self.shared.pool.clone(),
            wishes: Wishes {
                controller: self.controller,
                ..Wishes::default()
            },
            seed: Seed::new(process::random_u64()),
            deterministic: false,
        });
        if let Some(qlog) = self.qlog.take() {
            qlog.follow(&mut engine);
        }
        let shard = Shard::new(engine);
        let runtime = process::runtime()?;
        let sessions = Sessions::new(&self, shard.clone());
        LocalSet::new().block_on(&runtime, async {
            let place = (usize::from(self.index), neighbours.len());
            let driver = Driver::new(shard.clone(), sockets, Some(neighbours), self.pulse)?;
            tokio::select! {
                result = driver.run(|event| sessions.on_event(event)) => result,
                () = delivery::deliver(&sessions, self.inbox.take()) => Ok(()),
                () = sessions.obey(&mut self.commands, self.drain_timeout) => Ok(()),
                never = sessions.publish(&self.report) => never,
                () = sessions.ways().discover() => Ok(()),
                never = sessions.ways().take_in_sealed(self.arrivals.flows.take()) => match never {},
                never = delivery::take_in_layered(&sessions, self.arrivals.layered.take()) => match never {},
                never = tls::take_in(&shard, place, self.arrivals.wires.take()) => match never {},
            }
        })
    }
}

fn hello(families: Families, max_flows: u64, dns: &Dns, shared: &Shared) -> Hello {
    let wanted = |wanted: bool, bit: u64| if wanted { bit } else { 0 };
    Hello {
        version: VERSION,
        agent: process::agent(),
        instance: process::random_u64() >> 2,
        families,
        initial_credit: INITIAL_CREDIT,
        max_flows,
        capabilities: capability::PUBLISH
            | wanted(dns.enabled, capability::DNS)
            | wanted(shared.pages, capability::PAGES)
            | wanted(shared.trust.is_some(), capability::TRUSTED)
            | wanted(shared.hub.is_some(), capability::DSSL),
        ..Hello::default()
    }
}

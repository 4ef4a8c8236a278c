//! Parts that the shards of a server are made of: what they share, what each gets of its own, and where connections come in.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use bentpipe_proto::tunnel::Families;
use bentpipe_sealed::dssl::ALPN_HUB;
use bentpipe_tunnel::engine::{ServerSetup, identity};
use bentpipe_tunnel::transport::MemoryPool;
use tokio::sync::mpsc;

use super::clients::Clients;
use super::command::Command;
use super::les::{LayeredTunnels, LesInbox};
use super::notices::Notices;
use super::packets::{Inbox, Network};
use super::pool::Reports;
use super::registry::Registry;
use super::shares::ClientPlaces;
use super::sle::{FreshFlow, SealedTunnels};
use super::tls::Inboxes;
use super::worker::{Arrivals, Shared, Worker};
use crate::config::ServerConfig;
use crate::keys::PrivateKey;
use crate::net::nat64::Translations;
use crate::paths::PathMemory;
use crate::process::{self, RunError};
use crate::qlog::Qlog;
use crate::shard::Pulse;
use crate::trust::{trust, trust_shown};

/// Parts of a server that outlive its shards.
pub(super) struct ServerParts<'a> {
    pub(super) config: &'a ServerConfig,
    pub(super) key: &'a PrivateKey,
    pub(super) setup: ServerSetup,
    pub(super) clients: &'a Arc<Clients>,
    pub(super) paths: &'a Arc<PathMemory>,
    /// Address at which the responder waits for clients.
    pub(super) responder: Option<SocketAddr>,
    pub(super) qlog: Option<Qlog>,
}

/// Tunnels beside those of QUIC that clients are offered.
pub(super) struct Offers {
    pub(super) sealed: Option<Arc<SealedTunnels>>,
    pub(super) layered: Option<Arc<LayeredTunnels>>,
}

/// Ways in of all shards: of each kind one for a shard, or none.
pub(super) struct Entrances {
    pub(super) sockets: Vec<UdpSocket>,
    pub(super) wires: <Inboxes as IntoIterator>::IntoIter,
    pub(super) flows: std::vec::IntoIter<mpsc::Receiver<FreshFlow>>,
    pub(super) packets: std::vec::IntoIter<LesInbox>,
}

impl Entrances {
    /// Ways in beside UDP of the next shard.
    pub(super) fn of_next(&mut self) -> Arrivals {
        Arrivals {
            wires: self.wires.next(),
            flows: self.flows.next(),
            layered: self.packets.next(),
        }
    }
}

impl ServerParts<'_> {
    /// The shard at place `index`, with what is its own.
    pub(super) fn worker(
        &self,
        index: usize,
        shared: &Shared,
        families: Families,
        (commands, inbox, arrivals): (mpsc::UnboundedReceiver<Command>, Option<Inbox>, Arrivals),
    ) -> Worker {
        Worker {
            index: u8::try_from(index).unwrap_or(u8::MAX),
            shared: shared.clone(),
            reset_key: identity::reset_key(self.key),
            setup: self.setup.clone(),
            commands,
            report: Reports::default(),
            pulse: Pulse::default(),
            drain_timeout: self.config.drain_timeout,
            controller: self.config.controller,
            dialling: self.config.dialling.clone(),
            responder: self.responder,
            inbox,
            arrivals,
            qlog: self.qlog.clone(),
            families,
        }
    }
}

/// Common property of shards.
pub(super) fn share(
    parts: &ServerParts<'_>,
    registry: Registry,
    offers: Offers,
    network: &Network,
) -> Result<Shared, RunError> {
    let config = parts.config;
    let memory = MemoryPool::new(process::total_memory(config.total_memory));
    let hub = config.web.hub.as_ref();
    let notices: Arc<Notices> = Arc::default();
    let clients = parts.clients.clone();
    let places = ClientPlaces::new(process::file_limit(), clients.clone(), notices.clone());
    Ok(Shared {
        clients,
        registry: Arc::new(registry),
        paths: parts.paths.clone(),
        packets: network.packets.clone(),
        sockets: network.sockets.clone(),
        packets_limited: network.limited.clone(),
        pool: Arc::new(memory),
        notices,
        places,
        translations: Translations::new(&config.dialling.nat64),
        sealed: offers.sealed,
        layered: offers.layered,
        pages: config.web.prefetch,
        trust: config.web.tls.as_ref().map(trust).transpose()?,
        hub: hub
            .map(|roots| trust_shown(roots, parts.key, &[ALPN_HUB]))
            .transpose()?,
    })
}

//! The server, at the gateway: authenticates clients, dials the destinations that they ask for, and relays between both.
//!
//! One thread per shard (`worker.rs`, `sessions.rs`); `pool.rs` starts them, obeys signals and gathers `status`. This file opens
//! what the shards need: sockets, signal handlers, and the server's nftables rules and device.
//! A client's rights are looked up in one shared list, which SIGHUP replaces.

mod client_connections;
mod clients;
mod command;
mod connected;
mod crossing;
mod delivery;
pub(crate) mod enrolled;
mod enrolment;
mod families;
mod flows;
#[cfg(target_os = "linux")]
pub mod forwarding;
mod les;
#[cfg(not(target_os = "linux"))]
mod no_packets;
mod notices;
#[cfg(target_os = "linux")]
mod packets;
mod parts;
mod plain;
mod pool;
mod publish;
mod publishing;
mod queries;
mod registry;
mod responder;
mod sessions;
mod shares;
mod sle;
mod tls;
mod ways;
mod web;
mod worker;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use crate::config::{self, Listening, Monitoring, Role, ServerConfig, ServerFile};
use crate::keys::{self, PrivateKey};
use crate::metrics::Metrics;
use crate::net::listen::bind_each;
use crate::page::PageServer;
use crate::paths::PathMemory;
use crate::process::{self, Diagnosis, RunError};
use crate::qlog::Qlog;
use crate::sandbox::Needs;
use crate::status::StatusSocket;
use crate::stop::StopSignal;
use bentpipe_tunnel::engine::ServerSetup;
use bentpipe_tunnel::engine::identity;
use clients::Clients;
use les::{LayeredTunnels, LesDoor, LesInbox};
#[cfg(not(target_os = "linux"))]
use no_packets as packets;
use packets::Network;
use parts::{Entrances, Offers, ServerParts};
use pool::Pool;
use responder::ResponderServer;
use sle::{FreshFlow, SealedTunnels, SleDoor};
use tls::{Inboxes, TlsDoor};

/// Keys that the clients of `config` have named that joined by a code, by the one-time key of the code.
pub fn joined(
    config: &ServerConfig,
) -> impl Fn(&keys::PublicKey) -> Option<keys::PublicKey> + use<> {
    enrolled::joined(config)
}

/// Runs the server until SIGINT or SIGTERM.
///
/// # Errors
/// [`RunError`] says what could not be set up; afterwards only a dead shard is an error.
pub fn run(config: ServerFile, diagnosis: &Diagnosis) -> Result<(), RunError> {
    match config {
        ServerFile::Tunnel(config) => serve(&config, diagnosis),
        ServerFile::Plain(config) => plain::run(*config),
    }
}

fn serve(config: &ServerConfig, diagnosis: &Diagnosis) -> Result<(), RunError> {
    let key = keys::read(&config.identity.private_key_file).map_err(RunError::key)?;
    let clients = Arc::new(Clients::new(config));
    let setup = tls_setup(config, diagnosis, &key, &clients)?;
    let qlog = Qlog::open(diagnosis.qlog.as_deref(), Role::Server)?;
    Needs::of_server(config, diagnosis).enter()?;
    let sockets = bind_all(&config.listening)?;
    let runtime = process::runtime()?;
    let memory = process::total_memory(config.total_memory);
    let sle = config.sle.as_ref();
    let sealed = sle.map(|sle| SealedTunnels::new(sle, memory));
    let layered = config
        .les()
        .map(LayeredTunnels::new)
        .transpose()?
        .map(Arc::new);
    let (orders, doors) = {
        let _inside = runtime.enter();
        let orders = Orders::take(&config.monitoring, config.responder.as_ref())?;
        let tunnels = (sealed.as_ref(), layered.as_ref());
        (orders, open_doors(config, tunnels, sockets.len())?)
    };
    // Last of what another daemon may have: with it comes a device.
    let mut network = Network::start(config, sockets.len());
    let (les, layered) = only_with_device(&network, doors.les, layered);
    let paths = Arc::new(PathMemory::load(&config.state_dir, Role::Server));
    let (door, wires) = doors.tls.unzip();
    let (sle, flows) = doors.sle.unzip();
    let (les, packets) = les.unzip();
    let parts = ServerParts {
        config,
        key: &key,
        setup,
        clients: &clients,
        paths: &paths,
        responder: orders.responder.inside(),
        qlog,
    };
    let entrances = Entrances {
        sockets,
        wires: wires.unwrap_or_default().into_iter(),
        flows: flows.unwrap_or_default().into_iter(),
        packets: packets.unwrap_or_default().into_iter(),
    };
    let pool = Pool::start(&parts, Offers { sealed, layered }, &mut network, entrances)?;
    let supervision = async {
        door.iter().for_each(|door| door.serve());
        sle.iter().for_each(|door| door.serve());
        les.iter().for_each(|door| door.serve());
        let doors = (door.as_deref(), sle.as_deref());
        pool.supervise(config, orders, &clients, &paths, &network, doors)
            .await
    };
    let result = LocalSet::new().block_on(&runtime, supervision);
    paths.write();
    result
}

/// The door of LES and its associations, where there is a device for their packets.
fn only_with_device<D>(
    network: &Network,
    door: Option<D>,
    layered: Option<Arc<LayeredTunnels>>,
) -> (Option<D>, Option<Arc<LayeredTunnels>>) {
    let has_device = network.packets.is_some();
    if !has_device && layered.is_some() {
        tracing::warn!("there is no device for packets: clients are not offered LES");
    }
    (door.filter(|_| has_device), layered.filter(|_| has_device))
}

/// Parts with which the engines of all shards take handshakes.
fn tls_setup(
    config: &ServerConfig,
    diagnosis: &Diagnosis,
    key: &PrivateKey,
    clients: &Clients,
) -> Result<ServerSetup, RunError> {
    let key_log = process::open_key_log(diagnosis.key_log.as_deref())?;
    let classical = config.identity.allow_classical;
    let crypto = identity::server_crypto(key, clients.verifier(), classical, key_log);
    Ok(ServerSetup {
        crypto: crypto.map_err(RunError::key)?,
        token_key: identity::token_key(key),
    })
}

/// Doors of a server beside UDP, each with what the shards take from it.
struct ServerDoors {
    tls: Option<(Rc<TlsDoor>, Inboxes)>,
    sle: Option<(Rc<SleDoor>, Vec<mpsc::Receiver<FreshFlow>>)>,
    les: Option<(Rc<LesDoor>, Vec<LesInbox>)>,
}

/// Opens what the configuration names beside UDP, for so many `shards`. To be called inside a runtime.
fn open_doors(
    config: &ServerConfig,
    (sealed, layered): (Option<&Arc<SealedTunnels>>, Option<&Arc<LayeredTunnels>>),
    shards: usize,
) -> Result<ServerDoors, RunError> {
    let tls = config.listening.tls.as_ref();
    let tls = tls.map(|tls| TlsDoor::open(tls, shards)).transpose()?;
    SleDoor::tidy(config.sle.as_ref());
    let sle = config.sle.as_ref().zip(sealed).map(|(sle, tunnels)| {
        let own = own_ports(&config.listening, sle);
        SleDoor::open(sle, &own, tunnels, shards)
    });
    let sle = sle.transpose()?;
    let les = config.les().zip(layered);
    let les = les.map(|(les, tunnels)| LesDoor::open(les, tunnels, shards));
    let les = les.transpose()?;
    Ok(ServerDoors { tls, sle, les })
}

/// TCP ports of this machine at which the server itself is reached.
fn own_ports(listening: &Listening, sle: &config::SleListening) -> Vec<u16> {
    let tls = listening.tls.as_ref();
    let tls = tls.map_or(&[][..], |tls| tls.addresses.as_slice());
    let mut ports: Vec<_> = tls
        .iter()
        .chain(sle.listens())
        .map(SocketAddr::port)
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// Source of the operator's orders; taken before anything that takes time.
struct Orders {
    status: StatusSocket,
    metrics: Metrics,
    page: PageServer,
    responder: ResponderServer,
    stop: StopSignal,
    hangup: Signal,
}

impl Orders {
    /// To be called inside a runtime.
    fn take(
        monitoring: &Monitoring,
        responder: Option<&config::Responder>,
    ) -> Result<Self, RunError> {
        // Signals first: whoever sees the status socket may send them, and ask for metrics.
        Ok(Self {
            stop: StopSignal::take()?,
            hangup: signal(SignalKind::hangup()).map_err(RunError::Io)?,
            metrics: Metrics::bind(monitoring.metrics.as_ref(), None)?,
            page: PageServer::bind(monitoring.page.as_ref())?,
            responder: ResponderServer::bind(responder)?,
            status: process::status_socket(Role::Server, monitoring.status_socket.as_ref())?,
        })
    }
}

/// One socket per listen address and shard; the shards share the address.
fn bind_all(listening: &Listening) -> Result<Vec<UdpSocket>, RunError> {
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let shards = listening
        .shards
        .map_or(cores, usize::from)
        .min(256 / listening.addresses.len())
        .max(1);
    let bound = bind_each(&listening.addresses, "UDP", |address| {
        bind_shards(address, shards)
    })?;
    #[cfg(target_os = "linux")]
    for (index, sockets) in bound.iter().enumerate() {
        steer(sockets, index * shards);
    }
    Ok(bound.into_iter().flatten().collect())
}

/// Sockets of all shards on one address. The first one is bound without SO_REUSEPORT, which fails if another daemon has the
/// address, and shares it only then: two daemons that start at the same instant cannot both have it.
fn bind_shards(address: SocketAddr, shards: usize) -> io::Result<Vec<UdpSocket>> {
    let first = bind(address, false)?;
    first.set_reuse_port(shards > 1)?;
    let others = (1..shards).map(|_| bind(address, true));
    let sockets = std::iter::once(Ok(first)).chain(others);
    sockets.map(|socket| Ok(socket?.into())).collect()
}

/// Has the kernel give datagrams to the shard that their connection ID names, the first of `sockets` being that of shard
/// `first`. Where it does not, the shards hand them over.
#[cfg(target_os = "linux")]
fn steer(sockets: &[UdpSocket], first: usize) {
    if let [_, .., last] = sockets
        && let Err(error) = crate::shard::steer(last, first)
    {
        tracing::debug!("the kernel does not steer datagrams to shards: {error}");
    }
}

fn bind(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_port(shared)?;
    process::widen(&socket);
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

//! The client, at the terminal: accepts TCP, packets and DNS queries of the LAN and carries them through the tunnel.
//!
//! One thread: the shard, the session that keeps the tunnel up (`session.rs`) and the front ends.
//! Order at start: sockets and rules first, so that nothing leaks while the tunnel comes up; order at
//! stop: flows drain, then the rules go.

mod associations;
mod attendance;
mod carrier;
mod connecting;
mod connections;
mod enrol;
pub(crate) mod frontend;
#[cfg(target_os = "linux")]
pub mod guard;
#[cfg(target_os = "linux")]
pub mod intercept;
#[cfg(target_os = "linux")]
mod kept_device;
mod learned;
mod les;
mod link;
pub mod measure;
mod memory;
mod metering;
#[cfg(not(target_os = "linux"))]
mod no_packets;
mod packet_road;
#[cfg(target_os = "linux")]
mod packets;
mod page_road;
pub(crate) mod plain;
mod publish;
pub(crate) mod reach;
mod report;
mod retry;
mod routes;
mod running;
mod schedule;
mod servers;
mod session;
mod silence;
mod sle;
mod splitter;
#[cfg(test)]
mod tests;
mod tls_connection;
mod tunnels;
mod udp_trial;
mod upkeep;
mod web;
mod wire_choice;
mod wires;

use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;

use bentpipe_proto::tunnel::{Hello, VERSION, capability};
use bentpipe_units::Seed;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::task::LocalSet;

pub(crate) use associations::AssociationRelay;
pub(crate) use carrier::Carrier;
#[cfg(not(target_os = "linux"))]
use no_packets as packets;
pub(crate) use session::Session;

use crate::config::{ClientConfig, ClientFile, PortProtocol, Publish, Role};
use crate::keys::{self, PrivateKey};
use crate::net::lookup::Lookups;
use crate::process::{self, Diagnosis, RunError};
use crate::qlog::Qlog;
use crate::sandbox::Needs;
use crate::shard::{Driver, Shard};
use crate::wishes;
use bentpipe_tunnel::engine::identity;
use bentpipe_tunnel::engine::{Engine, EngineConfig};
use bentpipe_tunnel::transport::MemoryPool;
use running::Running;

/// Runs the client until SIGINT or SIGTERM.
///
/// # Errors
/// [`RunError`] says what could not be set up; a server that cannot be reached is no error, the
/// client keeps trying.
pub fn run(config: ClientFile, diagnosis: &Diagnosis) -> Result<(), RunError> {
    match config {
        ClientFile::Tunnel(config) => run_tunnel(*config, diagnosis),
        ClientFile::Plain(config) => plain::run(*config),
    }
}

fn run_tunnel(config: ClientConfig, diagnosis: &Diagnosis) -> Result<(), RunError> {
    let key = keys::read(&config.identity.private_key_file).map_err(RunError::key)?;
    let enrolments = enrol::read_keys(&config)?;
    let key_log = process::open_key_log(diagnosis.key_log.as_deref())?;
    let qlog = Qlog::open(diagnosis.qlog.as_deref(), Role::Client)?;
    Needs::of_client(&config, diagnosis).enter()?;
    let runtime = process::runtime()?;
    let config = Rc::new(config);
    LocalSet::new().block_on(&runtime, async move {
        let socket = socket(&config)?;
        // Claims what the server sent before it heard that we stop: the kernel would answer it across the link.
        let claim = socket.try_clone()?;
        let dual_stack = socket.local_addr()?.is_ipv6();
        let pool = MemoryPool::new(process::total_memory(config.memory.total));
        let pool = Arc::new(pool);
        let mut engine = engine(&config, &key, &pool);
        if let Some(qlog) = qlog {
            qlog.follow(&mut engine);
        }
        let shard = Shard::new(engine);
        let (driver, pulse) = Driver::of_only_shard(shard.clone(), socket)?;
        let keys = (&key, &enrolments[..]);
        let session = Session::new(
            config.clone(),
            keys,
            &key_log,
            shard,
            (dual_stack, frontend::own_mark(&config.front)),
        )?;
        let running = Running::start(config, session, pool)?;
        let served = running.serve(driver, &pulse).await;
        drop(claim);
        served
    })
}

/// One socket for both families where the machine has IPv6: servers may be given as names.
fn socket(config: &ClientConfig) -> Result<UdpSocket, RunError> {
    let address: SocketAddr = ([0_u16; 8], 0).into();
    let open = |domain, address: SocketAddr| {
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        process::widen(&socket);
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        Ok::<_, std::io::Error>(socket)
    };
    let socket =
        open(Domain::IPV6, address).or_else(|_| open(Domain::IPV4, ([0, 0, 0, 0], 0).into()))?;
    #[cfg(target_os = "linux")]
    if let Some(intercept) = &config.front.intercept {
        let mark = frontend::tproxy::own_mark();
        bentpipe_sys::socket::set_mark(&socket, mark)
            .map_err(|error| RunError::privilege(&intercept.place, &error))?;
    }
    #[cfg(not(target_os = "linux"))]
    let _ = config;
    Ok(socket.into())
}

/// Lookups of servers' and PEPs' names.
fn lookups(config: &ClientConfig) -> Lookups {
    let intercept = config.front.intercept.as_ref();
    let intercepted = intercept.is_some_and(|intercept| intercept.local);
    Lookups::marked(frontend::own_mark(&config.front).filter(|_| intercepted))
}

fn engine(config: &ClientConfig, key: &PrivateKey, pool: &Arc<MemoryPool>) -> Engine {
    let (own, forward) = (&config.links[0].return_link, &config.links[0].forward);
    let published = |publish: &Publish| publish.protocol == PortProtocol::Tcp;
    let tcp = config.publish.iter().any(published);
    Engine::new(EngineConfig {
        reset_key: identity::reset_key(key),
        shard: None,
        server: None,
        hello: Hello {
            version: VERSION,
            agent: process::agent(),
            instance: process::random_u64() >> 2,
            forward: wishes::forward(forward),
            initial_credit: if tcp { publish::INITIAL_CREDIT } else { 0 },
            max_flows: if tcp { publish::MAX_INBOUND } else { 0 },
            capabilities: capabilities(config),
            return_controller: Some(own.controller.unwrap_or_default().name().to_owned()),
            ..Hello::default()
        },
        memory: config.memory.tunnel.as_u64(),
        pool: pool.clone(),
        wishes: wishes::own(own),
        seed: Seed::new(process::random_u64()),
        deterministic: false,
    })
}

/// Capabilities that a client announces in its HELLO (`PROTOCOL.md` §5.1), as bits.
fn capabilities(config: &ClientConfig) -> u64 {
    let les = config.front.les.as_ref();
    let pre_shared = les.is_some_and(|les| les.psk_file.is_some());
    let has = [
        (config.front.carries_packets(), capability::PACKETS),
        (!config.publish.is_empty(), capability::PUBLISH),
        (config.dns.is_some(), capability::DNS),
        (config.front.web.prefetch, capability::PAGES),
        (!config.front.web.names.is_empty(), capability::TRUSTED),
        (!config.front.dssl.origins.is_empty(), capability::DSSL),
        (config.front.les.is_some(), capability::LES),
        (pre_shared, capability::LES_PRE_SHARED),
    ];
    let present = has.into_iter().filter(|(present, _)| *present);
    present.fold(0, |all, (_, one)| all | one)
}

type SharedKeyLog = Option<Arc<dyn rustls::KeyLog>>;

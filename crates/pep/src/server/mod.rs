//! The internet side: authenticates clients, opens what they ask for, relays.
//!
//! One thread per shard (`worker.rs`, `sessions.rs`); this file starts them, watches signals and gathers `status`.
//! A client's rights are looked up in one shared list, which SIGHUP replaces.

mod bucket;
mod clients;
mod command;
mod connected;
mod crossing;
mod enrolled;
mod enrolment;
mod families;
mod flows;
#[cfg(target_os = "linux")]
pub mod forwarding;
#[cfg(not(target_os = "linux"))]
mod no_packets;
mod notices;
#[cfg(target_os = "linux")]
mod packets;
mod plain;
mod publish;
mod publishing;
mod queries;
mod responder;
mod sessions;
mod worker;

use std::cell::Cell;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_proto::tunnel::Families;
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::interval;

use crate::config::{self, Client, Listening, Monitoring, Role, ServerConfig, ServerFile};
use crate::events;
use crate::keys::{self, PrivateKey};
use crate::metrics::Metrics;
use crate::net::nat64::Translations;
use crate::page::Page;
use crate::paths::PathMemory;
use crate::process::{self, Diagnosis, RunError};
use crate::qlog::Qlog;
use crate::sandbox::{self, Needs};
use crate::service_manager::ServiceManager;
use crate::shard::{Neighbours, Pulse, PulseView};
use crate::status::{self, ClientStatus, Memory, Side, StatusReport, StatusSocket};
use crate::stop::{self, StopSignal};
use bentpipe_tunnel::engine::ServerSetup;
use bentpipe_tunnel::engine::identity;
use bentpipe_tunnel::transport::MemoryPool;
use clients::{Clients, Registry};
use command::Command;
use families::{Reached, Routes};
#[cfg(not(target_os = "linux"))]
use no_packets as packets;
use packets::Network;
use responder::Responder;
use worker::{Shared, Worker};

/// Between looks at which families have a route.
const LOOK: Duration = Duration::from_secs(1);

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
    let setup = ServerSetup {
        crypto: identity::server_crypto(
            &key,
            clients.verifier(),
            config.identity.allow_classical,
            process::open_key_log(diagnosis.key_log.as_deref())?,
        )
        .map_err(RunError::key)?,
        token_key: identity::token_key(&key),
    };
    let qlog = Qlog::open(diagnosis.qlog.as_deref(), Role::Server)?;
    Needs::of_server(config, diagnosis).enter()?;
    let sockets = bind_all(&config.listening)?;
    let runtime = process::runtime()?;
    let orders = {
        let _inside = runtime.enter();
        Orders::take(&config.monitoring, config.responder.as_ref())?
    };
    // Last of what another daemon may have: with it comes a device.
    let mut network = Network::start(config, sockets.len());
    let paths = Arc::new(PathMemory::load(&config.state_dir, Role::Server));
    let pool = Pool::start(
        config,
        &key,
        &setup,
        &clients,
        &paths,
        &mut network,
        orders.responder.inside(),
        qlog,
        sockets,
    )?;
    let result = runtime.block_on(pool.supervise(config, orders, &clients, &paths, &network));
    paths.write();
    result
}

/// Source of the operator's orders; taken before anything that takes time.
struct Orders {
    status: StatusSocket,
    metrics: Metrics,
    page: Page,
    responder: Responder,
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
            page: Page::bind(monitoring.page.as_ref())?,
            responder: Responder::bind(responder)?,
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
    let mut sockets = Vec::new();
    for &address in listening.addresses.iter() {
        let place = listening.addresses.place.clone();
        let failed = |source| RunError::Bind {
            place,
            address,
            what: "UDP",
            source,
        };
        match bind_shards(address, shards) {
            // A kernel without IPv6: the wildcard's other half serves.
            Err(error)
                if error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error())
                    && listening
                        .addresses
                        .iter()
                        .any(|other| is_other_half(address, *other)) =>
            {
                tracing::info!("this machine has no IPv6: {address} is not served");
            }
            bound => {
                let bound = bound.map_err(failed)?;
                #[cfg(target_os = "linux")]
                steer(&bound, sockets.len());
                sockets.extend(bound);
            }
        }
    }
    Ok(sockets)
}

/// True if both are wildcards of one port, `address` that of IPv6.
fn is_other_half(address: SocketAddr, other: SocketAddr) -> bool {
    let wildcards = address.ip().is_unspecified() && other.ip().is_unspecified();
    wildcards && address.is_ipv6() && other.is_ipv4() && address.port() == other.port()
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

/// Reports that each shard last published for `status`.
type Reports = Arc<Mutex<Vec<ClientStatus>>>;

/// The running shards.
struct Pool {
    commands: Vec<mpsc::UnboundedSender<Command>>,
    reports: Vec<Reports>,
    pulses: Vec<PulseView>,
    shared: Shared,
    routes: Routes,
    reached: Reached,
    /// A shard's thread sends why it ended.
    ended: mpsc::UnboundedReceiver<io::Result<()>>,
}

impl Pool {
    #[expect(clippy::too_many_arguments, reason = "what a server is made of, once")]
    fn start(
        config: &ServerConfig,
        key: &PrivateKey,
        setup: &ServerSetup,
        clients: &Arc<Clients>,
        paths: &Arc<PathMemory>,
        network: &mut Network,
        responder: Option<SocketAddr>,
        qlog: Option<Qlog>,
        sockets: Vec<UdpSocket>,
    ) -> Result<Self, RunError> {
        let (senders, receivers): (Vec<_>, Vec<_>) =
            sockets.iter().map(|_| mpsc::unbounded_channel()).unzip();
        let memory = MemoryPool::new(process::total_memory(config.total_memory));
        let shared = Shared {
            clients: clients.clone(),
            registry: Arc::new(Registry::new(senders.clone())),
            paths: paths.clone(),
            packets: network.packets.clone(),
            sockets: network.sockets.clone(),
            pool: Arc::new(memory),
            notices: Arc::default(),
            translations: Translations::new(&config.dialling.nat64),
        };
        let (end, ended) = mpsc::unbounded_channel();
        let (mut reports, mut pulses) = (Vec::new(), Vec::new());
        let mut routes = Routes::new();
        // Nothing is promised of which nothing is known.
        let found = routes.look(&clients.allowed()).unwrap_or_default();
        families::report(None, found);
        let addresses = sockets.iter().map(UdpSocket::local_addr);
        let addresses = addresses
            .collect::<io::Result<Vec<_>>>()
            .map_err(RunError::Io)?;
        let shards = Neighbours::connect(&addresses, process::now())
            .into_iter()
            .zip(sockets)
            .zip(receivers);
        for (index, ((neighbours, socket), commands)) in shards.enumerate() {
            let report = Reports::default();
            reports.push(report.clone());
            let pulse = Pulse::default();
            pulses.push(pulse.view());
            let worker = Worker {
                index: u8::try_from(index).unwrap_or(u8::MAX),
                shared: shared.clone(),
                reset_key: identity::reset_key(key),
                setup: setup.clone(),
                commands,
                report,
                pulse,
                drain_timeout: config.drain_timeout,
                controller: config.controller,
                dialling: config.dialling.clone(),
                responder,
                inbox: network.inboxes[index].take(),
                qlog: qlog.clone(),
                families: found,
            };
            let end = end.clone();
            thread::Builder::new()
                .name(format!("shard-{index}"))
                .spawn(move || {
                    let _ = end.send(worker.run(socket, neighbours));
                })
                .map_err(RunError::Io)?;
        }
        Ok(Self {
            commands: senders,
            reports,
            pulses,
            shared,
            routes,
            reached: Reached::new(found),
            ended,
        })
    }

    async fn supervise(
        mut self,
        config: &ServerConfig,
        orders: Orders,
        clients: &Clients,
        paths: &PathMemory,
        network: &Network,
    ) -> Result<(), RunError> {
        let started = process::now();
        let Orders {
            status,
            metrics,
            page,
            responder,
            mut stop,
            mut hangup,
        } = orders;
        process::raise_file_limit();
        sandbox::announce();
        let (reports, pulses) = (self.reports.clone(), self.pulses.clone());
        let families = Cell::new(self.reached.now());
        let memory = self.shared.pool.clone();
        let repairs = network.repairs();
        let snapshot = || StatusReport {
            all_tunnels_memory: Some(Memory::of(&memory)),
            kernel: repairs.as_ref().map(|it| it.report()).unwrap_or_default(),
            ..report(config, started, families.get(), &reports)
        };
        let listening = process::join(&config.listening.addresses);
        tracing::info!(
            target: events::STATE,
            "ready: serving {} on {listening} with {}",
            status::quantity(clients.len() as u64, "client"),
            status::quantity(self.commands.len() as u64, "shard")
        );
        let manager = ServiceManager::find();
        manager.ready();
        let mut left = self.commands.len();
        let mut signals = 0;
        let mut current = config.clone();
        let mut look = interval(LOOK);
        tokio::select! {
            () = status.serve(&snapshot) => {}
            () = metrics.serve(&snapshot) => {}
            () = page.serve(&snapshot) => {}
            () = responder.serve() => {}
            () = manager.inform(&pulses, &snapshot) => {}
            () = paths.keep() => {}
            outcome = async {
                while left > 0 {
                    tokio::select! {
                        Some(end) = self.ended.recv() => {
                            end.map_err(RunError::Io)?;
                            left -= 1;
                        }
                        () = stop.wait(), if signals < 2 => {
                            signals += 1;
                            self.stop(signals, config.drain_timeout, &manager);
                        }
                        Some(()) = hangup.recv() => {
                            manager.reloading();
                            self.reload(config, &mut current, clients);
                            manager.ready();
                        }
                        _ = look.tick() => families.set(self.look_for_routes(clients)),
                    }
                }
                Ok(())
            } => return outcome,
        }
        Ok(())
    }

    /// Obeys the first of the `signals` to stop, which lets open flows end, or the second, which
    /// does not.
    fn stop(&self, signals: u8, patience: Duration, manager: &ServiceManager) {
        if signals > 1 {
            stop::tell_of_second();
            return self.tell(&Command::End);
        }
        stop::tell_of_first(patience);
        manager.stopping(patience);
        self.tell(&Command::Drain);
    }

    fn tell(&self, command: &Command) {
        for shard in &self.commands {
            let _ = shard.send(command.clone());
        }
    }

    /// Tells the clients if this machine has gained or lost its route of a family; the families in force.
    fn look_for_routes(&mut self, clients: &Clients) -> Families {
        let before = self.reached.now();
        let found = self.routes.look(&clients.allowed());
        if let Some(now) = found.and_then(|found| self.reached.on_look(found)) {
            families::report(Some(before), now);
            self.tell(&Command::Families(now));
        }
        self.reached.now()
    }

    /// Takes over what a running server can; `current` is what was read last, `config` what it was started with.
    fn reload(&self, config: &ServerConfig, current: &mut ServerConfig, clients: &Clients) {
        match ServerConfig::load(&config.file) {
            Ok(fresh) => {
                clients.replace(&fresh);
                self.shared
                    .pool
                    .set_ceiling(process::total_memory(fresh.total_memory));
                if let Some(Err(error)) = self
                    .shared
                    .packets
                    .as_ref()
                    .map(|packets| packets.reload(&fresh))
                {
                    tracing::error!("clients' addresses and routes stay as they were: {error}");
                }
                if let Some(sockets) = &self.shared.sockets {
                    sockets.reload(&fresh);
                }
                self.shared.notices.forget_clients();
                tracing::info!(target: events::STATE, "reloaded: {}", changes(config, current, &fresh));
                *current = fresh;
                self.tell(&Command::Recheck);
            }
            Err(error) => tracing::error!("not reloaded, the old list stays: {error}"),
        }
    }
}

/// Changes that `fresh` makes: clients in comparison with `current`, and keys that differ from those the server was `started`
/// with and that it does not read again.
fn changes(started: &ServerConfig, current: &ServerConfig, fresh: &ServerConfig) -> String {
    let of = |config: &ServerConfig, name: &str| {
        let mut clients = config.clients.iter();
        clients.find(|client| client.name == name).cloned()
    };
    let (mut added, mut changed) = (0, 0);
    for client in &fresh.clients {
        match of(current, &client.name) {
            None => added += 1,
            Some(before) => changed += usize::from(before != *client),
        }
    }
    let gone = |client: &&Client| of(fresh, &client.name).is_none();
    let removed = current.clients.iter().filter(gone).count();
    let mut text = format!("+{added} -{removed} ~{changed} clients");
    let restart = started.needing_restart(fresh);
    if !restart.is_empty() {
        text += "; changed but needs a restart: ";
        text += &restart.join(", ");
    }
    text
}

fn report(
    config: &ServerConfig,
    started: Instant,
    families: Families,
    reports: &[Reports],
) -> StatusReport {
    let sessions = reports
        .iter()
        .flat_map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).clone())
        .collect();
    let uptime: Duration = process::now() - started;
    StatusReport {
        events: events::last(),
        sandbox: sandbox::entered(),
        ..StatusReport::new(
            config.file.clone(),
            uptime.as_secs(),
            Side::Server {
                listen: config.listening.addresses.to_vec(),
                families: Some(families.into()),
                clients: sessions,
            },
        )
    }
}

//! The running shards: started, told what the operator orders, and asked for their part of `status`.

use std::cell::Cell;
use std::io;
use std::net::UdpSocket;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_proto::tunnel::Families;
use tokio::signal::unix::Signal;
use tokio::sync::mpsc;
use tokio::time::interval;

use super::Orders;
use super::clients::Clients;
use super::command::Command;
use super::families::{self, DefaultRoutes, Reached};
use super::packets::Network;
use super::parts::{Entrances, Offers, ServerParts, share};
use super::registry::Registry;
use super::sle::{IntakeRules, SleDoor};
use super::tls::TlsDoor;
use super::worker::Shared;
use crate::config::{Client, ServerConfig};
use crate::events;
use crate::paths::PathMemory;
use crate::process::{self, RunError};
use crate::sandbox;
use crate::service_manager::ServiceManager;
use crate::shard::{Exits, Neighbours, PulseView};
use crate::status::{self, ClientStatus, Memory, Side, StatusReport};
use crate::stop::{self, StopSignal};

/// Between looks at which families have a route.
const LOOK: Duration = Duration::from_secs(1);

/// Reports that each shard last published for `status`.
pub(super) type Reports = Arc<Mutex<Vec<ClientStatus>>>;

/// The running shards.
pub(super) struct Pool {
    commands: Vec<mpsc::UnboundedSender<Command>>,
    reports: Vec<Reports>,
    pulses: Vec<PulseView>,
    shared: Shared,
    routes: DefaultRoutes,
    reached: Reached,
    /// A shard's thread sends why it ended.
    ended: mpsc::UnboundedReceiver<io::Result<()>>,
}

impl Pool {
    /// Starts a shard at each of the sockets of `entrances`.
    pub(super) fn start(
        parts: &ServerParts<'_>,
        offers: Offers,
        network: &mut Network,
        mut entrances: Entrances,
    ) -> Result<Self, RunError> {
        let sockets = std::mem::take(&mut entrances.sockets);
        let (senders, receivers): (Vec<_>, Vec<_>) =
            sockets.iter().map(|_| mpsc::unbounded_channel()).unzip();
        let registry = Registry::new(senders.clone());
        let shared = share(parts, registry, offers, network)?;
        let mut routes = DefaultRoutes::new();
        let reached = Reached::new(routes.look(&parts.clients.allowed()));
        if let Some(found) = reached.known() {
            families::report(None, found);
        }
        let (end, ended) = mpsc::unbounded_channel();
        let (mut reports, mut pulses) = (Vec::new(), Vec::new());
        let addresses = sockets.iter().map(UdpSocket::local_addr);
        let addresses = addresses
            .collect::<io::Result<Vec<_>>>()
            .map_err(RunError::Io)?;
        let exits = Exits::of(&sockets).map_err(RunError::Io)?;
        let shards = Neighbours::connect(&addresses, process::now())
            .into_iter()
            .zip(sockets)
            .zip(receivers);
        for (index, ((neighbours, socket), commands)) in shards.enumerate() {
            let inbox = network.inboxes[index].take();
            let arrivals = entrances.of_next();
            let worker = parts.worker(index, &shared, reached.now(), (commands, inbox, arrivals));
            reports.push(worker.report.clone());
            pulses.push(worker.pulse.view());
            let exits = exits.beside(&socket).map_err(RunError::Io)?;
            spawn(index, &end, move || worker.run((socket, exits), neighbours))?;
        }
        Ok(Self {
            commands: senders,
            reports,
            pulses,
            shared,
            routes,
            reached,
            ended,
        })
    }

    /// Obeys the operator until every shard has ended.
    pub(super) async fn supervise(
        mut self,
        config: &ServerConfig,
        orders: Orders,
        clients: &Clients,
        paths: &PathMemory,
        network: &Network,
        (door, sle): (Option<&TlsDoor>, Option<&SleDoor>),
    ) -> Result<(), RunError> {
        let started = process::now();
        let Orders {
            status,
            metrics,
            page,
            responder,
            stop,
            hangup,
        } = orders;
        process::raise_file_limit();
        sandbox::announce();
        let (reports, pulses) = (self.reports.clone(), self.pulses.clone());
        let families = Cell::new(self.reached.now());
        let memory = self.shared.pool.clone();
        let intake = sle.and_then(SleDoor::intake);
        let repairs = [network.repairs(), intake.and_then(IntakeRules::repairs)];
        let shared = self.shared.clone();
        let snapshot = || StatusReport {
            all_tunnels_memory: Some(Memory::of(&memory)),
            kernel: repairs
                .iter()
                .flatten()
                .flat_map(|one| one.report())
                .collect(),
            ..report(config, started, families.get(), &reports, &shared, door)
        };
        self.announce(config, clients);
        let manager = ServiceManager::find();
        manager.ready();
        tokio::select! {
            () = status.serve(&snapshot) => {}
            () = metrics.serve(&snapshot) => {}
            () = page.serve(&snapshot) => {}
            () = responder.serve() => {}
            () = manager.inform(&pulses, &snapshot) => {}
            () = paths.keep() => {}
            outcome = self.obey(config, clients, (stop, hangup), &families, &manager) => return outcome,
        }
        Ok(())
    }

    fn announce(&self, config: &ServerConfig, clients: &Clients) {
        let listening = process::join(&config.listening.addresses);
        tracing::info!(
            target: events::STATE,
            "ready: serving {} on {listening} with {}",
            status::quantity(clients.len() as u64, "client"),
            status::quantity(self.commands.len() as u64, "thread")
        );
    }

    /// Obeys signals, and looks now and then at which families have a route, until every shard has ended.
    async fn obey(
        &mut self,
        config: &ServerConfig,
        clients: &Clients,
        (mut stop, mut hangup): (StopSignal, Signal),
        families: &Cell<Families>,
        manager: &ServiceManager,
    ) -> Result<(), RunError> {
        let mut left = self.commands.len();
        let mut signals = 0;
        let mut current = config.clone();
        let mut look = interval(LOOK);
        while left > 0 {
            tokio::select! {
                Some(end) = self.ended.recv() => {
                    end.map_err(RunError::Io)?;
                    left -= 1;
                }
                () = stop.wait(), if signals < 2 => {
                    signals += 1;
                    self.stop(signals, config.drain_timeout, manager);
                }
                Some(()) = hangup.recv() => {
                    manager.reloading();
                    self.reload(config, &mut current, clients);
                    manager.ready();
                }
                _ = look.tick() => {
                    process::tell_of_connections();
                    families.set(self.look_for_routes(clients));
                }
            }
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
        let before = self.reached.known();
        let Some(found) = self.routes.look(&clients.allowed()) else {
            return self.reached.now();
        };
        let changed = self.reached.on_look(found);
        let now = self.reached.now();
        if before.is_none() || changed.is_some() {
            families::report(before, now);
        }
        if changed.is_some() {
            self.tell(&Command::Families(now));
        }
        now
    }

    /// Takes over what a running server can; `current` is what was read last, `config` what it was started with.
    fn reload(&self, config: &ServerConfig, current: &mut ServerConfig, clients: &Clients) {
        match ServerConfig::load(&config.file) {
            Ok(fresh) => {
                clients.replace(&fresh);
                let memory = process::total_memory(fresh.total_memory);
                self.shared.pool.set_ceiling(memory);
                if let Some(sealed) = &self.shared.sealed {
                    sealed.set_memory(memory);
                }
                if let Some(Err(error)) = self
                    .shared
                    .packets
                    .as_ref()
                    .map(|packets| packets.reload(&fresh))
                {
                    tracing::error!("clients' addresses and routes stay as they were: {error}");
                }
                if let Some((layered, les)) = self.shared.layered.as_ref().zip(fresh.les()) {
                    layered.accept(&les.peps);
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

/// Starts the thread of a shard, which tells `end` why it ended.
fn spawn(
    index: usize,
    end: &mpsc::UnboundedSender<io::Result<()>>,
    run: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> Result<(), RunError> {
    let end = end.clone();
    let thread = thread::Builder::new().name(format!("shard-{index}"));
    let started = thread.spawn(move || {
        let _ = end.send(run());
    });
    started.map(drop).map_err(RunError::Io)
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
    shared: &Shared,
    door: Option<&TlsDoor>,
) -> StatusReport {
    let sessions = reports
        .iter()
        .flat_map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).clone())
        .collect();
    let uptime: Duration = process::now() - started;
    let (tls, sle) = (config.listening.tls.as_ref(), config.sle.as_ref());
    let les = config.les();
    StatusReport {
        events: events::last(),
        sandbox: sandbox::entered(),
        ..StatusReport::new(
            config.file.clone(),
            uptime.as_secs(),
            Side::Server {
                listen: config.listening.addresses.to_vec(),
                listen_tls: tls.map(|tls| tls.addresses.to_vec()).unwrap_or_default(),
                listen_les: les.map(|les| les.addresses.to_vec()).unwrap_or_default(),
                listen_sle: sle.map(|sle| sle.listens().to_vec()).unwrap_or_default(),
                families: Some(families.into()),
                packets_limited: shared.packets_limited.as_deref().map(str::to_owned),
                sle: shared.sealed.as_ref().map(|it| Box::new(it.report())),
                les: shared.layered.as_ref().map(|it| it.report(process::now())),
                tls: door.map(|door| Box::new(door.report())),
                clients: sessions,
            },
        )
    }
}

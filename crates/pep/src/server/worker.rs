//! One shard of the server: its engine, its clients' sessions and their flows' dials.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::rc::Rc;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bentpipe_proto::congestion::Kind as ControllerKind;
use bentpipe_proto::paths::PathKey;
use bentpipe_proto::tunnel::{CloseCode, Families, Hello, Open, ReplyCode, VERSION};
use bentpipe_units::Seed;
use quinn_proto::crypto::HmacKey;
use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{interval, timeout};

use super::Reports;
use super::clients::{Client, Clients, Registry};
use super::dial::{self, dial};
use crate::engine::Neighbours;
use crate::engine::identity::{self, PublicKey};
use crate::engine::shard::{Driver, Shard};
use crate::engine::{
    Connection, ConnectionId, ConnectionNotice, Engine, EngineConfig, Event, ServerSetup, Wishes,
};
use crate::paths::PathMemory;
use crate::process;
use crate::qlog::Qlog;
use crate::relay::{FlowHandle, Relay};
use crate::sampler::Sampler;
use crate::status::{ClientStatus, TunnelState};
use crate::transport::{FlowKey, TunnelEvent};

/// First credit of an upload, announced before anything is known of the path, in bytes.
const INITIAL_CREDIT: u64 = 1 << 20;

/// Addresses that stand for "the internet" when asking which families have a route.
const PUBLIC: [IpAddr; 2] = [
    IpAddr::V4(std::net::Ipv4Addr::new(1, 1, 1, 1)),
    IpAddr::V6(std::net::Ipv6Addr::new(
        0x2606, 0x4700, 0x4700, 0, 0, 0, 0, 0x1111,
    )),
];

/// What the main thread and other shards ask of a shard.
#[derive(Debug, Clone)]
pub(super) enum Command {
    /// Finish: no new flows, end when the open ones have, or when patience runs out.
    Drain,
    /// The list of clients has changed.
    Recheck,
    /// A client's newer process has taken over from this connection.
    Replaced(ConnectionId),
}

/// Everything that a shard's thread is started with.
pub(super) struct Worker {
    pub(super) index: u8,
    pub(super) reset_key: Arc<dyn HmacKey>,
    pub(super) setup: ServerSetup,
    pub(super) clients: Arc<Clients>,
    pub(super) registry: Arc<Registry>,
    pub(super) commands: mpsc::UnboundedReceiver<Command>,
    pub(super) report: Reports,
    pub(super) connect_timeout: Duration,
    pub(super) drain_timeout: Duration,
    pub(super) controller: ControllerKind,
    pub(super) paths: Arc<PathMemory>,
    pub(super) qlog: Option<Qlog>,
}

/// A connected client.
struct Session {
    key: PublicKey,
    client: Arc<Client>,
    sampler: Sampler,
}

/// State of the running shard.
struct Role {
    shard: Rc<Shard>,
    index: u8,
    clients: Arc<Clients>,
    registry: Arc<Registry>,
    paths: Arc<PathMemory>,
    connect_timeout: Duration,
    sessions: RefCell<HashMap<ConnectionId, Session>>,
}

impl Worker {
    /// Runs the shard on this thread until it is drained.
    pub(super) fn run(mut self, socket: UdpSocket, neighbours: Neighbours) -> io::Result<()> {
        let (max_flows, memory) = self.clients.limits();
        let mut engine = Engine::new(EngineConfig {
            reset_key: self.reset_key.clone(),
            shard: Some(self.index),
            server: Some(self.setup.clone()),
            hello: hello(&self.clients, max_flows),
            memory,
            wishes: Wishes {
                controller: self.controller,
                ..Wishes::default()
            },
            seed: Seed::new(process::random_u64()),
            deterministic: false,
        });
        if let Some(qlog) = self.qlog.take() {
            engine.trace_with(Box::new(move |now| qlog.trace(now)));
        }
        let shard = Shard::new(engine);
        let runtime = process::runtime()?;
        let role = Rc::new(Role {
            shard: shard.clone(),
            index: self.index,
            clients: self.clients.clone(),
            registry: self.registry.clone(),
            paths: self.paths.clone(),
            connect_timeout: self.connect_timeout,
            sessions: RefCell::default(),
        });
        LocalSet::new().block_on(&runtime, async {
            let driver = Driver::new(shard, socket, Some(neighbours))?;
            tokio::select! {
                result = driver.run(|event| role.on_event(event)) => result,
                () = role.obey(&mut self.commands, self.drain_timeout) => Ok(()),
                never = role.publish(&self.report) => never,
            }
        })
    }
}

fn hello(clients: &Clients, max_flows: u64) -> Hello {
    let mut families = Families::default();
    let allowed = clients.allowed();
    for address in PUBLIC
        .into_iter()
        .chain(allowed.iter().map(ipnet::IpNet::addr))
    {
        match address {
            IpAddr::V4(_) if !families.ipv4 => families.ipv4 = dial::has_route(address),
            IpAddr::V6(_) if !families.ipv6 => families.ipv6 = dial::has_route(address),
            _ => {}
        }
    }
    Hello {
        version: VERSION,
        agent: process::agent(),
        instance: process::random_u64() >> 2,
        families,
        initial_credit: INITIAL_CREDIT,
        max_flows,
        ..Hello::default()
    }
}

fn path(connection: &Connection, client: &PublicKey) -> PathKey {
    PathKey::new(&client.to_string(), connection.quic.remote_address().ip())
}

impl Role {
    fn on_event(self: &Rc<Self>, event: Event) {
        let id = event.connection;
        match event.notice {
            ConnectionNotice::Connected => self.on_connected(id),
            ConnectionNotice::Tunnel(TunnelEvent::Ready) => self.on_ready(id),
            ConnectionNotice::Tunnel(TunnelEvent::Opened(flow, open)) => {
                self.on_opened(id, flow, *open);
            }
            ConnectionNotice::Tunnel(TunnelEvent::Goaway | TunnelEvent::Flow(_))
            | ConnectionNotice::Outage(_) => {}
            ConnectionNotice::Fault(fault) => {
                tracing::warn!(client = self.name(id), "tunnel closed: {fault}");
                self.forget(id);
            }
            ConnectionNotice::Lost(reason) => {
                match self.sessions.borrow().get(&id) {
                    Some(session) => {
                        tracing::info!(client = session.client.name, "disconnected: {reason}");
                    }
                    None => tracing::debug!("handshake failed: {reason}"),
                }
                self.forget(id);
            }
        }
    }

    fn name(&self, id: ConnectionId) -> String {
        let sessions = self.sessions.borrow();
        sessions
            .get(&id)
            .map_or_else(|| "unknown".to_owned(), |s| s.client.name.clone())
    }

    fn on_connected(&self, id: ConnectionId) {
        let key = self.shard.peek(|engine| {
            engine
                .peek(id)
                .and_then(|connection| identity::peer_key(&connection.quic))
        });
        let known = key.and_then(|key| Some((key, self.clients.get(&key)?)));
        match known {
            Some((key, client)) => {
                self.registry.enter(key, self.index, id);
                self.set_limits(id, &client);
                self.resume(id, &key);
                let session = Session {
                    key,
                    client,
                    sampler: Sampler::new(process::now()),
                };
                self.sessions.borrow_mut().insert(id, session);
            }
            None => self.close(id, CloseCode::Removed, "not among the clients"),
        }
    }

    /// The client is known, and so is its path, if it has been here before.
    fn resume(&self, id: ConnectionId, key: &PublicKey) {
        let now = process::now();
        self.shard.change(id, |connection| {
            self.paths.resume(&path(connection, key), now, connection);
        });
    }

    /// Takes in what a tunnel shows of its path. A client that moves to another network starts a controller anew.
    fn learn(&self, connection: &Connection, session: &Session) {
        if let Some(saved) = connection.saved(process::now()) {
            self.paths.learn(path(connection, &session.key), &saved);
        }
    }

    fn set_limits(&self, id: ConnectionId, client: &Client) {
        let now = process::now();
        self.shard.change(id, |connection| {
            connection.tunnel.set_memory(client.memory);
            connection.set_max_rate(now, client.max_rate);
        });
    }

    fn on_ready(&self, id: ConnectionId) {
        let sessions = self.sessions.borrow();
        let Some(session) = sessions.get(&id) else {
            return;
        };
        let found = self.shard.peek(|engine| {
            let connection = engine.peek(id)?;
            let hello = connection.tunnel.remote()?;
            Some((
                hello.instance,
                hello.agent.clone(),
                connection.quic.remote_address(),
                connection.resumed().map(|saved| saved.rate),
            ))
        });
        if let Some((instance, agent, address, resumed)) = found {
            let client = &session.client.name;
            match resumed.map(|rate| rate.as_u64() as f64 / 1e6) {
                Some(rate) => {
                    tracing::info!(client, agent, %address, "connected, resumed at {rate:.1} Mbit/s");
                }
                None => tracing::info!(client, agent, %address, "connected"),
            }
            self.registry.arrive(session.key, instance, self.index, id);
        }
    }

    fn on_opened(self: &Rc<Self>, id: ConnectionId, flow: FlowKey, open: Open) {
        let sessions = self.sessions.borrow();
        let Some(session) = sessions.get(&id) else {
            return;
        };
        let client = session.client.clone();
        let refused = self.shard.peek(|engine| {
            let tunnel = &engine.peek(id)?.tunnel;
            if tunnel.is_draining() {
                Some(ReplyCode::Draining)
            } else {
                (tunnel.flow_count() as u64 > client.max_flows).then_some(ReplyCode::LimitReached)
            }
        });
        if let Some(code) = refused {
            return self.reply(id, flow, code, None);
        }
        let role = self.clone();
        spawn_local(async move {
            let destination = open.destination;
            let handle = FlowHandle::new(role.shard.clone(), id, flow);
            // Apart, so that what dialling needs does not stay with the flow for its life.
            let dialling = Box::pin(dial(&destination, &client, role.connect_timeout));
            let dialled = tokio::select! {
                dialled = dialling => dialled,
                // Nobody is left to connect for; an abort alone is no reason, for bytes may precede it.
                () = handle.gone() => return,
            };
            match dialled {
                Ok(stream) => {
                    role.reply(id, flow, ReplyCode::Ok, stream.local_addr().ok());
                    let outcome = Relay::new(handle, stream).run().await;
                    tracing::debug!(client = client.name, %destination, ?outcome, "flow ended");
                }
                Err(code) => {
                    tracing::debug!(client = client.name, %destination, ?code, "flow refused");
                    role.reply(id, flow, code, None);
                }
            }
        });
    }

    fn reply(
        &self,
        id: ConnectionId,
        flow: FlowKey,
        code: ReplyCode,
        bound: Option<std::net::SocketAddr>,
    ) {
        self.shard.change(id, |connection| {
            let (tunnel, quic) = connection.parts();
            tunnel.reply(quic, flow, code, bound);
        });
    }

    fn forget(&self, id: ConnectionId) {
        if let Some(session) = self.sessions.borrow_mut().remove(&id) {
            self.registry.leave(&session.key, self.index, id);
            self.paths.tunnel_ended();
        }
    }

    fn close(&self, id: ConnectionId, code: CloseCode, reason: &str) {
        let now = process::now();
        self.shard.change(id, |connection| {
            connection.close(now, code.code(), reason.to_owned());
        });
        self.forget(id);
    }

    async fn obey(
        self: &Rc<Self>,
        commands: &mut mpsc::UnboundedReceiver<Command>,
        patience: Duration,
    ) {
        while let Some(command) = commands.recv().await {
            match command {
                Command::Drain => break,
                Command::Recheck => self.recheck(),
                Command::Replaced(id) => {
                    tracing::info!(client = self.name(id), "replaced by a newer connection");
                    self.close(id, CloseCode::Replaced, "the client has connected again");
                }
            }
        }
        self.drain(patience).await;
    }

    fn recheck(&self) {
        let (max_flows, memory) = self.clients.limits();
        self.shard
            .with(|engine| engine.set_limits(max_flows, memory));
        let mut removed = Vec::new();
        for (&id, session) in self.sessions.borrow_mut().iter_mut() {
            match self.clients.get(&session.key) {
                Some(client) => {
                    self.set_limits(id, &client);
                    session.client = client;
                }
                None => removed.push(id),
            }
        }
        for id in removed {
            tracing::info!(client = self.name(id), "removed from the configuration");
            self.close(
                id,
                CloseCode::Removed,
                "removed from the server's configuration",
            );
        }
    }

    /// Lets open flows end, then says goodbye.
    async fn drain(self: &Rc<Self>, patience: Duration) {
        let ids = || self.sessions.borrow().keys().copied().collect::<Vec<_>>();
        self.shard.with(|engine| {
            engine.stop_accepting();
            for id in ids() {
                if let Some(connection) = engine.connection(id) {
                    connection.tunnel.send_goaway();
                }
            }
        });
        let _ = timeout(patience, process::until_idle(&self.shard)).await;
        // Asked again: a handshake may have been under way.
        for id in ids() {
            self.close(id, CloseCode::Shutdown, "the server is stopping");
        }
        process::flush(&self.shard).await;
    }

    /// Keeps the shard's part of `status` fresh.
    async fn publish(&self, report: &Reports) -> io::Result<()> {
        let mut tick = interval(Duration::from_secs(1));
        loop {
            tick.tick().await;
            let now = process::now();
            let mut sessions = self.sessions.borrow_mut();
            let statuses = self.shard.peek(|engine| {
                let status = |(&id, session): (&ConnectionId, &mut Session)| {
                    let connection = engine.peek(id)?;
                    self.learn(connection, session);
                    Some(ClientStatus {
                        name: session.client.name.clone(),
                        session: session.sampler.sample(now, connection, TunnelState::Ready),
                    })
                };
                sessions.iter_mut().filter_map(status).collect()
            });
            drop(sessions);
            *report.lock().unwrap_or_else(PoisonError::into_inner) = statuses;
        }
    }
}

//! What happens on one shard of the server: its clients' sessions and their flows' dials.
//!
//! Events of the engine and commands of the main thread come in; the engine is told what a client may do.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bentpipe_congestion::paths::PathKey;
use bentpipe_proto::dns::{Answer, Query};
use bentpipe_proto::tunnel::{AbortCode, CloseCode, Open, ReplyCode};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::spawn_local;
use tokio::time::{interval, sleep, timeout};

use super::Reports;
use super::clients::Client;
use super::command::Command;
use super::notices::Say;
use super::packets::{Filter, Inbox, Rule, Translator};
use super::publish::Ports;
use super::worker::{Shared, Worker};
use crate::config::{Nat64, Service};
use crate::net::dial::{Dialler, NotDialled};
use crate::net::judge::Judge;
use crate::net::nat64::{self, Translations};
use crate::net::resolver::Resolver;
use crate::process;
use crate::relay::{FlowHandle, Relay};
use crate::sampler::Sampler;
use crate::shard::Shard;
use crate::status::{self, ClientStatus, TunnelState};
use bentpipe_tunnel::engine::identity::{self, PublicKey};
use bentpipe_tunnel::engine::{Connection, ConnectionId, ConnectionNotice, Engine, Event};
use bentpipe_tunnel::text::printable;
use bentpipe_tunnel::transport::{FlowKey, MAX_QUERIES, QueryKey, TunnelEvent};

/// Time between two looks of a question's task whether its client still waits.
const STOPPED_LOOK: Duration = Duration::from_millis(200);

/// A connected client.
pub(super) struct Session {
    pub(super) key: PublicKey,
    pub(super) client: Arc<Client>,
    sampler: Sampler,
    /// Of its packets, where they are carried.
    pub(super) filter: Option<Filter>,
    /// Their way out where there is no device.
    translator: Option<Translator>,
    /// Ports that it has published.
    pub(super) ports: Ports,
    /// Addresses that its open flows are connected to.
    connected: HashMap<FlowKey, SocketAddr>,
    /// Shared by the queries that are being asked for it, which may go on when nobody waits any more.
    asking: Rc<()>,
}

/// Time after which the prefixes of the network's translator are asked for again, once some are known, and before.
const PROBE_AGAIN: [Duration; 2] = [Duration::from_secs(3600), Duration::from_secs(600)];

/// State of the running shard.
pub(super) struct Sessions {
    pub(super) shard: Rc<Shard>,
    pub(super) index: u8,
    pub(super) shared: Shared,
    dialler: Dialler,
    resolver: Rc<Resolver>,
    rule: Rule,
    /// The prefixes of the network's translator, if they are to be found out.
    translations: Option<Translations>,
    pub(super) open: RefCell<HashMap<ConnectionId, Session>>,
    /// Connections of clients that are to name a key of their own, with their enrolment keys.
    pub(super) enrolling: RefCell<HashMap<ConnectionId, PublicKey>>,
}

fn path(connection: &Connection, client: &PublicKey) -> PathKey {
    PathKey::new(&client.to_string(), connection.peer().ip())
}

impl Sessions {
    /// Sessions of a shard to which nobody is connected yet.
    pub(super) fn new(worker: &Worker, shard: Rc<Shard>) -> Rc<Self> {
        let (shared, dialling) = (&worker.shared, &worker.dialling);
        let resolver = Rc::new(Resolver::new(&dialling.dns.servers));
        let judge = Rc::new(Judge::new(shared.translations.clone()));
        let dialler = Dialler::new(judge.clone(), resolver.clone(), dialling.connect_timeout)
            .with_responder(worker.responder);
        Rc::new(Self {
            dialler,
            rule: Rule {
                judge,
                notices: shared.notices.clone(),
            },
            translations: (worker.index == 0 && dialling.nat64 == Nat64::Discovered)
                .then(|| shared.translations.clone()),
            shard,
            index: worker.index,
            shared: shared.clone(),
            resolver,
            open: RefCell::default(),
            enrolling: RefCell::default(),
        })
    }

    pub(super) fn on_event(self: &Rc<Self>, event: Event) {
        let id = event.connection;
        match event.notice {
            ConnectionNotice::Connected => self.on_connected(id),
            ConnectionNotice::Tunnel(TunnelEvent::Ready) => self.on_ready(id),
            ConnectionNotice::Tunnel(TunnelEvent::Opened(flow, open)) => {
                self.on_opened(id, flow, *open);
            }
            ConnectionNotice::Tunnel(TunnelEvent::Packets) => self.on_packets(id),
            ConnectionNotice::Tunnel(TunnelEvent::Query(query, message)) => {
                self.on_query(id, query, message);
            }
            ConnectionNotice::Tunnel(TunnelEvent::Publish(asked)) => self.on_publish(id, asked),
            ConnectionNotice::Tunnel(TunnelEvent::Enrol(key)) => self.on_enrol(id, key),
            ConnectionNotice::Tunnel(
                TunnelEvent::Goaway
                | TunnelEvent::Flow(_)
                | TunnelEvent::Answer(..)
                | TunnelEvent::Families
                | TunnelEvent::Inbound(..)
                | TunnelEvent::Published(..)
                | TunnelEvent::Enrolled(..),
            ) => {}
            ConnectionNotice::Outage(outage) => self.on_outage(id, outage),
            ConnectionNotice::Unreachable(_) => {}
            ConnectionNotice::Fault(fault) => {
                let fault = printable(fault);
                tracing::warn!(client = self.name(id), "tunnel closed: {fault}");
                self.forget(id);
            }
            ConnectionNotice::UnknownKey(key, address) => self.on_unknown_key(&key, address),
            ConnectionNotice::Lost(reason) => {
                let reason = printable(reason);
                match self.open.borrow().get(&id) {
                    Some(session) => {
                        tracing::info!(target: crate::events::STATE, client = session.client.name, "disconnected: {reason}");
                    }
                    None => tracing::debug!("handshake failed: {reason}"),
                }
                self.forget(id);
            }
        }
    }

    pub(super) fn name(&self, id: ConnectionId) -> String {
        let sessions = self.open.borrow();
        sessions
            .get(&id)
            .map_or_else(|| "unknown".to_owned(), |s| s.client.name.clone())
    }

    fn on_connected(self: &Rc<Self>, id: ConnectionId) {
        let key = self.shard.peek(|engine| {
            engine
                .peek(id)
                .and_then(|connection| identity::peer_key(connection.quic()))
        });
        if let Some(key) = key.filter(|key| self.shared.clients.is_enrolment(key)) {
            return self.begin_enrolment(id, key);
        }
        let known = key.and_then(|key| Some((key, self.shared.clients.get(&key)?)));
        match known {
            Some((key, client)) => {
                self.shared.registry.enter(key, self.index, id);
                self.set_limits(id, &client);
                self.resume(id, &key);
                let (filter, translator) = self.set_packets(id, &client);
                let session = Session {
                    key,
                    client,
                    sampler: Sampler::new(process::now()),
                    filter,
                    translator,
                    ports: Ports::default(),
                    connected: HashMap::new(),
                    asking: Rc::default(),
                };
                self.open.borrow_mut().insert(id, session);
            }
            None => self.close(id, CloseCode::Removed, "not among the clients"),
        }
    }

    /// Sets how the client's packets cross, which it is told.
    fn set_packets(
        &self,
        id: ConnectionId,
        client: &Arc<Client>,
    ) -> (Option<Filter>, Option<Translator>) {
        let (device, sockets) = (self.shared.packets.as_ref(), self.shared.sockets.as_ref());
        let filter = device.map(|packets| packets.filter(client, &self.rule));
        let filter = filter.or_else(|| Some(sockets?.filter(client, &self.rule)));
        let translator = |filter| Some(sockets?.translator(filter, &self.shard, id));
        let translator = filter.as_ref().and_then(translator);
        if let Some(filter) = &filter {
            self.shard
                .change(id, |connection| filter.announce(connection));
        }
        (filter, translator)
    }

    /// The client is known, and so is its path, if it has been here before.
    fn resume(&self, id: ConnectionId, key: &PublicKey) {
        let now = process::now();
        self.shard.change(id, |connection| {
            self.shared
                .paths
                .resume(&path(connection, key), now, connection);
        });
    }

    /// Takes in what a tunnel shows of its path. A client that moves to another network starts a controller anew.
    fn learn(&self, connection: &Connection, session: &Session) {
        if let Some(saved) = connection.saved(process::now()) {
            self.shared
                .paths
                .learn(path(connection, &session.key), &saved);
        }
    }

    fn set_limits(&self, id: ConnectionId, client: &Client) {
        let now = process::now();
        self.shard.change(id, |connection| {
            connection.tunnel.set_memory(client.memory);
            connection.tunnel.set_max_flows(client.max_flows);
            connection.set_max_rate(now, client.max_rate);
            connection.set_max_flows(client.max_flows);
        });
    }

    fn on_ready(&self, id: ConnectionId) {
        let sessions = self.open.borrow();
        let Some(session) = sessions.get(&id) else {
            return;
        };
        let found = self.shard.peek(|engine| {
            let connection = engine.peek(id)?;
            let hello = connection.tunnel.remote()?;
            Some((
                hello.instance,
                printable(&hello.agent),
                connection.peer(),
                connection.resumed().map(|saved| saved.rate),
            ))
        });
        if let Some((instance, agent, address, resumed)) = found {
            let client = &session.client.name;
            match resumed.map(|rate| status::rate(rate.as_u64())) {
                Some(rate) => {
                    tracing::info!(target: crate::events::STATE, client, agent, %address, "connected, resumed at {rate}");
                }
                None => {
                    tracing::info!(target: crate::events::STATE, client, agent, %address, "connected");
                }
            }
            self.shared
                .registry
                .arrive(session.key, instance, self.index, id);
            if let (Some(packets), Some(filter)) = (&self.shared.packets, &session.filter) {
                packets.enter(filter, (self.index, id));
            }
        }
    }

    /// A client's packets have come.
    fn on_packets(&self, id: ConnectionId) {
        let now = process::now();
        let mut sessions = self.open.borrow_mut();
        let Some(session) = sessions.get_mut(&id) else {
            return;
        };
        let (translator, filter) = (session.translator.as_mut(), session.filter.as_mut());
        self.shard.change(id, |connection| {
            match (&self.shared.packets, translator, filter) {
                (Some(packets), _, Some(filter)) => packets.take(filter, now, connection),
                (None, Some(sockets), Some(filter)) => sockets.take(filter, now, connection),
                _ => {}
            }
        });
    }

    /// Sends packets for this shard's clients; never ends.
    pub(super) async fn deliver(&self, inbox: Option<Inbox>) {
        let Some(mut inbox) = inbox else {
            return pending().await;
        };
        while let Some(batch) = inbox.recv().await {
            let now = process::now();
            let mut sessions = self.open.borrow_mut();
            self.shard.with(|engine| {
                for (id, packet) in batch {
                    let filter = sessions
                        .get_mut(&id)
                        .and_then(|known| known.filter.as_mut());
                    if filter.is_some_and(|filter| !filter.admits(now, &packet)) {
                        continue;
                    }
                    if let Some(connection) = engine.connection(id) {
                        connection.tunnel.send_packet(now, packet);
                    }
                }
            });
        }
        pending::<()>().await;
    }

    fn on_opened(self: &Rc<Self>, id: ConnectionId, flow: FlowKey, open: Open) {
        let sessions = self.open.borrow();
        let Some(session) = sessions.get(&id) else {
            return;
        };
        let client = session.client.clone();
        drop(sessions);
        if let Some(code) = self.refusal(id, &client) {
            return self.reply(id, flow, code, None);
        }
        let this = self.clone();
        spawn_local(async move {
            let destination = open.destination;
            let handle = FlowHandle::new(this.shard.clone(), id, flow);
            // Apart, so that what dialling needs does not stay with the flow for its life.
            let dialling = Box::pin(this.dialler.dial(&destination, &client.rights));
            let dialled = tokio::select! {
                dialled = dialling => dialled,
                // Nobody is left to connect for; an abort alone is no reason, for bytes may precede it.
                () = handle.gone() => return,
            };
            let connected = dialled.and_then(|(stream, to)| {
                this.enter(id, flow, to)?;
                Ok(stream)
            });
            match connected {
                Ok(stream) => {
                    this.reply(id, flow, ReplyCode::Ok, stream.local_addr().ok());
                    let outcome = Relay::new(handle, stream).run().await;
                    this.leave(id, flow);
                    tracing::debug!(client = client.name, %destination, ?outcome, "flow ended");
                }
                Err(NotDialled { code, denied }) => {
                    tracing::debug!(client = client.name, %destination, ?code, "flow refused");
                    if let Some((address, denied)) = denied {
                        let what = format!("{address} {denied:?}");
                        this.tell_once(&client.name, &what, |name| {
                            format!("{address} is denied: {denied} of [[client]] {name}")
                        });
                    }
                    this.reply(id, flow, code, None);
                }
            }
        });
    }

    /// Reason why a client may not open one more flow now, if it may not.
    fn refusal(&self, id: ConnectionId, client: &Client) -> Option<ReplyCode> {
        let (draining, count) = self.shard.peek(|engine| {
            let tunnel = &engine.peek(id)?.tunnel;
            Some((tunnel.is_draining(), tunnel.flow_count() as u64))
        })?;
        if draining {
            return Some(ReplyCode::Draining);
        }
        let text = if count > client.max_flows {
            "has as many flows open as it may: more are refused (max_flows)"
        } else if !client.may_open(process::now()) {
            "opens more flows a second than it may: the rest is refused (max_flows_per_s)"
        } else {
            return None;
        };
        self.tell_once(&client.name, text, |name| format!("{name} {text}"));
        Some(ReplyCode::LimitReached)
    }

    /// Notes what a flow is connected to. Its client's rights may have changed while that took place.
    fn enter(&self, id: ConnectionId, flow: FlowKey, to: SocketAddr) -> Result<(), NotDialled> {
        let mut sessions = self.open.borrow_mut();
        let Some(session) = sessions.get_mut(&id) else {
            return Err(ReplyCode::Draining.into());
        };
        self.dialler.permits(&session.client.rights.policy, to)?;
        session.connected.insert(flow, to);
        Ok(())
    }

    fn leave(&self, id: ConnectionId, flow: FlowKey) {
        if let Some(session) = self.open.borrow_mut().get_mut(&id) {
            session.connected.remove(&flow);
        }
    }

    /// Ends the flows of a client that its rights do not permit any more.
    fn revoke_flows(&self, id: ConnectionId, session: &Session) {
        let policy = &session.client.rights.policy;
        let permitted = |to: &SocketAddr| self.dialler.permits(policy, *to).is_ok();
        let connected = session.connected.iter();
        let denied: Vec<_> = connected.filter(|(_, to)| !permitted(to)).collect();
        if denied.is_empty() {
            return;
        }
        tracing::info!(
            client = session.client.name,
            "{} flows ended that are not permitted any more",
            denied.len()
        );
        self.shard.change(id, |connection| {
            let (tunnel, quic) = connection.parts();
            for (flow, _) in denied {
                tunnel.revoke(quic, *flow, AbortCode::Denied);
            }
        });
    }

    /// Warns of something that a client may not do: once, until the configuration changes.
    fn tell_once(&self, client: &str, what: &str, text: impl FnOnce(&str) -> String) {
        match self.rule.notices.of_client(client, what) {
            Say::This => tracing::warn!("{}", text(client)),
            Say::More => tracing::warn!("{client}: more of what it may not do is not named"),
            Say::Nothing => {}
        }
    }

    /// A stranger, or a client that was not entered yet.
    fn on_unknown_key(&self, key: &PublicKey, address: SocketAddr) {
        let address = process::canonical(address);
        match self.rule.notices.of_key(process::now(), *key) {
            // A client that joins shows its own key first, and names it next.
            Say::This if self.shared.clients.awaits() => {
                tracing::info!("{address} shows the key {key}, which no [[client]] has (yet)");
            }
            Say::This => tracing::warn!(
                "{address} shows a key that no [[client]] has; to let it in, add one with public_key = \"{key}\""
            ),
            Say::More => tracing::warn!("more unknown keys come and are not named"),
            Say::Nothing => {}
        }
    }

    /// Finds out which prefixes lead to IPv4 addresses by a translator of the network, once a client asks for an
    /// address that may have such a prefix; never ends.
    pub(super) async fn discover(&self) {
        let Some(translations) = &self.translations else {
            return pending().await;
        };
        translations.wanted().await;
        loop {
            let addresses = self.resolver.probe_translations().await;
            let found = addresses.map(|addresses| nat64::discover(&addresses));
            let changed = translations.learn(found.as_deref());
            let known = translations.known().unwrap_or_default();
            if changed {
                let prefixes: Vec<_> = known.iter().map(|known| known.prefix()).collect();
                tracing::info!(
                    "NAT64 of this network: {}; what it leads to is judged as the IPv4 address",
                    process::join(&prefixes)
                );
            }
            sleep(PROBE_AGAIN[usize::from(known.is_empty())]).await;
        }
    }

    fn on_query(self: &Rc<Self>, id: ConnectionId, query: QueryKey, message: Bytes) {
        let asking = self.open.borrow().get(&id).map(|it| it.asking.clone());
        // The peer may stop a query and begin another, but what asks for it has sockets for some seconds.
        let Some(asking) = asking.filter(|asking| Rc::strong_count(asking) <= 1 + MAX_QUERIES)
        else {
            self.shard
                .change(id, |connection| connection.answer(query, None));
            return;
        };
        let this = self.clone();
        let session = self.open.borrow();
        let Some(client) = session.get(&id).map(|session| session.client.clone()) else {
            return;
        };
        spawn_local(async move {
            let _asking = asking;
            let answer = tokio::select! {
                answer = this.resolver.resolve(&message) => answer,
                // A question that was given up makes room for another.
                () = this.stopped(id, query) => return,
            };
            // What the client makes of private addresses depends on whether it may reach them.
            let reaches = |address| {
                let policy = &client.rights.policy;
                policy.check(address, Service::Related, &[]).is_ok()
            };
            let answer = answer.map(|answer| match Query::decode(&message) {
                Ok(query) => Bytes::from(Answer::judged(answer, &query, reaches)),
                Err(_) => Bytes::from(answer),
            });
            this.shard
                .change(id, |connection| connection.answer(query, answer));
        });
    }

    /// Until the client wants no answer any more.
    async fn stopped(&self, id: ConnectionId, query: QueryKey) {
        let wanted = || {
            let asks = |engine: &Engine| Some(engine.peek(id)?.lane().has_query(query));
            self.shard.peek(asks).unwrap_or(false)
        };
        while wanted() {
            sleep(STOPPED_LOOK).await;
        }
    }

    fn reply(&self, id: ConnectionId, flow: FlowKey, code: ReplyCode, bound: Option<SocketAddr>) {
        self.shard.change(id, |connection| {
            let (tunnel, quic) = connection.parts();
            tunnel.reply(quic, flow, code, bound);
        });
    }

    fn forget(&self, id: ConnectionId) {
        if let Some(key) = self.enrolling.borrow_mut().remove(&id) {
            self.shared.registry.leave(&key, self.index, id);
        }
        if let Some(session) = self.open.borrow_mut().remove(&id) {
            self.shared.registry.leave(&session.key, self.index, id);
            if let Some(packets) = &self.shared.packets {
                packets.leave((self.index, id));
            }
            self.shared.paths.tunnel_ended();
        }
    }

    pub(super) fn close(&self, id: ConnectionId, code: CloseCode, reason: &str) {
        let now = process::now();
        self.shard.change(id, |connection| {
            connection.close(now, code.code(), reason.to_owned());
        });
        self.forget(id);
    }

    pub(super) async fn obey(
        self: &Rc<Self>,
        commands: &mut mpsc::UnboundedReceiver<Command>,
        patience: Duration,
    ) {
        while let Some(command) = commands.recv().await {
            match command {
                Command::Drain => break,
                Command::End => return self.close_all().await,
                Command::Recheck => self.recheck(),
                Command::Families(families) => {
                    self.shard.with(|engine| engine.set_families(families));
                }
                Command::Yield(id) => {
                    if let Some(session) = self.open.borrow_mut().get_mut(&id) {
                        session.ports.clear();
                    }
                }
                Command::Replaced(id) => {
                    tracing::info!(client = self.name(id), "replaced by a newer connection");
                    self.close(id, CloseCode::Replaced, "the client has connected again");
                }
            }
        }
        self.drain();
        tokio::select! {
            _ = timeout(patience, process::until_idle(&self.shard)) => {}
            () = until_end(commands) => {}
        }
        self.close_all().await;
    }

    fn recheck(self: &Rc<Self>) {
        let (max_flows, memory) = self.shared.clients.limits();
        self.shard
            .with(|engine| engine.set_limits(max_flows, memory));
        let mut removed = Vec::new();
        for (&id, session) in self.open.borrow_mut().iter_mut() {
            match self.shared.clients.get(&session.key) {
                Some(client) => {
                    self.set_limits(id, &client);
                    if let Some(filter) = &mut session.filter {
                        filter.set_client(client.clone());
                        if let Some(translator) = &mut session.translator {
                            translator.recheck(filter, process::now());
                        }
                    }
                    session.client = client;
                    self.revoke_flows(id, session);
                }
                None => removed.push(id),
            }
        }
        let left: Vec<_> = self.open.borrow().keys().copied().collect();
        left.into_iter().for_each(|id| self.check_ports(id));
        for id in removed {
            tracing::info!(client = self.name(id), "removed from the configuration");
            self.close(
                id,
                CloseCode::Removed,
                "removed from the server's configuration",
            );
        }
    }

    /// Takes in nothing new, and tells the clients so.
    fn drain(&self) {
        let open: Vec<_> = self.open.borrow().keys().copied().collect();
        self.shard.with(|engine| {
            engine.stop_accepting();
            for id in open {
                if let Some(connection) = engine.connection(id) {
                    connection.tunnel.send_goaway();
                }
            }
        });
    }

    /// Closes every connection, those included whose handshake was under way when the stop began.
    async fn close_all(self: &Rc<Self>) {
        let open: Vec<_> = self.open.borrow().keys().copied().collect();
        for id in open {
            self.close(id, CloseCode::Shutdown, "the server is stopping");
        }
        process::flush(&self.shard).await;
    }

    /// Keeps the shard's part of `status` fresh.
    pub(super) async fn publish(&self, report: &Reports) -> io::Result<()> {
        let mut tick = interval(Duration::from_secs(1));
        loop {
            tick.tick().await;
            #[cfg(target_os = "linux")]
            if self.shard.with(Engine::strangers_subside) {
                bentpipe_sys::heap::trim();
            }
            let now = process::now();
            self.shard.share_memory();
            let mut sessions = self.open.borrow_mut();
            let statuses = self.shard.peek(|engine| {
                let status = |(&id, session): (&ConnectionId, &mut Session)| {
                    let connection = engine.peek(id)?;
                    if let Some(translator) = &mut session.translator {
                        translator.handle_timeout(now);
                    }
                    self.learn(connection, session);
                    let mut sampled = session.sampler.sample(now, connection, TunnelState::Ready);
                    if let Some(filter) = &session.filter {
                        filter.count(&mut sampled);
                    }
                    if let Some(translator) = &session.translator {
                        translator.count(&mut sampled);
                    }
                    sampled.publish = session.ports.report();
                    Some(ClientStatus {
                        name: session.client.name.clone(),
                        shard: Some(self.index),
                        session: sampled,
                    })
                };
                sessions.iter_mut().filter_map(status).collect()
            });
            drop(sessions);
            *report.lock().unwrap_or_else(PoisonError::into_inner) = statuses;
        }
    }
}

/// Waits for the command to end at once.
async fn until_end(commands: &mut mpsc::UnboundedReceiver<Command>) {
    loop {
        match commands.recv().await {
            Some(Command::End) => return,
            Some(_) => {}
            None => pending().await,
        }
    }
}

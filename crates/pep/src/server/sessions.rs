//! What happens on one shard of the server: its clients' sessions.
//!
//! Events of the engine and commands of the main thread come in; the engine is told what a client may do. Which ways a client's
//! traffic takes is in `ways.rs`; its packets are in `delivery.rs` and `crossing.rs`, its ports in `publishing.rs`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use bentpipe_proto::tunnel::{CloseCode, LesBody, LesKind};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{interval, timeout};

use super::command::{self, Command};
use super::connected::{Connected, path};
use super::crossing::Crossing;
use super::delivery;
use super::pool::Reports;
use super::ways::Ways;
use super::worker::{Shared, Worker};
use crate::process;
use crate::shard::Shard;
use crate::status::ClientStatus;
use bentpipe_tunnel::engine::identity::{self, PublicKey};
use bentpipe_tunnel::engine::{ConnectionId, ConnectionNotice, Engine, Event};
use bentpipe_tunnel::text::printable;
use bentpipe_tunnel::transport::{QueryKey, TunnelEvent};

/// A tunnel that was not heard for this long is left once its client has a newer one: a client that keeps a silent tunnel closes the
/// newer one when it hears the old one again.
const LEFT: Duration = Duration::from_secs(60);

/// State of the running shard.
pub(super) struct Sessions {
    pub(super) shard: Rc<Shard>,
    pub(super) index: u8,
    pub(super) shared: Shared,
    ways: Ways,
    pub(super) open: RefCell<HashMap<ConnectionId, Connected>>,
    /// Connections of clients that are to name a key of their own, with their enrolment keys.
    pub(super) enrolling: RefCell<HashMap<ConnectionId, PublicKey>>,
}

impl Sessions {
    /// Sessions of a shard to which nobody is connected yet.
    pub(super) fn new(worker: &Worker, shard: Rc<Shard>) -> Rc<Self> {
        Rc::new(Self {
            ways: Ways::new(worker, &shard),
            shard,
            index: worker.index,
            shared: worker.shared.clone(),
            open: RefCell::default(),
            enrolling: RefCell::default(),
        })
    }

    /// Ways that the clients' traffic takes.
    pub(super) fn ways(&self) -> &Ways {
        &self.ways
    }

    pub(super) fn on_event(self: &Rc<Self>, event: Event) {
        let id = event.connection;
        match event.notice {
            ConnectionNotice::Connected => self.on_connected(id),
            ConnectionNotice::Tunnel(said) => self.on_said(id, said),
            ConnectionNotice::Outage(outage) => self.on_outage(id, outage),
            ConnectionNotice::Unreachable(_) => {}
            ConnectionNotice::Fault(fault) => {
                let fault = printable(fault);
                tracing::warn!(client = self.name(id), "tunnel closed: {fault}");
                self.forget(id);
            }
            ConnectionNotice::UnknownKey(key, address) => {
                let (now, awaits) = (process::now(), self.shared.clients.awaits());
                let notices = &self.shared.notices;
                notices.tell_of_key(now, (&key, address), awaits);
            }
            ConnectionNotice::Lost(reason) => {
                self.tell_of_end(id, &printable(reason));
                self.forget(id);
            }
        }
    }

    /// Takes what a client says in its tunnel.
    fn on_said(self: &Rc<Self>, id: ConnectionId, said: TunnelEvent) {
        match said {
            TunnelEvent::Ready => self.on_ready(id),
            TunnelEvent::Opened(flow, open) => self.ways.open(id, flow, *open),
            TunnelEvent::Packets => delivery::take(self, id),
            TunnelEvent::Query(query, message) => self.on_query(id, query, message),
            TunnelEvent::Publish(asked) => self.on_publish(id, asked),
            TunnelEvent::Enrol(key) => self.on_enrol(id, key),
            TunnelEvent::SleEpoch(epoch, random) => {
                if !self.ways.on_epoch(id, epoch, random) {
                    let why = "an epoch of SLE that does not follow";
                    self.close(id, CloseCode::ProtocolViolation, why);
                }
            }
            TunnelEvent::Les(kind, body) => self.on_les(id, kind, &body),
            TunnelEvent::Goaway
            | TunnelEvent::Flow(_)
            | TunnelEvent::Answer(..)
            | TunnelEvent::Families
            | TunnelEvent::Inbound(..)
            | TunnelEvent::Segments(_)
            | TunnelEvent::Published(..)
            | TunnelEvent::Enrolled(..) => {}
        }
    }

    /// Connection `id` is not answered (`outage`), or is again: packets go by another of its client, whose ports close if that lasts.
    fn on_outage(self: &Rc<Self>, id: ConnectionId, outage: bool) {
        let place = (self.index, id);
        if let Some(session) = self.open.borrow().get(&id) {
            self.shared.registry.on_outage(&session.key, place, outage);
        }
        if let Some(packets) = &self.shared.packets {
            packets.on_outage(place, outage);
        }
        self.silence_ports(id, outage);
    }

    fn tell_of_end(&self, id: ConnectionId, reason: &str) {
        match self.open.borrow().get(&id) {
            // A handshake that was to show whether UDP passes, or a client that thought better of it.
            Some(session) if !session.is_greeted() => {
                tracing::debug!(client = session.client.name, "handshake alone: {reason}");
            }
            Some(session) => {
                tracing::info!(target: crate::events::STATE, client = session.client.name, "disconnected: {reason}");
            }
            None => tracing::debug!("handshake failed: {reason}"),
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
                self.shard
                    .change(id, |connection| client.limit(process::now(), connection));
                self.resume(id, &key);
                let rule = self.ways.rule();
                let crossing = Crossing::new(&self.shared, rule, &self.shard, (id, &client));
                self.shard.change(id, |connection| {
                    crossing.announce(connection);
                    self.ways.offer(id, (key, &client), connection);
                });
                self.ways.permit(id, client.clone());
                let session = Connected::new(key, client, crossing);
                self.open.borrow_mut().insert(id, session);
            }
            None => self.close(id, CloseCode::Removed, "not among the clients"),
        }
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

    fn on_ready(&self, id: ConnectionId) {
        let sessions = self.open.borrow();
        let Some(session) = sessions.get(&id) else {
            return;
        };
        let greet = |engine: &Engine| session.greet(engine.peek(id)?);
        if let Some(instance) = self.shard.peek(greet) {
            let shared = &self.shared;
            let registry = &shared.registry;
            if registry.arrive(session.key, instance, self.index, id) {
                let what = "two processes with one key";
                self.shared.notices.tell_of_client(&session.client.name, what, |name| {
                    format!(
                        "{name}: two machines, or two programs of one, connect with its key in turn, and each ends what the other \
                         carries; give each a key of its own with `bentpipe server add`"
                    )
                });
            }
            session.crossing.enter(shared, (self.index, id));
        }
        self.ways.on_ready(id);
        if let Some(why) = self.ways.layered().and_then(|ends| ends.on_ready(id)) {
            let client = &session.client.name;
            let say = |name: &str| format!("{name}: {why}");
            self.shared.notices.tell_of_client(client, why, say);
        }
    }

    /// Takes a message of LES; a client that breaks its rules loses its tunnel.
    fn on_les(&self, id: ConnectionId, kind: LesKind, body: &LesBody) {
        let Some(layered) = self.ways.layered() else {
            return;
        };
        match layered.on_message(id, kind, body) {
            Ok(held) => delivery::take_layered(self, id, held),
            Err(violation) => {
                self.close(id, CloseCode::ProtocolViolation, &violation.to_string());
            }
        }
    }

    fn on_query(&self, id: ConnectionId, query: QueryKey, message: Bytes) {
        match self.open.borrow().get(&id) {
            Some(session) => {
                let client = session.client.clone();
                let queries = self.ways.queries();
                queries.ask((id, query), &session.asking, client, message);
            }
            None => self.ways.queries().refuse(id, query),
        }
    }

    fn forget(&self, id: ConnectionId) {
        if let Some(key) = self.enrolling.borrow_mut().remove(&id) {
            self.shared.registry.leave(&key, self.index, id);
        }
        self.ways.forget(id);
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
            _ = timeout(patience, process::until_idle(&self.shard, || self.ways.beside())) => {}
            () = command::until_end(commands) => {}
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
                    self.shard
                        .change(id, |connection| client.limit(process::now(), connection));
                    session.set_client(client.clone());
                    self.ways.permit(id, client);
                }
                None => removed.push(id),
            }
        }
        self.ways.recheck();
        let left: Vec<_> = self.open.borrow().keys().copied().collect();
        left.into_iter().for_each(|id| self.check_ports(id));
        delivery::withdraw_les(self);
        for id in removed {
            tracing::info!(client = self.name(id), "removed from the configuration");
            self.close(
                id,
                CloseCode::Removed,
                "removed from the server's configuration",
            );
        }
        delivery::renew(self);
    }

    /// Takes in nothing new, and tells the clients so.
    fn drain(&self) {
        self.ways.drain();
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

    /// Tunnels whose clients have left them for another way, of which the news were lost with the old one.
    fn left(&self, now: Instant, sessions: &HashMap<ConnectionId, Connected>) -> Vec<ConnectionId> {
        let is_left = |(id, session): &(&ConnectionId, &Connected)| {
            let heard = self.shard.peek(|engine| engine.peek(**id)?.heard());
            let is_silent = heard.is_some_and(|heard| now.saturating_duration_since(heard) >= LEFT);
            let registry = &self.shared.registry;
            is_silent && registry.is_superseded(&session.key, self.index, **id)
        };
        let left = sessions.iter().filter(is_left);
        left.map(|(id, _)| *id).collect()
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
            self.ways.tick();
            delivery::end_renewed(self);
            let mut sessions = self.open.borrow_mut();
            // A list of thousands that grows by doubling would keep room for as many again.
            let mut statuses = Vec::with_capacity(sessions.len());
            self.shard.peek(|engine| {
                let status = |(&id, session): (&ConnectionId, &mut Connected)| {
                    let connection = engine.peek(id)?;
                    session.learn(now, connection, &self.shared.paths);
                    let mut sample = session.sample(now, connection);
                    self.ways.report((id, &session.key), &mut sample);
                    Some(ClientStatus {
                        name: session.client.name.clone(),
                        shard: Some(self.index),
                        session: sample,
                    })
                };
                statuses.extend(sessions.iter_mut().filter_map(status));
            });
            let left = self.left(now, &sessions);
            drop(sessions);
            *report.lock().unwrap_or_else(PoisonError::into_inner) = statuses;
            for id in left {
                tracing::info!(target: crate::events::STATE, client = self.name(id), "a tunnel that is not heard any more ends: the client has a newer one");
                self.close(id, CloseCode::NoError, "the client has a newer tunnel");
            }
        }
    }
}

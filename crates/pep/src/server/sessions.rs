//! What happens on one shard of the server: its clients' sessions.
//!
//! Events of the engine and commands of the main thread come in; the engine is told what a client may do. A client's flows
//! are in `flows.rs`, its packets in `crossing.rs`, its DNS in `queries.rs`, its ports in `publishing.rs`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bentpipe_proto::tunnel::{CloseCode, LesBody, LesKind};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{interval, timeout};

use super::command::{self, Command};
use super::connected::{Connected, path};
use super::crossing::Crossing;
use super::flows::FlowRights;
use super::les::{LayeredEnds, LayeredTunnels, LesInbox};
use super::notices::Say;
use super::packets::{Inbox, Rule};
use super::pool::Reports;
use super::queries::Queries;
use super::sle::{FreshFlow, SealedFlows, SealedTunnels};
use super::web::ServedPages;
use super::worker::{Shared, Worker};
use crate::config::Nat64;
use crate::les::BATCH;
use crate::net::dial::Dialler;
use crate::net::judge::Judge;
use crate::net::resolver::Resolver;
use crate::process;
use crate::shard::Shard;
use crate::status::{self, ClientStatus};
use bentpipe_tunnel::engine::identity::{self, PublicKey};
use bentpipe_tunnel::engine::{ConnectionId, ConnectionNotice, Engine, Event};
use bentpipe_tunnel::text::printable;
use bentpipe_tunnel::transport::{QueryKey, TunnelEvent};

/// State of the running shard.
pub(super) struct Sessions {
    pub(super) shard: Rc<Shard>,
    pub(super) index: u8,
    pub(super) shared: Shared,
    flows: Rc<FlowRights>,
    pages: Rc<ServedPages>,
    sealed: Option<Rc<SealedFlows>>,
    layered: Option<Rc<LayeredEnds>>,
    queries: Rc<Queries>,
    rule: Rule,
    pub(super) open: RefCell<HashMap<ConnectionId, Connected>>,
    /// Connections of clients that are to name a key of their own, with their enrolment keys.
    pub(super) enrolling: RefCell<HashMap<ConnectionId, PublicKey>>,
}

impl Sessions {
    /// Sessions of a shard to which nobody is connected yet.
    pub(super) fn new(worker: &Worker, shard: Rc<Shard>) -> Rc<Self> {
        let (shared, dialling) = (&worker.shared, &worker.dialling);
        let resolver = Rc::new(Resolver::new(&dialling.dns.servers));
        let judge = Rc::new(Judge::new(shared.translations.clone()));
        let dialler = Dialler::new(judge.clone(), resolver.clone(), dialling.connect_timeout)
            .with_responder(worker.responder);
        let discovers = worker.index == 0 && dialling.nat64 == Nat64::Discovered;
        let translations = discovers.then(|| shared.translations.clone());
        let flows = FlowRights::new(shard.clone(), dialler, shared.notices.clone());
        let sealed = |tunnels: &Arc<SealedTunnels>| {
            let place = (shard.clone(), worker.index);
            let clients = shared.clients.clone();
            SealedFlows::new(tunnels.clone(), place, clients, flows.clone())
        };
        let layered = |tunnels: &Arc<LayeredTunnels>| {
            LayeredEnds::new(tunnels.clone(), (shard.clone(), worker.index))
        };
        Rc::new(Self {
            layered: shared.layered.as_ref().map(layered),
            sealed: shared.sealed.as_ref().map(sealed),
            pages: ServedPages::new(
                (flows.clone(), shared.pages),
                shared.trust.clone(),
                shared.hub.clone(),
            ),
            flows,
            queries: Queries::new(shard.clone(), resolver, translations),
            rule: Rule {
                judge,
                notices: shared.notices.clone(),
            },
            shard,
            index: worker.index,
            shared: shared.clone(),
            open: RefCell::default(),
            enrolling: RefCell::default(),
        })
    }

    /// Finds out the prefixes of the network's translator; never ends.
    pub(super) async fn discover(&self) {
        self.queries.discover().await;
    }

    pub(super) fn on_event(self: &Rc<Self>, event: Event) {
        let id = event.connection;
        match event.notice {
            ConnectionNotice::Connected => self.on_connected(id),
            ConnectionNotice::Tunnel(TunnelEvent::Ready) => self.on_ready(id),
            ConnectionNotice::Tunnel(TunnelEvent::Opened(flow, open)) => match open.page {
                true => self.pages.open(id, flow, open.destination),
                false => self.flows.open(id, flow, *open),
            },
            ConnectionNotice::Tunnel(TunnelEvent::Packets) => self.on_packets(id),
            ConnectionNotice::Tunnel(TunnelEvent::Query(query, message)) => {
                self.on_query(id, query, message);
            }
            ConnectionNotice::Tunnel(TunnelEvent::Publish(asked)) => self.on_publish(id, asked),
            ConnectionNotice::Tunnel(TunnelEvent::Enrol(key)) => self.on_enrol(id, key),
            ConnectionNotice::Tunnel(TunnelEvent::SleEpoch(epoch, random)) => {
                let sealed = self.sealed.as_ref().zip(random);
                if !sealed.is_some_and(|(sealed, random)| sealed.on_epoch(id, epoch, random)) {
                    let why = "an epoch of SLE that does not follow";
                    self.close(id, CloseCode::ProtocolViolation, why);
                }
            }
            ConnectionNotice::Tunnel(TunnelEvent::Les(kind, body)) => self.on_les(id, kind, &body),
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
                    // A handshake that was to show whether UDP passes, or a client that thought better of it.
                    Some(session) if !session.is_greeted() => {
                        tracing::debug!(client = session.client.name, "handshake alone: {reason}");
                    }
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
                self.shard
                    .change(id, |connection| client.limit(process::now(), connection));
                self.resume(id, &key);
                let crossing = Crossing::new(&self.shared, &self.rule, &self.shard, (id, &client));
                self.shard
                    .change(id, |connection| crossing.announce(connection));
                if let Some(sealed) = &self.sealed {
                    self.shard
                        .change(id, |connection| sealed.offer(id, key, connection));
                }
                if let Some(layered) = &self.layered {
                    self.shard
                        .change(id, |connection| layered.offer(id, &client, connection));
                }
                self.flows.permit(id, client.clone());
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
            shared
                .registry
                .arrive(session.key, instance, self.index, id);
            session.crossing.enter(shared, (self.index, id));
        }
        if let Some(sealed) = &self.sealed {
            sealed.on_ready(id);
        }
    }

    /// Takes in sealed flows; never ends.
    pub(super) async fn take_in_sealed(
        &self,
        inbox: Option<mpsc::Receiver<FreshFlow>>,
    ) -> Infallible {
        match &self.sealed {
            Some(sealed) => sealed.take_in(inbox).await,
            None => pending().await,
        }
    }

    /// Takes a message of LES; a client that breaks its rules loses its tunnel.
    fn on_les(&self, id: ConnectionId, kind: LesKind, body: &LesBody) {
        let Some(layered) = &self.layered else {
            return;
        };
        match layered.on_message(id, kind, body) {
            Ok(held) => self.on_layered(id, held),
            Err(violation) => {
                self.close(id, CloseCode::ProtocolViolation, &violation.to_string());
            }
        }
    }

    /// Packets of a client have come by LES.
    fn on_layered(&self, id: ConnectionId, packets: Vec<Bytes>) {
        let now = process::now();
        let mut sessions = self.open.borrow_mut();
        let Some(session) = sessions.get_mut(&id).filter(|_| !packets.is_empty()) else {
            return;
        };
        self.shard.change(id, |connection| {
            let crossing = &mut session.crossing;
            crossing.take_layered(&self.shared, now, connection, packets);
        });
    }

    /// Takes in packets of LES; never ends.
    pub(super) async fn take_in_layered(&self, inbox: Option<LesInbox>) -> Infallible {
        if let Some((layered, mut inbox)) = self.layered.as_ref().zip(inbox) {
            let mut batch = Vec::with_capacity(BATCH);
            while inbox.recv_many(&mut batch, BATCH).await > 0 {
                for (id, packets) in layered.open(batch.drain(..)) {
                    self.on_layered(id, packets);
                }
            }
        }
        pending().await
    }

    /// A client's packets have come.
    fn on_packets(&self, id: ConnectionId) {
        let now = process::now();
        let mut sessions = self.open.borrow_mut();
        let Some(session) = sessions.get_mut(&id) else {
            return;
        };
        self.shard.change(id, |connection| {
            session.crossing.take(&self.shared, now, connection);
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
                    let known = sessions.get_mut(&id);
                    if known.is_some_and(|known| !known.crossing.admits(now, &packet)) {
                        continue;
                    }
                    let layered = self.layered.as_ref();
                    if layered.is_some_and(|layered| layered.send(id, &packet)) {
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

    /// A stranger, or a client that was not entered yet.
    fn on_unknown_key(&self, key: &PublicKey, address: SocketAddr) {
        let address = process::canonical(address);
        match self.shared.notices.of_key(process::now(), *key) {
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

    fn on_query(&self, id: ConnectionId, query: QueryKey, message: Bytes) {
        match self.open.borrow().get(&id) {
            Some(session) => {
                let client = session.client.clone();
                self.queries
                    .ask((id, query), &session.asking, client, message);
            }
            None => self.queries.refuse(id, query),
        }
    }

    fn forget(&self, id: ConnectionId) {
        if let Some(key) = self.enrolling.borrow_mut().remove(&id) {
            self.shared.registry.leave(&key, self.index, id);
        }
        self.flows.forget(id);
        self.pages.forget(id);
        if let Some(sealed) = &self.sealed {
            sealed.forget(id);
        }
        if let Some(layered) = &self.layered {
            layered.forget(id);
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
            _ = timeout(patience, process::until_idle(&self.shard, || self.sealed.as_ref().map_or(0, |it| it.active()))) => {}
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
                    self.flows.permit(id, client);
                }
                None => removed.push(id),
            }
        }
        if let Some(sealed) = &self.sealed {
            sealed.recheck();
        }
        let left: Vec<_> = self.open.borrow().keys().copied().collect();
        left.into_iter().for_each(|id| self.check_ports(id));
        self.withdraw_les();
        for id in removed {
            tracing::info!(client = self.name(id), "removed from the configuration");
            self.close(
                id,
                CloseCode::Removed,
                "removed from the server's configuration",
            );
        }
    }

    /// Ends the tunnels of clients that have been given a `max_rate`, which packets of LES do not keep. They come back without.
    fn withdraw_les(&self) {
        let Some(layered) = &self.layered else {
            return;
        };
        let sessions = self.open.borrow();
        let paced = sessions
            .iter()
            .filter(|(id, session)| session.client.is_paced() && layered.has(**id));
        let paced: Vec<_> = paced.map(|(id, _)| *id).collect();
        drop(sessions);
        for id in paced {
            tracing::info!(
                client = self.name(id),
                "has a max_rate now, which packets of LES do not keep: its tunnel begins anew"
            );
            self.close(
                id,
                CloseCode::NoError,
                "a max_rate, which LES does not keep",
            );
        }
    }

    /// Takes in nothing new, and tells the clients so.
    fn drain(&self) {
        if let Some(sealed) = &self.sealed {
            sealed.drain();
        }
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
            if let Some(sealed) = &self.sealed {
                sealed.tick();
            }
            if let Some(layered) = &self.layered {
                layered.tick();
            }
            self.pages.tick();
            let mut sessions = self.open.borrow_mut();
            let statuses = self.shard.peek(|engine| {
                let status = |(&id, session): (&ConnectionId, &mut Connected)| {
                    let connection = engine.peek(id)?;
                    session.learn(now, connection, &self.shared.paths);
                    let sealed = self.sealed.as_ref();
                    Some(ClientStatus {
                        name: session.client.name.clone(),
                        shard: Some(self.index),
                        session: status::Session {
                            sle: sealed.map(|sealed| sealed.report(&session.key)),
                            les: self.layered.as_ref().and_then(|layered| layered.report(id)),
                            web: (self.shared.pages || self.shared.hub.is_some())
                                .then(|| self.pages.report(id)),
                            ..session.sample(now, connection)
                        },
                    })
                };
                sessions.iter_mut().filter_map(status).collect()
            });
            drop(sessions);
            *report.lock().unwrap_or_else(PoisonError::into_inner) = statuses;
        }
    }
}

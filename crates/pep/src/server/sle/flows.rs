//! Sealed flows of one shard's clients: keys from their tunnels, rights as for flows in the tunnels.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bentpipe_proto::tunnel::{EpochRandom, Reply, ReplyCode};
use bentpipe_sealed::Exporter;
use bentpipe_sealed::sle::{Admissions, EXPORTER, Refusal};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};
use tokio::task::spawn_local;

use super::super::clients::Clients;
use super::super::flows::FlowRights;
use super::wish::{Wish, leads_to, request};
use super::{FreshFlow, SealedTunnels};
use crate::process;
use crate::relay::SealedFlow;
use crate::shard::Shard;
use crate::status;
use bentpipe_tunnel::engine::identity::PublicKey;
use bentpipe_tunnel::engine::{Connection, ConnectionId};

/// Numbers of tunnels on one shard: the name's other byte is the shard's.
const NUMBERS: u32 = 1 << 24;

/// Sealed flows of one shard.
pub(in crate::server) struct SealedFlows {
    tunnels: Arc<SealedTunnels>,
    shard: Rc<Shard>,
    index: u8,
    clients: Arc<Clients>,
    rights: Rc<FlowRights>,
    agreed: RefCell<HashMap<ConnectionId, Agreed>>,
    open: RefCell<HashMap<u64, CarriedFlow>>,
    /// Name of the next flow here.
    counter: Cell<u64>,
    draining: Cell<bool>,
}

/// What one tunnel has been offered.
struct Agreed {
    id: u32,
    key: PublicKey,
    state: Agreement,
}

/// How far a tunnel and the server are about sealed flows.
enum Agreement {
    /// The client has not said HELLO.
    Offered,
    /// The client has agreed: epochs come from this.
    Agreed(Exporter),
    /// The client may seal no more; an epoch that it asked for before it heard so is not answered.
    Withdrawn,
}

/// A flow at work.
struct CarriedFlow {
    key: PublicKey,
    /// Address that it is connected to, once it is.
    to: Option<SocketAddr>,
    cut: Rc<Notify>,
}

impl SealedFlows {
    /// Flows of shard `index`, with the rights that `clients` have and `rights` judges.
    pub(in crate::server) fn new(
        tunnels: Arc<SealedTunnels>,
        (shard, index): (Rc<Shard>, u8),
        clients: Arc<Clients>,
        rights: Rc<FlowRights>,
    ) -> Rc<Self> {
        Rc::new(Self {
            tunnels,
            shard,
            index,
            clients,
            rights,
            agreed: RefCell::default(),
            open: RefCell::default(),
            counter: Cell::default(),
            draining: Cell::new(false),
        })
    }

    /// Offers sealed flows to a client that has connected, if it may have them.
    pub(in crate::server) fn offer(
        &self,
        id: ConnectionId,
        key: PublicKey,
        connection: &mut Connection,
    ) {
        if !self.may_seal(&key) {
            return;
        }
        let name = self.name();
        let SealedTunnels { port, prefixes, .. } = &*self.tunnels;
        connection
            .tunnel
            .agreement_mut()
            .offer_sle(name, *port, prefixes);
        let agreed = Agreed {
            id: name,
            key,
            state: Agreement::Offered,
        };
        self.agreed.borrow_mut().insert(id, agreed);
    }

    /// A name that no tunnel of this shard has. At random: connections that name a tunnel have places of that one's, and who has
    /// not heard the name is not to guess it.
    fn name(&self) -> u32 {
        let agreed = self.agreed.borrow();
        loop {
            let number = process::random_u64() as u32 % NUMBERS;
            let name = u32::from(self.index) * NUMBERS + number;
            if agreed.values().all(|other| other.id != name) {
                return name;
            }
        }
    }

    /// The client of a tunnel has said HELLO.
    pub(in crate::server) fn on_ready(&self, id: ConnectionId) {
        let mut agreed = self.agreed.borrow_mut();
        let Some(tunnel) = agreed.get_mut(&id) else {
            return;
        };
        if let Agreement::Withdrawn = tunnel.state {
            self.tell_withdrawn(id);
            return;
        }
        let asked = self.shard.change(id, |connection| {
            let random = connection.tunnel.agreement_mut().take_sle_random()?;
            Some((random, connection.exporter(EXPORTER, &[])?))
        });
        let Some((random, exporter)) = asked.flatten() else {
            return;
        };
        let exporter = Exporter::new(exporter);
        let epoch = exporter.epoch(0, random.as_bytes());
        tunnel.state = Agreement::Agreed(exporter);
        let admissions = Admissions::new(epoch);
        self.tunnels.associations().insert(tunnel.id, admissions);
        self.tunnels.changed.notify_waiters();
    }

    /// True if a client may seal flows. One with a `max_rate` may not: nobody would keep it.
    fn may_seal(&self, key: &PublicKey) -> bool {
        self.clients
            .get(key)
            .is_some_and(|client| !client.is_paced())
    }

    /// The client of a tunnel begins the next epoch; false if that breaks the protocol.
    pub(in crate::server) fn on_epoch(
        &self,
        id: ConnectionId,
        number: u16,
        random: EpochRandom,
    ) -> bool {
        let agreed = self.agreed.borrow();
        let (name, exporter) = match agreed.get(&id).map(|tunnel| (tunnel.id, &tunnel.state)) {
            Some((name, Agreement::Agreed(exporter))) => (name, exporter),
            Some((_, Agreement::Withdrawn)) => return true,
            Some((_, Agreement::Offered)) | None => return false,
        };
        let epoch = exporter.epoch(number, random.as_bytes());
        let begun = self
            .tunnels
            .associations()
            .get_mut(&name)
            .is_some_and(|it| it.begin(process::now(), epoch).is_ok());
        if begun {
            self.shard
                .change(id, |connection| connection.tunnel.confirm_sle_epoch(number));
            self.tunnels.changed.notify_waiters();
        }
        begun
    }

    /// The tunnel is over: no flow begins with its keys any more. Those that are open have their own.
    pub(in crate::server) fn forget(&self, id: ConnectionId) {
        if let Some(agreed) = self.agreed.borrow_mut().remove(&id) {
            self.tunnels.associations().remove(&agreed.id);
        }
    }

    /// Erases the secrets of epochs that are over; to be called every second.
    pub(in crate::server) fn tick(&self) {
        let now = process::now();
        let mut associations = self.tunnels.associations();
        for agreed in self.agreed.borrow().values() {
            if let Some(admissions) = associations.get_mut(&agreed.id) {
                admissions.handle_timeout(now);
            }
        }
    }

    /// The list of clients has changed: ends the flows of those that are gone or may seal no more, and those that are not
    /// permitted any more.
    pub(in crate::server) fn recheck(&self) {
        self.withdraw();
        for flow in self.open.borrow().values() {
            let stays = self.clients.get(&flow.key).is_some_and(|client| {
                let permitted = |to| self.rights.permits(&client, to);
                !client.is_paced() && flow.to.is_none_or(permitted)
            });
            if !stays {
                flow.cut.notify_one();
            }
        }
    }

    /// No flow begins any more with the keys of clients that have been given a `max_rate`.
    fn withdraw(&self) {
        let mut associations = self.tunnels.associations();
        for (&id, tunnel) in self.agreed.borrow_mut().iter_mut() {
            let Some(client) = self.clients.get(&tunnel.key).filter(|it| it.is_paced()) else {
                continue;
            };
            tunnel.state = Agreement::Withdrawn;
            if associations.remove(&tunnel.id).is_some() {
                self.tell_withdrawn(id);
                tracing::info!(
                    client = client.name,
                    "has a max_rate now, which sealed flows do not keep: they end, and new ones go through the tunnel"
                );
            }
        }
    }

    fn tell_withdrawn(&self, id: ConnectionId) {
        self.shard
            .change(id, |connection| connection.tunnel.withdraw_sle());
    }

    /// Refuses new flows from now on.
    pub(in crate::server) fn drain(&self) {
        self.draining.set(true);
    }

    /// Flows that are open.
    pub(in crate::server) fn active(&self) -> u64 {
        self.open.borrow().len() as u64
    }

    /// A client's part of `status`.
    pub(in crate::server) fn report(&self, key: &PublicKey) -> status::Sle {
        self.tunnels.traffic_of(key).report()
    }

    /// Takes in flows from the main thread; never ends.
    pub(in crate::server) async fn take_in(
        self: &Rc<Self>,
        inbox: Option<mpsc::Receiver<FreshFlow>>,
    ) -> Infallible {
        if let Some(mut inbox) = inbox {
            while let Some(fresh) = inbox.recv().await {
                self.begin(fresh);
            }
        }
        pending().await
    }

    /// Begins a flow; one whose tunnel is gone meanwhile is reset.
    fn begin(self: &Rc<Self>, fresh: FreshFlow) {
        let FreshFlow {
            outer,
            unread,
            read,
            accepted,
            place,
        } = fresh;
        let Ok(outer) = TcpStream::from_std(outer) else {
            return;
        };
        let Some(wish) = self.wish(accepted.id, &accepted.open) else {
            return;
        };
        if place.is_some_and(|place| !leads_to(place, &wish.open.destination)) {
            self.tunnels
                .refused
                .redirected
                .fetch_add(1, Ordering::Relaxed);
            return self.rights.tell_of(&wish.client.name, "redirected", |name| {
                format!(
                    "{name}: an outer connection was made to another destination than the one that it seals: somebody on the way redirects it"
                )
            });
        }
        let traffic = self.tunnels.traffic_of(&wish.key);
        traffic.set_memory(wish.client.memory());
        let flow = SealedFlow::new(accepted.conn, (outer, unread), &self.shard, &traffic);
        flow.count_received(read);
        let (name, cut) = (self.counter.get(), Rc::new(Notify::new()));
        self.counter.set(name + 1);
        let entry = CarriedFlow {
            key: wish.key,
            to: None,
            cut: cut.clone(),
        };
        let refusal = self.refusal(&wish);
        self.open.borrow_mut().insert(name, entry);
        let this = self.clone();
        spawn_local(async move {
            tokio::select! {
                () = this.carry(name, flow, wish, refusal) => {}
                () = cut.notified() => {}
            }
            this.open.borrow_mut().remove(&name);
        });
    }

    /// What the client of tunnel `id` wants, if it still is one.
    fn wish(&self, id: u32, body: &[u8]) -> Option<Wish> {
        let agreed = self.agreed.borrow();
        let is_it = |it: &&Agreed| it.id == id && matches!(it.state, Agreement::Agreed(_));
        let tunnel = agreed.values().find(is_it);
        let Some((key, client)) = tunnel.and_then(|it| Some((it.key, self.clients.get(&it.key)?)))
        else {
            self.tunnels.count(Refusal::Association(id));
            return None;
        };
        let open = request(body);
        if open.is_none() {
            self.tunnels.refused.record.fetch_add(1, Ordering::Relaxed);
            tracing::debug!("sealed flow with a request that cannot be read");
        }
        open.map(|open| Wish { key, client, open })
    }

    /// Reason why a client may not open one more flow now, if it may not.
    fn refusal(&self, wish: &Wish) -> Option<ReplyCode> {
        if self.draining.get() {
            return Some(ReplyCode::Draining);
        }
        let open = self.open.borrow();
        let count = open.values().filter(|flow| flow.key == wish.key).count() as u64;
        self.rights
            .beyond_limits(&wish.client, count >= wish.client.max_flows)
    }

    /// Dials and relays, or refuses.
    async fn carry(&self, name: u64, mut flow: SealedFlow, wish: Wish, refusal: Option<ReplyCode>) {
        if let Some(code) = refusal {
            return flow.refuse(code).await;
        }
        // The outer connection and the inner one.
        let _places = match self.rights.place(&wish.client, 2) {
            Ok(places) => places,
            Err(code) => return flow.refuse(code).await,
        };
        let destination = &wish.open.destination;
        let dialled = tokio::select! {
            dialled = Box::pin(self.rights.dial(&wish.client, destination)) => dialled,
            () = flow.gone() => return,
        };
        let entered = dialled.and_then(|(lan, to)| {
            // Its client's rights may have changed while that took place.
            let client = self.clients.get(&wish.key).ok_or(ReplyCode::Denied)?;
            if !self.rights.permits(&client, to) {
                return Err(ReplyCode::Denied);
            }
            if let Some(flow) = self.open.borrow_mut().get_mut(&name) {
                flow.to = Some(to);
            }
            Ok(lan)
        });
        match entered {
            Ok(lan) => {
                flow.on_dialled(&Reply {
                    code: ReplyCode::Ok,
                    bound: lan.local_addr().ok(),
                    credit: 0,
                });
                let outcome = flow.run(lan, true, None).await;
                tracing::debug!(client = wish.client.name, %destination, ?outcome, "sealed flow ended");
            }
            Err(code) => flow.refuse(code).await,
        }
    }
}

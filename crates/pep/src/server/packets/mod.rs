//! Clients' packets on the server: a device, addresses to assign, and who has which.
//!
//! ```text
//!   client ═► shard: Filter ─► device ─► kernel: forward, masquerade ─► internet
//!   client ◄═ shard ◄─ channel ◄─ reader thread ◄─ device ◄─ kernel ◄─ internet
//! ```
//!
//! Shards write into the device themselves. One thread reads it and hands each packet to the shard with the connection of
//! the client whose address it bears. `kept.rs` restores whatever other programs remove. Without CAP_NET_ADMIN
//! the server carries UDP and ping alone of clients' packets, through ordinary sockets (`sockets.rs`).

mod filter;
mod kept;
mod network;
mod outlet;
mod plan;
mod routes;
mod sockets;

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_proto::packets::MTU;
use bentpipe_proto::tunnel::PacketKinds;
use bentpipe_sys::device::{self, Device};
use bentpipe_sys::link;
use bentpipe_sys::tun::BulkTun;
use bytes::{Bytes, BytesMut};
use rustix::event::{PollFd, PollFlags, poll};
use tokio::sync::mpsc;

use filter::Verdict;
pub(super) use filter::{Filter, Rule};
use plan::AddressPlan;
pub(super) use sockets::{Sockets, Translator};

use super::client_connections::Place;
use super::clients::Client;
use super::forwarding::{Forwarding, ServerTable};
use crate::config::ServerConfig;
use crate::device::{read_batch, write_batch};
use bentpipe_tunnel::engine::{Connection, ConnectionId};
pub(super) use network::Network;
use routes::PacketRoutes;

/// Batches that may wait for a shard before they are dropped.
const BATCHES: usize = 64;

/// Time between two looks for another device when ours is gone.
const GONE_PAUSE: Duration = Duration::from_millis(20);

/// Packets for connections of one shard.
pub(super) type Batch = Vec<(ConnectionId, Bytes)>;

/// Packets that the reader thread sends to one shard; the shard's own end.
pub(super) type Inbox = mpsc::Receiver<Batch>;

/// The server's end of all clients' packets.
pub(super) struct Packets {
    /// Another, once the device had to be made anew.
    tun: RwLock<Arc<BulkTun>>,
    plan: RwLock<AddressPlan>,
    routes: RwLock<PacketRoutes>,
    table: Table,
    /// UDP ports of this machine, and the clients' addresses that they lead to.
    published: Mutex<BTreeSet<(u16, IpAddr)>>,
}

type Table = Arc<Mutex<Option<ServerTable>>>;

fn lock(table: &Table) -> MutexGuard<'_, Option<ServerTable>> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Packets {
    /// Makes the device and begins to forward; the second part is an inbox for each of `shards`.
    fn start(
        config: &ServerConfig,
        table: Table,
        shards: usize,
    ) -> io::Result<(Arc<Self>, Vec<Inbox>)> {
        let device = Device::create(MTU)?;
        let packets = Arc::new(Self {
            tun: RwLock::new(Arc::new(device.into_tun())),
            plan: RwLock::default(),
            routes: RwLock::default(),
            table,
            published: Mutex::default(),
        });
        let nobody = AddressPlan::default();
        let plan = AddressPlan::new(&config.packets, &config.clients, &nobody);
        device::set_addresses(&[], &plan.own)?;
        packets.apply(plan)?;
        let (outboxes, inboxes) = (0..shards).map(|_| mpsc::channel(BATCHES)).unzip();
        let reader = packets.clone();
        thread::Builder::new()
            .name("packets".into())
            .spawn(move || reader.read(outboxes))?;
        Ok((packets, inboxes))
    }

    fn tun(&self) -> Arc<BulkTun> {
        let tun = self.tun.read().unwrap_or_else(PoisonError::into_inner);
        tun.clone()
    }

    /// Makes the device usable again: sets it up, or makes it anew if it is gone.
    fn reopen(&self) -> io::Result<()> {
        let mtu = u32::try_from(MTU).unwrap_or(u32::MAX);
        if link::set_up(device::NAME, mtu).is_err() {
            let device = Device::create(MTU)?;
            *self.tun.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(device.into_tun());
        }
        self.lead_in()?;
        // Its own settings went with it.
        lock(&self.table)
            .as_mut()
            .map_or(Ok(()), ServerTable::restore)
    }

    /// Gives the device its addresses, and leads clients' into it.
    fn lead_in(&self) -> io::Result<()> {
        let plan = self.plan.read().unwrap_or_else(PoisonError::into_inner);
        device::set_addresses(&[], &plan.own)?;
        device::add_routes(&[plan.addresses(), plan.routed()].concat())
    }

    /// The list of clients has changed.
    pub(super) fn reload(&self, config: &ServerConfig) -> io::Result<()> {
        let present = self.plan.read().unwrap_or_else(PoisonError::into_inner);
        let plan = AddressPlan::new(&config.packets, &config.clients, &present);
        drop(present);
        self.apply(plan)
    }

    /// Leads UDP `ports` of this machine to clients' addresses. On failure none of them is led, and it can be tried again.
    pub(super) fn publish(&self, ports: &[(u16, IpAddr)]) -> io::Result<()> {
        let mut table = lock(&self.table);
        let before = self.published().clone();
        self.published().extend(ports);
        let led = self.forward(table.as_mut());
        if led.is_err() {
            *self.published() = before;
        }
        led
    }

    /// Leads these UDP `ports` to clients' addresses no more. After a failure they end with the next change of the table.
    pub(super) fn unpublish(&self, ports: &[(u16, IpAddr)]) -> io::Result<()> {
        let mut table = lock(&self.table);
        self.published().retain(|port| !ports.contains(port));
        self.forward(table.as_mut())
    }

    /// Has the `table` forward what is published now.
    fn forward(&self, table: Option<&mut ServerTable>) -> io::Result<()> {
        let plan = self.plan.read().unwrap_or_else(PoisonError::into_inner);
        let forwarding = self.forwarding(&plan);
        table.map_or(Ok(()), |table| table.forward(&forwarding))
    }

    fn published(&self) -> MutexGuard<'_, BTreeSet<(u16, IpAddr)>> {
        self.published
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn forwarding(&self, plan: &AddressPlan) -> Forwarding {
        Forwarding {
            translated: plan.addresses(),
            routed: plan.routed(),
            published: self.published().iter().copied().collect(),
        }
    }

    fn apply(&self, plan: AddressPlan) -> io::Result<()> {
        // Held to the end: whoever changes the table meanwhile must know the plan.
        let mut table = lock(&self.table);
        let forwarding = self.forwarding(&plan);
        let present = self.plan.read().unwrap_or_else(PoisonError::into_inner);
        let before = present.routed();
        drop(present);
        // What may fail for a fault in the configuration comes first: then everything stays as it was.
        device::set_routes(&before, &forwarding.routed)?;
        let table = table.as_mut();
        let done = device::add_routes(&forwarding.translated)
            .and_then(|()| table.map_or(Ok(()), |table| table.forward(&forwarding)));
        if let Err(error) = done {
            // The plan stays, and what looks after the routes would find another program at fault for these.
            if let Err(fault) = device::set_routes(&forwarding.routed, &before) {
                tracing::debug!("routes into {} are not put back: {fault}", device::NAME);
            }
            return Err(error);
        }
        *self.plan.write().unwrap_or_else(PoisonError::into_inner) = plan;
        Ok(())
    }

    /// The filter for a client that connects.
    pub(super) fn filter(&self, client: &Arc<Client>, rule: &Rule) -> Filter {
        let plan = self.plan.read().unwrap_or_else(PoisonError::into_inner);
        let (assigned, from) = (plan.of(&client.name), plan.speaker());
        Filter::new(
            assigned,
            client.clone(),
            rule.clone(),
            from,
            PacketKinds::All,
        )
    }

    /// Has packets for this client go to `place`, as long as no newer connection of it answers.
    pub(super) fn enter(&self, filter: &Filter, place: Place) {
        let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
        routes.enter(filter.client_name(), filter.assigned(), place);
    }

    /// Takes from a connected client what the plan gives it no more; true if there was any.
    pub(super) fn withdraw(&self, filter: &mut Filter, place: Place) -> bool {
        let plan = self.plan.read().unwrap_or_else(PoisonError::into_inner);
        let lost = filter.keep_only(&plan.of(filter.client_name()));
        drop(plan);
        let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
        routes.withdraw(&lost, place);
        !lost.is_empty()
    }

    /// Has nothing go to `place` any more.
    pub(super) fn leave(&self, place: Place) {
        let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
        routes.leave(place);
    }

    /// Packets to `place` are not answered (`outage`), or are again.
    pub(super) fn on_outage(&self, place: Place, outage: bool) {
        let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
        routes.on_outage(place, outage);
    }

    /// Lets the packets that came through `connection` go on, as far as its client's `filter` permits.
    pub(super) fn take(&self, filter: &mut Filter, now: Instant, connection: &mut Connection) {
        let next = |connection: &mut Connection| connection.tunnel.take_packet();
        self.pass(filter, now, connection, next);
    }

    /// Lets packets of the client of `connection` go on that came beside the tunnel, as far as its `filter` permits.
    pub(super) fn take_layered(
        &self,
        filter: &mut Filter,
        now: Instant,
        connection: &mut Connection,
        packets: Vec<Bytes>,
    ) {
        let mut packets = packets.into_iter();
        self.pass(filter, now, connection, |_| packets.next());
    }

    /// Lets the packets that `next` yields go on, as far as `filter` permits; errors go back through the tunnel.
    fn pass(
        &self,
        filter: &mut Filter,
        now: Instant,
        connection: &mut Connection,
        mut next: impl FnMut(&mut Connection) -> Option<Bytes>,
    ) {
        filter.refresh();
        let tun = self.tun();
        let passed = std::iter::from_fn(|| {
            loop {
                let packet = next(connection)?;
                match filter.check(now, &packet) {
                    Verdict::Pass => return Some(packet),
                    Verdict::Answer(error) => connection.tunnel.send_packet(now, error),
                    Verdict::Drop => {}
                }
            }
        });
        write_batch(&tun, passed);
    }

    /// Reads the device for ever.
    fn read(&self, outboxes: Vec<mpsc::Sender<Batch>>) {
        let mut block = BytesMut::new();
        loop {
            let tun = self.tun();
            let mut batches: Vec<Batch> = outboxes.iter().map(|_| Batch::new()).collect();
            let ended = self.read_batch(&tun, &mut block, &mut batches);
            for (outbox, batch) in outboxes.iter().zip(batches) {
                if !batch.is_empty() {
                    // Full: dropped, as a link would.
                    let _ = outbox.try_send(batch);
                }
            }
            match ended {
                Ok(true) => {}
                Ok(false) => {
                    let mut ready = [PollFd::new(&*tun, PollFlags::IN)];
                    let _ = poll(&mut ready, None);
                }
                Err(error) => {
                    // Somebody has removed the device. Another comes soon.
                    tracing::debug!("cannot read {}: {error}", device::NAME);
                    while Arc::ptr_eq(&tun, &self.tun()) {
                        thread::sleep(GONE_PAUSE);
                    }
                }
            }
        }
    }

    /// Takes what waits, a batch at most; false if that was all.
    fn read_batch(
        &self,
        tun: &BulkTun,
        block: &mut BytesMut,
        batches: &mut [Batch],
    ) -> io::Result<bool> {
        let routes = self.routes.read().unwrap_or_else(PoisonError::into_inner);
        read_batch(tun, block, |packet| {
            if let Some((shard, connection)) = routes.find(&packet)
                && let Some(batch) = batches.get_mut(usize::from(shard))
            {
                batch.push((connection, packet));
            }
        })
    }
}

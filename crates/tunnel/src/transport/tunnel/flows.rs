//! All flows of a tunnel: who they are, who waits to be written, what they hold.
//!
//! A flow is changed in [`Flows::edit`] alone, which keeps the account of memory, the scheduler's queue and the list of those
//! that are over.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use bentpipe_proto::relay::{Budget, Product, Scheduler, Sender};
use bentpipe_proto::tunnel::{FlowId, Place};
use bytes::Bytes;
use quinn_proto::Side;

use super::super::key::FlowKey;
use super::flow::Flow;

/// Flows of which one list of places is made, at most.
const LISTED: usize = 4096;

/// Memory of flows, in bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    /// In receivers.
    pub(super) received: u64,
    /// In senders.
    pub(super) unsent: u64,
}

impl Held {
    fn of(flow: &Flow) -> Self {
        Self {
            received: flow.receiver.memory(),
            unsent: flow.sender.memory(),
        }
    }

    pub(super) fn total(self) -> u64 {
        self.received + self.unsent
    }

    /// A flow that held `before` holds `after`.
    fn exchange(&mut self, before: Self, after: Self) {
        self.received = self.received + after.received - before.received;
        self.unsent = self.unsent + after.unsent - before.unsent;
    }
}

/// Flows of one tunnel.
pub(super) struct Flows {
    side: Side,
    all: HashMap<FlowKey, Flow>,
    /// Keys of all flows, the oldest first: equal seeds give equal runs, whatever order a hash map has.
    order: BTreeSet<FlowKey>,
    by_id: HashMap<FlowId, FlowKey>,
    /// Flows, over or not, of which everything was written and the peer has neither acknowledged the FIN nor, after a reset,
    /// said that it wants no more.
    unacknowledged: HashSet<FlowKey>,
    /// Number of flows that the server has opened.
    inbound: usize,
    next_id: u64,
    scheduler: Scheduler<FlowKey>,
    budget: Budget,
    held: Held,
}

impl Flows {
    /// No flows yet; their receivers may hold `ceiling` bytes together.
    pub(super) fn new(side: Side, ceiling: u64) -> Self {
        Self {
            side,
            all: HashMap::new(),
            order: BTreeSet::new(),
            by_id: HashMap::new(),
            unacknowledged: HashSet::new(),
            inbound: 0,
            next_id: match side {
                Side::Client => 0,
                Side::Server => FlowId::OF_SERVER.0,
            },
            scheduler: Scheduler::default(),
            budget: Budget::new(ceiling),
            held: Held::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Flows that this side has opened.
    pub(super) fn opened_here(&self) -> usize {
        match self.side {
            Side::Client => self.all.len() - self.inbound,
            Side::Server => self.inbound,
        }
    }

    /// Flows that the peer has opened, whatever has come of them.
    pub(super) fn of_peer(&self) -> usize {
        self.all.len() - self.opened_here()
    }

    pub(super) fn get(&self, key: FlowKey) -> Option<&Flow> {
        self.all.get(&key)
    }

    pub(super) fn find(&self, id: FlowId) -> Option<FlowKey> {
        self.by_id.get(&id).copied()
    }

    /// Keys of all flows, the oldest first.
    pub(super) fn keys(&self) -> &BTreeSet<FlowKey> {
        &self.order
    }

    /// Flows of which `memory` is not nothing, in bytes, and most last.
    pub(super) fn by_size(&self, memory: impl Fn(&Flow) -> u64) -> Vec<(u64, FlowKey)> {
        let all = self.all.iter().map(|(key, flow)| (memory(flow), *key));
        let mut sorted: Vec<_> = all.filter(|(held, _)| *held > 0).collect();
        sorted.sort_unstable();
        sorted
    }

    /// Places at which flows wait, at most `most`; of many flows some, and others in the list that begins behind `last`.
    pub(super) fn places(&self, last: &mut Option<FlowKey>, most: usize) -> Vec<Place> {
        let behind = last.map_or(FlowKey::MIN, |last| FlowKey(last.0 + 1));
        let keys = self.order.range(behind..).chain(self.order.range(..behind));
        let mut places = Vec::new();
        for &key in keys.take(LISTED) {
            let flow = self.get(key).filter(|flow| flow.is_receiving());
            if let Some(offset) = flow.and_then(|flow| flow.receiver.awaits()) {
                let stream = key.0;
                places.push(Place { stream, offset });
                *last = Some(key);
            }
            if places.len() == most {
                break;
            }
        }
        places
    }

    /// Memory of all flows.
    pub(super) fn held(&self) -> Held {
        self.held
    }

    /// Memory of all flows, summed anew.
    pub(super) fn recount(&self) -> Held {
        let mut sum = Held::default();
        for flow in self.all.values() {
            sum.exchange(Held::default(), Held::of(flow));
        }
        sum
    }

    /// Changes a flow: its memory is accounted, it queues if it has something to write, and is forgotten if it is over.
    pub(super) fn edit<T>(
        &mut self,
        key: FlowKey,
        change: impl FnOnce(&mut Flow) -> T,
    ) -> Option<T> {
        let flow = self.all.get_mut(&key)?;
        let before = Held::of(flow);
        let outcome = change(flow);
        self.held.exchange(before, Held::of(flow));
        if flow.ticket.is_none() && flow.wants_service() {
            flow.ticket = Some(self.scheduler.add(key, flow.sender.written()));
        }
        if flow.is_over() {
            self.take(key);
        }
        Some(outcome)
    }

    /// Opens a flow on the stream of `key`, which is `opened` or will be. Its header is what `head` makes of its id and of the
    /// credit of its answer, and `first` follows.
    pub(super) fn begin(
        &mut self,
        key: FlowKey,
        opened: bool,
        (product, credit): (Product, u64),
        first: Bytes,
        head: impl FnOnce(FlowId, u64, &mut Vec<u8>),
    ) {
        let id = FlowId(self.next_id);
        self.next_id += 1;
        let window = self.budget.open(product);
        let mut header = Vec::with_capacity(64);
        head(id, window.announced(), &mut header);
        let mut sender = Sender::new(header.into(), credit);
        sender.push(first);
        self.by_id.insert(id, key);
        self.enter(key, Flow::begun(id, sender, window, opened));
    }

    /// Takes a flow whose stream the peer has opened; it may send `credit` bytes.
    pub(super) fn accept(&mut self, key: FlowKey, credit: u64) {
        let window = self.budget.adopt(credit);
        self.enter(key, Flow::accepted(credit, window));
    }

    fn enter(&mut self, key: FlowKey, flow: Flow) {
        self.inbound += usize::from(key.is_inbound());
        self.order.insert(key);
        self.held.exchange(Held::default(), Held::of(&flow));
        self.all.insert(key, flow);
        self.edit(key, |_| ());
    }

    /// Takes a flow out.
    pub(super) fn take(&mut self, key: FlowKey) -> Option<Flow> {
        let flow = self.all.remove(&key)?;
        self.inbound -= usize::from(key.is_inbound());
        self.order.remove(&key);
        self.held.exchange(Held::of(&flow), Held::default());
        self.budget.close(&flow.window);
        if let Some(ticket) = flow.ticket {
            self.scheduler.remove(ticket);
        }
        if let Some(id) = flow.id {
            self.by_id.remove(&id);
        }
        Some(flow)
    }

    /// A flow of the peer's has said that it is `id`; false if another one is.
    pub(super) fn name(&mut self, key: FlowKey, id: FlowId) -> bool {
        let is_new = self.by_id.insert(id, key).is_none();
        self.edit(key, |flow| flow.id = Some(id));
        is_new
    }

    /// Everything of a flow was written: its FIN, or what precedes its reset.
    pub(super) fn on_ended(&mut self, key: FlowKey) {
        self.unacknowledged.insert(key);
    }

    /// The peer has everything that was written of a flow, or wants no more of it.
    pub(super) fn on_acknowledged(&mut self, key: FlowKey) {
        self.unacknowledged.remove(&key);
    }

    /// True if the peer has acknowledged the end of every flow.
    pub(super) fn is_acknowledged(&self) -> bool {
        self.unacknowledged.is_empty()
    }

    /// The connection is over: nothing more is acknowledged.
    pub(super) fn forget_unacknowledged(&mut self) {
        self.unacknowledged = HashSet::new();
    }

    /// Flows that end with the connection: all but those of which both directions have crossed whole.
    pub(super) fn cut_off(&self) -> Vec<FlowKey> {
        let acknowledged = |key| !self.unacknowledged.contains(key);
        let keys = self.order.iter();
        keys.filter(|key| !self.all[*key].has_crossed(acknowledged(key)))
            .copied()
            .collect()
    }

    /// True if a relay still delivers what has come of a flow that needs no connection any more.
    pub(super) fn are_delivered(&self) -> bool {
        self.all.values().any(|flow| flow.has_crossed(true))
    }

    /// True if a flow waits to be written.
    pub(super) fn has_output(&self) -> bool {
        !self.scheduler.is_empty()
    }

    /// The flow whose turn it is. It queues again with the next [`Self::edit`].
    pub(super) fn pop(&mut self) -> Option<FlowKey> {
        let key = self.scheduler.pop()?;
        if let Some(flow) = self.all.get_mut(&key) {
            flow.ticket = None;
        }
        Some(key)
    }

    /// A flow has been served so much that others go first.
    pub(super) fn is_bulk(&self, key: FlowKey) -> bool {
        let flow = self.all.get(&key);
        flow.is_some_and(|flow| self.scheduler.is_bulk(flow.sender.written()))
    }

    /// Receivers may hold `ceiling` bytes together from now on; promises made before stand.
    pub(super) fn set_ceiling(&mut self, ceiling: u64) {
        self.budget.set_ceiling(ceiling);
    }

    /// Credit promised to flows that are open, in bytes.
    pub(super) fn promised(&self) -> u64 {
        self.budget.promised()
    }

    /// First credit of a flow that nothing has come of yet, as it would be given now: its new limit, if that is more.
    pub(super) fn widen(&mut self, key: FlowKey, product: Product) -> Option<u64> {
        let flow = self.all.get_mut(&key)?;
        self.budget.widen(&mut flow.window, product)
    }

    /// Credit of a flow to which data came: its new limit, if that is more.
    pub(super) fn on_arrived(
        &mut self,
        key: FlowKey,
        now: Instant,
        rtt: Duration,
        product: Product,
    ) -> Option<u64> {
        let flow = self.all.get_mut(&key)?;
        let bdp = product.measured.unwrap_or(0);
        let reached = flow.receiver.reached();
        let window = &mut flow.window;
        window.on_arrived(now, reached, rtt, bdp, &mut self.budget)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flow `key`, opened here on a stream that is open or not, with a header of one byte and a request of three.
    fn begin(flows: &mut Flows, key: FlowKey, open: bool) {
        let path = (Product::default(), 1000);
        let request = Bytes::from_static(b"GET");
        flows.begin(key, open, path, request, |_, _, header| header.push(0));
    }

    #[test]
    fn an_edit_keeps_the_account_of_memory_and_the_queue() {
        let mut flows = Flows::new(Side::Client, 1 << 20);
        let (first, second) = (FlowKey(1), FlowKey(2));
        begin(&mut flows, first, true);
        begin(&mut flows, second, false);
        let before = flows.held();
        assert_eq!(before, flows.recount());
        assert_eq!((flows.pop(), flows.pop()), (Some(first), None));
        flows.edit(first, |flow| {
            flow.sender.push(Bytes::from_static(&[0; 500]));
        });
        flows.edit(second, Flow::unblock);
        assert!(flows.held().unsent >= before.unsent + 500);
        assert_eq!(flows.held(), flows.recount());
        assert_eq!((flows.pop(), flows.pop()), (Some(first), Some(second)));
    }

    #[test]
    fn a_flow_that_is_over_is_forgotten_with_what_it_held() {
        let mut flows = Flows::new(Side::Client, 1 << 20);
        let key = FlowKey(1);
        begin(&mut flows, key, true);
        flows.edit(key, Flow::lose);
        assert_eq!(flows.len(), 1, "its relay has to hear of it");
        flows.edit(key, Flow::release);
        assert_eq!((flows.len(), flows.opened_here()), (0, 0));
        assert_eq!(flows.find(FlowId(0)), None);
        assert_eq!(flows.held(), Held::default());
        assert!(!flows.has_output());
    }
}

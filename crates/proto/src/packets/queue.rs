//! What waits before the link: classes by DSCP, in each of them a queue per flow with CoDel, and an age beyond which nothing
//! is sent (RFC 8290, RFC 8289).
//!
//! ```text
//!   push ─► class ─► flow by hash ─┐            voice first, within its share
//!                                  ├─ turns by bytes ─► age ─► CoDel ─► pop
//!   push ─► class ─► flow by hash ─┘            low last, but one turn in sixteen
//! ```
//!
//! Decides which packet goes next and which does not go at all. How many go, and when, is the engine's business.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bentpipe_aqm::{CoDel, Control, Taken};
use bentpipe_units::{ByteCount, Seed};
use bytes::{Bytes, BytesMut};

use super::{Class, Header, MTU, set_congestion_experienced};

/// Queues of one class: flows that share one share its turns, too.
const FLOWS: usize = 128;

/// Bytes that a flow may send in its turn.
const QUANTUM: i64 = 1514;

/// Bytes of voice that may leave ahead of others at once; each byte of others' earns one more. So voice that never ends gets
/// half of the link, not all of it.
const VOICE_AHEAD: i64 = 64_000;

/// One turn in so many goes to the low class while others wait.
const LOW_TURN: u32 = 16;

/// Bookkeeping that a packet costs beside its bytes: its place in the queue, and its allocation.
const PACKET_COST: usize = 96;

/// Settings of a queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueConfig {
    /// Memory of all packets together; beyond that the longest flow loses its oldest.
    pub limit: ByteCount,
    /// Longest wait after which a packet is of use.
    pub age: Duration,
    /// Of the hash of flows.
    pub seed: Seed,
}

/// Packets that were not sent, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Packets that waited too long.
    pub age: u64,
    /// CoDel took them, for their flow to slow down.
    pub codel: u64,
    /// Packets dropped because the queue was full.
    pub overflow: u64,
}

/// Packets that wait.
#[derive(Debug)]
pub struct Queue {
    config: QueueConfig,
    codel: CoDel,
    /// By [`Class`].
    classes: [Flows; 3],
    voice_ahead: i64,
    turn: u32,
    bytes: usize,
    dropped: Dropped,
    marked: u64,
}

/// The flows of one class.
#[derive(Debug, Default)]
struct Flows {
    /// Empty until the class is used.
    flows: Vec<Flow>,
    /// Flows that began to wait since their last turn: they go first.
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    packets: usize,
}

#[derive(Debug, Default)]
struct Flow {
    packets: VecDeque<(Instant, Bytes)>,
    bytes: usize,
    deficit: i64,
    control: Control,
    listed: bool,
}

impl Queue {
    /// Nothing waits.
    #[must_use]
    pub fn new(config: QueueConfig) -> Self {
        Self {
            config,
            codel: CoDel::default(),
            classes: Default::default(),
            voice_ahead: VOICE_AHEAD,
            turn: 0,
            bytes: 0,
            dropped: Dropped::default(),
            marked: 0,
        }
    }

    /// The path's round trip: a flow that is told to slow down answers after it, and CoDel waits so long. What stands meanwhile is
    /// enough that CUBIC, which goes back to 0.7 of its window, still fills the path; other flows do not wait in it.
    pub fn set_rtt(&mut self, rtt: Duration) {
        let usual = CoDel::default();
        let interval = usual.interval + rtt;
        self.codel = CoDel {
            target: interval / 4,
            interval,
        };
    }

    /// Appends a packet whose head is `header`. Empty ones and those above [`MTU`] are no packets of ours.
    pub fn push(&mut self, now: Instant, header: &Header, packet: Bytes) {
        if packet.is_empty() || packet.len() > MTU {
            self.dropped.overflow += 1;
            return;
        }
        let hash = header.flow(self.config.seed.as_u64()) % FLOWS as u64;
        let class = &mut self.classes[header.class() as usize];
        if class.flows.is_empty() {
            class.flows.resize_with(FLOWS, Flow::default);
        }
        // Below FLOWS.
        let index = hash as usize;
        let flow = &mut class.flows[index];
        let old =
            |first: &mut (Instant, Bytes)| now.saturating_duration_since(first.0) > self.config.age;
        // While nothing can be sent nobody takes them out.
        while let Some((_, gone)) = flow.packets.pop_front_if(old) {
            flow.bytes -= gone.len();
            self.bytes -= gone.len();
            class.packets -= 1;
            self.dropped.age += 1;
        }
        self.bytes += packet.len();
        flow.bytes += packet.len();
        flow.packets.push_back((now, packet));
        class.packets += 1;
        if !std::mem::replace(&mut flow.listed, true) {
            flow.deficit = QUANTUM;
            class.new.push_back(index);
        }
        while self.memory() as u64 > self.config.limit.as_u64() {
            self.shed();
        }
    }

    /// Takes the oldest packet of the longest flow.
    fn shed(&mut self) {
        let flows = |class: &Flows| {
            class
                .flows
                .iter()
                .map(|flow| flow.bytes)
                .collect::<Vec<_>>()
        };
        let all = self.classes.iter().map(flows).enumerate();
        let longest = all
            .flat_map(|(class, flows)| flows.into_iter().enumerate().map(move |flow| (class, flow)))
            .max_by_key(|(_, (_, bytes))| *bytes);
        if let Some((class, (flow, _))) = longest {
            let class = &mut self.classes[class];
            let flow = &mut class.flows[flow];
            let oldest = flow
                .packets
                .pop_front()
                .map_or(0, |(_, packet)| packet.len());
            flow.bytes -= oldest;
            class.packets -= 1;
            self.bytes -= oldest;
        }
        self.dropped.overflow += 1;
    }

    /// The next packet to send.
    pub fn pop(&mut self, now: Instant) -> Option<Bytes> {
        while let Some(class) = self.next_class() {
            if let Some(packet) = self.pop_class(now, class) {
                let bytes = packet.len() as i64;
                if class == Class::Voice {
                    self.voice_ahead = (self.voice_ahead - bytes).max(-VOICE_AHEAD);
                } else {
                    self.on_others(packet.len());
                }
                return Some(packet);
            }
        }
        None
    }

    /// The next packet is one of voice.
    #[must_use]
    pub fn is_voice(&self) -> bool {
        let others = self.waits(Class::Default) || self.waits(Class::Low);
        self.is_urgent() || self.waits(Class::Voice) && !others
    }

    /// The next packet, if it is one of voice.
    pub fn pop_voice(&mut self, now: Instant) -> Option<Bytes> {
        while self.is_voice() {
            if let Some(packet) = self.pop_class(now, Class::Voice) {
                self.voice_ahead = (self.voice_ahead - packet.len() as i64).max(-VOICE_AHEAD);
                return Some(packet);
            }
        }
        None
    }

    /// Notes that `bytes` of other traffic than voice were served.
    pub fn on_others(&mut self, bytes: usize) {
        self.voice_ahead = (self.voice_ahead + bytes as i64).min(VOICE_AHEAD);
    }

    /// Voice waits that may go ahead of everything else.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        self.voice_ahead > 0 && self.waits(Class::Voice)
    }

    fn waits(&self, class: Class) -> bool {
        self.classes[class as usize].packets > 0
    }

    fn next_class(&mut self) -> Option<Class> {
        if self.is_urgent() {
            return Some(Class::Voice);
        }
        self.turn = self.turn.wrapping_add(1);
        let mut order = [Class::Default, Class::Voice, Class::Low];
        if self.turn.is_multiple_of(LOW_TURN) {
            order.rotate_right(1);
        } else if self.turn.is_multiple_of(2) {
            order.swap(0, 1);
        }
        order.into_iter().find(|class| self.waits(*class))
    }

    fn pop_class(&mut self, now: Instant, class: Class) -> Option<Bytes> {
        let class = &mut self.classes[class as usize];
        loop {
            let is_new = !class.new.is_empty();
            let index = *class.new.front().or_else(|| class.old.front())?;
            let flow = &mut class.flows[index];
            if flow.deficit <= 0 {
                flow.deficit += QUANTUM;
                class.rotate(is_new, true);
                continue;
            }
            let before = (flow.packets.len(), flow.bytes);
            let popped = flow.pop(
                now,
                self.codel,
                self.config.age,
                &mut self.dropped,
                &mut self.marked,
            );
            class.packets -= before.0 - flow.packets.len();
            self.bytes -= before.1 - flow.bytes;
            let Some(packet) = popped else {
                // A flow that has just been new is not new again at once: it could starve the old ones (RFC 8290 §4.2).
                let stays = is_new && !class.old.is_empty();
                flow.listed = stays;
                class.rotate(is_new, stays);
                continue;
            };
            flow.deficit -= packet.len() as i64;
            return Some(packet);
        }
    }

    /// Nothing waits any more.
    pub fn clear(&mut self) {
        self.classes = Default::default();
        self.bytes = 0;
    }

    /// True when nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Bytes that wait.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Memory that they take.
    #[must_use]
    pub fn memory(&self) -> usize {
        let packets: usize = self.classes.iter().map(|class| class.packets).sum();
        self.bytes + packets * PACKET_COST
    }

    /// Packets that were not sent, by cause.
    #[must_use]
    pub const fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// Packets marked "congestion experienced" here.
    #[must_use]
    pub const fn marked(&self) -> u64 {
        self.marked
    }
}

impl Flows {
    /// The first flow leaves its list, and waits behind the old ones if it `stays`.
    fn rotate(&mut self, is_new: bool, stays: bool) {
        let list = if is_new { &mut self.new } else { &mut self.old };
        if let Some(index) = list.pop_front()
            && stays
        {
            self.old.push_back(index);
        }
    }
}

impl Flow {
    fn pop(
        &mut self,
        now: Instant,
        codel: CoDel,
        age: Duration,
        dropped: &mut Dropped,
        marked: &mut u64,
    ) -> Option<Bytes> {
        let Self {
            packets,
            bytes,
            control,
            ..
        } = self;
        let mut old = 0;
        let next = || {
            loop {
                let (since, packet) = packets.pop_front()?;
                *bytes -= packet.len();
                if now.saturating_duration_since(since) <= age {
                    let behind = ByteCount::from_usize(*bytes);
                    return Some(Taken {
                        since,
                        behind,
                        packet,
                    });
                }
                old += 1;
            }
        };
        let mark = |packet: &mut Bytes| {
            let mut changed = BytesMut::from(std::mem::take(packet));
            let able = set_congestion_experienced(&mut changed);
            *marked += u64::from(able);
            *packet = changed.freeze();
            able
        };
        let packet = control.pop(now, codel, next, mark, |_| dropped.codel += 1);
        dropped.age += old;
        packet
    }
}

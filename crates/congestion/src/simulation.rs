//! A closed loop in virtual time for the controllers' tests: paced senders, one bottleneck, delayed ACKs.
//!
//! Event-driven in integer nanoseconds. It sends no real packets and does not retransmit: a lost packet is a statistic.

mod sender;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bentpipe_units::BitRate;

use super::{Config, Controller, Kind};
use sender::Sender;

pub(super) const MTU: u16 = 1472;
const BYTES: u64 = MTU as u64;

#[expect(
    clippy::disallowed_methods,
    reason = "an arbitrary origin: only differences matter"
)]
pub(super) fn origin() -> Instant {
    Instant::now()
}

pub(super) struct Link {
    pub(super) rate: u64,
    pub(super) one_way: Duration,
    /// Queue, in time at the link's rate.
    pub(super) queue: Duration,
    /// Share of packets lost behind the queue, independently of each other, in permille.
    pub(super) loss: u64,
    /// Gilbert-Elliott: chance per packet, in permille, that a burst of losses begins, and that it ends.
    pub(super) burst: Option<(u64, u64)>,
    /// Packets that would wait longer than this are marked CE.
    pub(super) mark: Option<Duration>,
    /// ACKs leave in frames of this length, and after a silence four of them later: capacity has to be asked for.
    pub(super) frames: Option<Duration>,
}

enum Event {
    Send(usize),
    /// Packet, and whether it is marked.
    Arrive(usize, u64, bool),
    Ack(usize),
    Acked(usize, Vec<u64>, bool),
    /// The peer says at what rate a train came.
    Told(usize),
}

pub(super) struct World {
    pub(super) now: Instant,
    pub(super) senders: Vec<Sender>,
    pub(super) link: Link,
    link_free: Instant,
    origin: Instant,
    return_used: Instant,
    granted: Instant,
    in_burst: bool,
    pub(super) random: u64,
    events: BTreeMap<(Instant, u64), Event>,
    sequence: u64,
}

impl World {
    pub(super) fn new(link: Link, kinds: &[Kind]) -> Self {
        let now = origin();
        let config = Config {
            initial_window: 32 * BYTES,
            mtu: MTU,
            initial_rtt: Duration::from_millis(333),
            max_rate: None,
            provisioned: None,
            in_order: false,
        };
        let senders = kinds
            .iter()
            .map(|kind| Sender::new(Controller::new(*kind, &config, now), now))
            .collect();
        let mut world = Self {
            now,
            senders,
            link,
            link_free: now,
            origin: now,
            return_used: now,
            granted: now,
            in_burst: false,
            random: 1,
            events: BTreeMap::new(),
            sequence: 0,
        };
        for index in 0..world.senders.len() {
            world.try_send(index);
        }
        world
    }

    pub(super) fn set_busy(&mut self, index: usize, busy: bool) {
        self.senders[index].busy = busy;
        self.try_send(index);
    }

    /// Runs for `time`; returns what the link delivered, as a share of what it could have.
    pub(super) fn run(&mut self, time: Duration) -> f64 {
        let end = self.now + time;
        let before: u64 = self.senders.iter().map(|sender| sender.delivered).sum();
        while let Some(entry) = self
            .events
            .first_entry()
            .filter(|entry| entry.key().0 <= end)
        {
            let ((at, _), event) = entry.remove_entry();
            self.now = at;
            self.handle(event);
        }
        self.now = end;
        let after: u64 = self.senders.iter().map(|sender| sender.delivered).sum();
        (after - before) as f64 * 8.0 / (self.link.rate as f64 * time.as_secs_f64())
    }

    /// Runs for `time`; returns how full the link was of what its own loss leaves, and the share of packets lost.
    pub(super) fn measure(&mut self, time: Duration) -> (f64, f64) {
        let count = |world: &Self| {
            let senders = world.senders.iter();
            senders.fold((0, 0), |sum, sender| {
                (sum.0 + sender.sent, sum.1 + sender.lost)
            })
        };
        let (sent, lost) = count(self);
        let kept = 1.0 - self.link.loss as f64 / 1000.0;
        let used = self.run(time) / kept;
        let (sent_then, lost_then) = count(self);
        (
            used,
            (lost_then - lost) as f64 / (sent_then - sent).max(1) as f64,
        )
    }

    /// What each sender delivered in `time`, as a share of them all.
    pub(super) fn shares(&mut self, time: Duration) -> Vec<f64> {
        let delivered = |world: &Self| -> Vec<u64> {
            world
                .senders
                .iter()
                .map(|sender| sender.delivered)
                .collect()
        };
        let before = delivered(self);
        self.run(time);
        let each: Vec<_> = delivered(self)
            .iter()
            .zip(before)
            .map(|(after, before)| (after - before) as f64)
            .collect();
        let all: f64 = each.iter().sum();
        each.into_iter().map(|one| one / all).collect()
    }

    /// Time for which a packet that arrived now would wait.
    pub(super) fn queue(&self) -> Duration {
        self.link_free.saturating_duration_since(self.now)
    }

    fn push(&mut self, at: Instant, event: Event) {
        self.sequence += 1;
        self.events.insert((at, self.sequence), event);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Send(index) => {
                self.senders[index].on_timer();
                self.try_send(index);
            }
            Event::Arrive(index, packet, marked) => self.arrive(index, packet, marked),
            Event::Ack(index) => self.send_ack(index),
            Event::Acked(index, packets, marked) => {
                self.senders[index].acked(self.now, &packets, marked);
                self.send_train(index);
                self.try_send(index);
            }
            Event::Told(index) => {
                let rate = bits(self.link.rate / 1000 * (1000 - self.link.loss));
                self.senders[index].controller.hint(self.now, rate);
            }
        }
    }

    /// A train takes no room here, and comes at the link's rate whatever the queue.
    fn send_train(&mut self, index: usize) {
        let controller = &mut self.senders[index].controller;
        if controller.wants_train(self.now) {
            controller.on_train(self.now);
            let answered = self.link_free.max(self.now) + 2 * self.link.one_way;
            self.push(answered, Event::Told(index));
        }
    }

    fn try_send(&mut self, index: usize) {
        loop {
            let rtt = 2 * self.link.one_way;
            let count = match self.senders[index].allowance(self.now, rtt) {
                Ok(0) => return,
                Ok(count) => count,
                Err(due) => return self.push(due, Event::Send(index)),
            };
            for _ in 0..count {
                self.transmit(index);
            }
        }
    }

    fn transmit(&mut self, index: usize) {
        let now = self.now;
        let (packet, drop) = self.senders[index].send(now);
        let start = self.link_free.max(now);
        if drop || start - now > self.link.queue {
            return;
        }
        let marked = self.link.mark.is_some_and(|limit| start - now > limit);
        self.link_free = start + Duration::from_nanos(BYTES * 8 * 1_000_000_000 / self.link.rate);
        if self.is_lost() {
            return;
        }
        self.push(
            self.link_free + self.link.one_way,
            Event::Arrive(index, packet, marked),
        );
    }

    fn is_lost(&mut self) -> bool {
        if let Some((begin, end)) = self.link.burst {
            let change = if self.in_burst { end } else { begin };
            if self.draw() < change {
                self.in_burst = !self.in_burst;
            }
        }
        self.in_burst || self.draw() < self.link.loss
    }

    /// 0 to 999, by SplitMix64.
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % 1000
    }

    fn arrive(&mut self, index: usize, packet: u64, marked: bool) {
        let sender = &mut self.senders[index];
        sender.delivered += BYTES;
        let receiver = &mut sender.receiver;
        receiver.marked |= marked;
        receiver.unacked.push(packet);
        if receiver.unacked.len() >= 200 {
            self.send_ack(index);
        } else if !std::mem::replace(&mut receiver.ack_due, true) {
            self.push(self.now + self.link.one_way / 4, Event::Ack(index));
        }
    }

    fn send_ack(&mut self, index: usize) {
        let receiver = &mut self.senders[index].receiver;
        receiver.ack_due = false;
        let packets = std::mem::take(&mut receiver.unacked);
        let marked = std::mem::take(&mut receiver.marked);
        if !packets.is_empty() {
            let at = self.return_frame() + self.link.one_way;
            self.push(at, Event::Acked(index, packets, marked));
        }
    }

    /// When what the return link is given now leaves.
    fn return_frame(&mut self) -> Instant {
        let Some(frame) = self.link.frames else {
            return self.now;
        };
        if self.now.saturating_duration_since(self.return_used) > self.link.one_way {
            self.granted = self.now + 4 * frame;
        }
        self.return_used = self.now;
        let into = (self.now - self.origin).as_nanos() % frame.as_nanos();
        let into = Duration::from_nanos(u64::try_from(into).unwrap_or(0));
        (self.now + (frame - into)).max(self.granted)
    }
}

pub(super) fn bits(rate: u64) -> BitRate {
    BitRate::bits_per_second(rate)
}

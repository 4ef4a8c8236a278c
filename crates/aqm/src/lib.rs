//! CoDel: drops at the head of a queue whose packets have waited too long for too long (RFC 8289).
//!
//! ```text
//!   packets ─► queue of the tunnel (proto/packets) ─┐
//!   packets ─► queue of the model  (link) ──────────┴─► Control::pop ─► sent, marked or dropped
//! ```
//!
//! The control law alone, in a crate of its own because the tunnel and the model of a link both need it and neither may use
//! the other. Queues, their limits and their clocks belong to those who call.

use std::time::{Duration, Instant};

use bentpipe_units::ByteCount;

/// With no more than this waiting there is nothing to gain by dropping (RFC 8289 §4.4: one MTU).
const ONE_PACKET: ByteCount = ByteCount::new(1500);
/// A new dropping state within this many intervals of the last one resumes its rate.
const MEMORY: u32 = 16;

/// Parameters of CoDel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoDel {
    /// The waiting time that is acceptable.
    pub target: Duration,
    /// For how long it may be exceeded: about a round trip.
    pub interval: Duration,
}

impl Default for CoDel {
    /// RFC 8289 §4.2, §4.3.
    fn default() -> Self {
        Self {
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
        }
    }
}

/// The state of one queue's control, with the RFC's names.
#[derive(Debug)]
pub struct Control {
    first_above: Option<Instant>,
    dropping: bool,
    drop_next: Option<Instant>,
    count: u32,
    last_count: u32,
}

/// A packet that has been taken from its queue.
#[derive(Debug)]
pub struct Taken<P> {
    /// Since when it has been waiting.
    pub since: Instant,
    /// Bytes that are still in the queue.
    pub behind: ByteCount,
    /// The packet.
    pub packet: P,
}

impl Control {
    /// Nothing was sent yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            first_above: None,
            dropping: false,
            drop_next: None,
            count: 0,
            last_count: 0,
        }
    }

    /// The next packet to send at `now`, taken from the queue with `next`. Where one would be dropped `mark` is asked first:
    /// true means that the packet tells its receiver of the congestion instead. The others go to `dropped`.
    pub fn pop<P>(
        &mut self,
        now: Instant,
        config: CoDel,
        mut next: impl FnMut() -> Option<Taken<P>>,
        mut mark: impl FnMut(&mut P) -> bool,
        mut dropped: impl FnMut(P),
    ) -> Option<P> {
        let (mut packet, mut too_long) = self.examine(now, config, next());
        if self.dropping {
            self.dropping = too_long;
            while self.dropping && self.drop_next.is_some_and(|at| now >= at) {
                self.count += 1;
                if packet.as_mut().is_some_and(&mut mark) {
                    self.drop_next = self.drop_next.map(|at| at + self.pause(config));
                    break;
                }
                packet.map(&mut dropped);
                (packet, too_long) = self.examine(now, config, next());
                self.dropping = too_long;
                if too_long {
                    self.drop_next = self.drop_next.map(|at| at + self.pause(config));
                }
            }
        } else if too_long {
            if !packet.as_mut().is_some_and(&mut mark) {
                packet.map(&mut dropped);
                (packet, _) = self.examine(now, config, next());
            }
            self.dropping = true;
            let recent = |at: Instant| {
                now.saturating_duration_since(at) < config.interval.saturating_mul(MEMORY)
            };
            let step = self.count - self.last_count;
            let resume = step > 1 && self.drop_next.is_some_and(recent);
            self.count = if resume { step } else { 1 };
            self.last_count = self.count;
            self.drop_next = Some(now + self.pause(config));
        }
        packet
    }

    /// The packet; and true if packets have been waiting too long for an interval.
    fn examine<P>(
        &mut self,
        now: Instant,
        config: CoDel,
        taken: Option<Taken<P>>,
    ) -> (Option<P>, bool) {
        let Some(Taken {
            since,
            behind,
            packet,
        }) = taken
        else {
            self.first_above = None;
            return (None, false);
        };
        let sojourn = now.saturating_duration_since(since);
        if sojourn < config.target || behind <= ONE_PACKET {
            self.first_above = None;
            return (Some(packet), false);
        }
        let first_above = *self.first_above.get_or_insert(now + config.interval);
        (Some(packet), now >= first_above)
    }

    /// interval / √count
    fn pause(&self, config: CoDel) -> Duration {
        config.interval.div_f64(f64::from(self.count.max(1)).sqrt())
    }
}

impl Default for Control {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const SIZE: u64 = 1000;

    #[expect(clippy::disallowed_methods, reason = "an arbitrary origin")]
    fn origin() -> Instant {
        Instant::now()
    }

    fn take(queue: &mut VecDeque<(Instant, u32)>) -> Option<Taken<u32>> {
        let (since, packet) = queue.pop_front()?;
        let behind = ByteCount::new(queue.len() as u64 * SIZE);
        Some(Taken {
            since,
            behind,
            packet,
        })
    }

    /// Times at which CoDel acts, in ms, while one of `waiting` packets of 1000 bytes leaves each millisecond; and packets lost.
    fn acts(waiting: u32, able: bool) -> (Vec<u128>, usize) {
        let start = origin();
        let mut queue: VecDeque<_> = (0..waiting).map(|packet| (start, packet)).collect();
        let mut control = Control::new();
        let (mut at, mut lost) = (Vec::new(), 0);
        for millis in 0..waiting {
            let now = start + Duration::from_millis(1) * millis;
            let mut acted = false;
            let mark = |_: &mut u32| {
                acted |= able;
                able
            };
            let before = lost;
            control.pop(
                now,
                CoDel::default(),
                || take(&mut queue),
                mark,
                |_| lost += 1,
            );
            if acted || lost > before {
                at.push((now - start).as_millis());
            }
        }
        (at, lost)
    }

    /// Too long from 5 ms on; 100 ms later the first, then after 100 ms / √n, on the millisecond of the next packet.
    const LAW: [u128; 8] = [105, 205, 276, 334, 384, 429, 469, 507];

    #[test]
    fn drops_follow_the_control_law() {
        assert_eq!(acts(520, false), (LAW.to_vec(), LAW.len()));
    }

    #[test]
    fn packets_that_can_tell_are_marked_at_the_same_instants_and_kept() {
        assert_eq!(acts(520, true), (LAW.to_vec(), 0));
    }

    #[test]
    fn a_queue_that_empties_in_time_loses_nothing() {
        assert_eq!(acts(100, false).1, 0);
        // The last packet is never dropped, however long it has waited.
        let start = origin();
        let mut control = Control::new();
        for seconds in 0..10 {
            let now = start + Duration::from_secs(seconds);
            let mut queue = VecDeque::from([(now, 0)]);
            let late = now + Duration::from_millis(900);
            let next = || take(&mut queue);
            let popped = control.pop(
                late,
                CoDel::default(),
                next,
                |_| false,
                |_| panic!("dropped"),
            );
            assert!(popped.is_some());
        }
    }
}

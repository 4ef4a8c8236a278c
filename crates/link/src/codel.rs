//! CoDel: drops at the head of a queue whose packets have waited too long for too long (RFC 8289).
//!
//! The control law alone; the queue and its limit are `queue.rs`.

use std::time::{Duration, Instant};

use bentpipe_units::ByteCount;

use crate::queue::DropTail;

/// With no more than this waiting there is nothing to gain by dropping (RFC 8289 §4.4: one MTU).
const ONE_PACKET: ByteCount = ByteCount::new(1500);
/// A new dropping state within this many intervals of the last one resumes its rate.
const MEMORY: u32 = 16;

/// Parameters of CoDel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CoDel {
    /// The waiting time that is acceptable.
    pub(crate) target: Duration,
    /// For how long it may be exceeded.
    pub(crate) interval: Duration,
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
pub(crate) struct Control {
    config: CoDel,
    first_above: Option<Instant>,
    dropping: bool,
    drop_next: Option<Instant>,
    count: u32,
    last_count: u32,
}

/// A packet with the instant since when it waits.
type Waiting<P> = (Instant, ByteCount, P);

impl Control {
    pub(crate) const fn new(config: CoDel) -> Self {
        Self {
            config,
            first_above: None,
            dropping: false,
            drop_next: None,
            count: 0,
            last_count: 0,
        }
    }

    /// The next packet to send at `now`; those dropped on the way go to `dropped`.
    pub(crate) fn pop<P>(
        &mut self,
        now: Instant,
        queue: &mut DropTail<P>,
        mut dropped: impl FnMut(Waiting<P>),
    ) -> Option<Waiting<P>> {
        let (mut packet, mut too_long) = self.examine(now, queue);
        if self.dropping {
            self.dropping = too_long;
            while self.dropping && self.drop_next.is_some_and(|at| now >= at) {
                packet.map(&mut dropped);
                self.count += 1;
                (packet, too_long) = self.examine(now, queue);
                self.dropping = too_long;
                if too_long {
                    self.drop_next = self.drop_next.map(|at| at + self.pause());
                }
            }
        } else if too_long {
            packet.map(&mut dropped);
            (packet, _) = self.examine(now, queue);
            self.dropping = true;
            let recent = |at: Instant| {
                now.saturating_duration_since(at) < self.config.interval.saturating_mul(MEMORY)
            };
            let step = self.count - self.last_count;
            let resume = step > 1 && self.drop_next.is_some_and(recent);
            self.count = if resume { step } else { 1 };
            self.last_count = self.count;
            self.drop_next = Some(now + self.pause());
        }
        packet
    }

    /// Takes the first packet; true if packets have been waiting too long for an interval.
    fn examine<P>(&mut self, now: Instant, queue: &mut DropTail<P>) -> (Option<Waiting<P>>, bool) {
        let Some(packet) = queue.pop() else {
            self.first_above = None;
            return (None, false);
        };
        let sojourn = now.saturating_duration_since(packet.0);
        if sojourn < self.config.target || queue.bytes() <= ONE_PACKET {
            self.first_above = None;
            return (Some(packet), false);
        }
        let first_above = *self.first_above.get_or_insert(now + self.config.interval);
        (Some(packet), now >= first_above)
    }

    /// interval / √count
    fn pause(&self) -> Duration {
        self.config
            .interval
            .div_f64(f64::from(self.count.max(1)).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::QueueLimit;

    #[expect(clippy::disallowed_methods, reason = "an arbitrary origin")]
    fn origin() -> Instant {
        Instant::now()
    }

    /// When CoDel drops, in ms, while one of `waiting` packets of 1000 bytes leaves each millisecond.
    fn drops(waiting: u32) -> Vec<u128> {
        let start = origin();
        let mut queue = DropTail::new(QueueLimit::Packets(usize::MAX));
        for packet in 0..waiting {
            queue.push(start, ByteCount::new(1000), packet);
        }
        let mut control = Control::new(CoDel::default());
        let mut at = Vec::new();
        for millis in 0..waiting {
            let now = start + Duration::from_millis(1) * millis;
            control.pop(now, &mut queue, |_| at.push((now - start).as_millis()));
        }
        at
    }

    #[test]
    fn drops_follow_the_control_law() {
        // Too long from 5 ms on; 100 ms later the first, then after 100 ms / √n, on the millisecond of the next packet.
        let expected = [105, 205, 276, 334, 384, 429, 469, 507];
        assert_eq!(drops(520), expected);
    }

    #[test]
    fn a_queue_that_empties_in_time_loses_nothing() {
        assert_eq!(drops(100), [0u128; 0]);
        // The last packet is never dropped, however long it has waited.
        let start = origin();
        let mut queue = DropTail::new(QueueLimit::Packets(1));
        let mut control = Control::new(CoDel::default());
        for seconds in 0..10 {
            let now = start + Duration::from_secs(seconds);
            queue.push(now, ByteCount::new(1000), seconds);
            let late = now + Duration::from_millis(900);
            let popped = control.pop(late, &mut queue, |_| panic!("dropped"));
            assert!(popped.is_some());
        }
    }
}

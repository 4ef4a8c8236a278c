//! Steps of a long path: from one ACK to the next its round-trip time changes by more than a queue does.
//!
//! A high orbit stays where it is, but what is beneath may change: a terminal that hands over, a relay by way of another
//! satellite. A path that becomes shorter than it ever was without a queue has moved for certain. One that becomes longer looks
//! like a burst of somebody else's in the queue; what it is `stuck.rs` finds out. It only watches.

use std::time::{Duration, Instant};

/// No queue grows or shrinks by so much from one ACK to the next; by more nothing does but an outage.
const JUMP: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(1500)];

/// A short path's round-trip times differ by less, from one ACK to the next, if nothing happens; and a queue grows by less in the
/// time in which packets leave that is this part of it.
const FALL: Duration = Duration::from_millis(15);
const RISE: Duration = Duration::from_millis(30);
const STEEP: u32 = 5;

/// What was seen of a path's jumps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Jumps {
    /// The newest ACK of a busy sender: when it came, and its round-trip time.
    newest: Option<(Instant, Duration)>,
    last: Option<Instant>,
    /// The largest.
    step: Duration,
}

/// What a path did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Jump {
    /// The path may have become longer.
    Up,
    /// The path is shorter than it was without a queue.
    Down,
}

impl Jumps {
    /// An ACK of a busy sender came, over a path that took `base` without a queue, if that was measured.
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        rtt: Duration,
        base: Option<Duration>,
    ) -> Option<Jump> {
        // After a rest there may be a queue of others, or theirs may be gone, unless the path has jumped before.
        let rested = base.filter(|_| self.last.is_some()).unwrap_or(rtt).min(rtt);
        let (at, before) = self.newest.replace((now, rtt)).unwrap_or((now, rested));
        let (gap, step) = (now.saturating_duration_since(at), rtt.abs_diff(before));
        if !(JUMP[0]..JUMP[1]).contains(&step) || gap > step + JUMP[0] {
            return None;
        }
        let jump = if rtt > before {
            Jump::Up
        } else if base.is_some_and(|base| rtt + JUMP[0] <= base) {
            Jump::Down
        } else {
            return None;
        };
        self.last = Some(now);
        self.step = self.step.max(step);
        Some(jump)
    }

    /// Looks for a jump over a short path: a queue shrinks by no more than passes, and grows by no more than a few times that.
    pub(super) fn on_short(
        &mut self,
        now: Instant,
        rtt: Duration,
        base: Option<Duration>,
        shared: bool,
    ) -> Option<Jump> {
        let (at, before) = self.newest.replace((now, rtt)).unwrap_or((now, rtt));
        let gap = now.saturating_duration_since(at);
        let (fell, rose) = (before.saturating_sub(rtt), rtt.saturating_sub(before));
        if fell > gap + FALL && base.is_some_and(|base| rtt + FALL < base) {
            Some(Jump::Down)
        } else if !shared && rose >= RISE && gap <= rose + rose / STEEP {
            self.last = Some(now);
            self.step = self.step.max(rose);
            Some(Jump::Up)
        } else {
            None
        }
    }

    /// Nothing was in flight.
    pub(super) fn rest(&mut self) {
        self.newest = None;
    }

    /// What was seen so far were queues.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }

    /// Instant at which it jumped last.
    pub(super) fn last(&self) -> Option<Instant> {
        self.last
    }

    /// By how much it has jumped at most.
    pub(super) fn step(&self) -> Duration {
        self.step
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "one base instant; all else is virtual"
)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// What comes of ACKs, each so many milliseconds after the one before and with this round-trip time; the path took 800.
    fn seen(acks: &[(u64, u64)]) -> Vec<Option<Jump>> {
        let (mut jumps, mut now) = (Jumps::default(), Instant::now());
        let each = acks.iter().map(|(gap, rtt)| {
            now += ms(*gap);
            jumps.on_ack(now, ms(*rtt), Some(ms(800)))
        });
        each.collect()
    }

    #[test]
    fn a_step_between_neighbours_is_a_jump() {
        assert_eq!(seen(&[(0, 800), (420, 1200)]), [None, Some(Jump::Up)]);
        assert_eq!(seen(&[(0, 800), (1, 500)]), [None, Some(Jump::Down)]);
    }

    #[test]
    fn queues_and_silences_are_none() {
        let growing: Vec<_> = (0..20).map(|n| (70, 800 + 50 * n)).collect();
        assert!(seen(&growing).iter().all(Option::is_none));
        assert_eq!(seen(&[(0, 1200), (1, 900)])[1], None, "a queue is gone");
        assert_eq!(seen(&[(0, 800), (3000, 1200)])[1], None, "a pause");
        assert_eq!(seen(&[(0, 800), (9000, 9800)])[1], None, "an outage");
        assert_eq!(seen(&[(0, 1400)]), [None], "a rest");
    }

    /// Who has moved once may have moved while nobody looked.
    #[test]
    fn a_path_that_has_jumped_may_jump_in_a_rest() {
        let (mut jumps, now) = (Jumps::default(), Instant::now());
        for (at, rtt) in [(0, 800), (420, 1200)] {
            jumps.on_ack(now + ms(at), ms(rtt), Some(ms(800)));
        }
        jumps.rest();
        let after = jumps.on_ack(now + ms(90_000), ms(1500), Some(ms(800)));
        assert_eq!((after, jumps.step()), (Some(Jump::Up), ms(700)));
    }

    /// What comes of the last of two ACKs over a path that takes 120, so many milliseconds apart and with these round-trip times.
    fn short(gap: u64, rtts: [u64; 2], shared: bool) -> Option<Jump> {
        let (mut jumps, now) = (Jumps::default(), Instant::now());
        let base = Some(ms(120));
        jumps.on_short(now, ms(rtts[0]), base, shared);
        jumps.on_short(now + ms(gap), ms(rtts[1]), base, shared)
    }

    #[test]
    fn a_short_path_steps_by_less() {
        assert_eq!(short(75, [125, 195], false), Some(Jump::Up));
        assert_eq!(short(75, [125, 195], true), None, "anybody's burst");
        assert_eq!(
            short(140, [125, 195], false),
            None,
            "a queue may grow so fast"
        );
        assert_eq!(short(1, [130, 90], true), Some(Jump::Down));
        assert_eq!(short(1, [190, 130], false), None, "a queue is gone");
        assert_eq!(short(60, [130, 90], false), None, "in that time it may be");
    }
}

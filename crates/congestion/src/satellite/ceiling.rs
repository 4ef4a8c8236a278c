//! Ceiling: whether packets are lost only when the round-trip time is at its highest.
//!
//! A path's own losses do not ask for the queue. Somebody who fills a queue that drops what it cannot hold, as CUBIC does,
//! makes it grow until packets are lost, ours as well, at the same round-trip time each time; then it is shorter for a
//! while. That shows without any knowledge of the round-trip time without a queue, which in a low orbit nobody has while
//! the queue never empties. Asked at the end of every round. It decides nothing.

use std::time::Duration;

/// Round-trip times that differ by less than this, or by this part of them, are as long.
const SAME: Duration = Duration::from_millis(2);
const PART: u32 = 64;
/// Rounds over which it is counted how many have the longest round-trip time, and their least share.
const MEMORY: f64 = 32.0;
const LEAST: f64 = 0.05;
/// Probability of so many losses at the longest round-trip time by chance, below which chance is ruled out.
const CHANCE: f64 = 0.01;

/// What is known of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ceiling {
    /// The longest round-trip time, behind which packets were lost.
    top: Option<Duration>,
    /// The longest of the last round.
    last: Duration,
    /// Share of rounds that come near the top.
    near: f64,
    /// How likely the losses there are by chance.
    chance: f64,
    /// A round since the last loss did not come near it.
    fell: bool,
    /// The last round was sent steadily.
    steady: bool,
}

impl Ceiling {
    pub(super) fn new() -> Self {
        Self {
            top: None,
            last: Duration::ZERO,
            near: 0.5,
            chance: 1.0,
            fell: false,
            steady: false,
        }
    }

    /// A round ended whose longest round-trip time was `most`. `lost`: packets were, and not by the path itself. `steady`: no
    /// pulse of ours took part in it.
    pub(super) fn end_round(&mut self, most: Duration, lost: bool, steady: bool) {
        // A loss is known later than the packets before it.
        let longest = most.max(std::mem::replace(&mut self.last, most));
        if !std::mem::replace(&mut self.steady, steady) || !steady {
            return;
        }
        let same = SAME.max(longest / PART);
        let Some(top) = self.top.filter(|top| longest <= *top + same) else {
            // There is room for more.
            self.top = lost.then_some(longest);
            (self.chance, self.fell) = (1.0, false);
            return;
        };
        let is_near = longest + same >= top;
        if !is_near {
            self.fell = true;
        }
        if lost && !is_near {
            (self.top, self.chance) = (Some(longest), 1.0);
        } else if lost && std::mem::take(&mut self.fell) {
            self.top = Some(longest.max(top));
            self.chance *= self.near.max(LEAST);
        }
        self.near += (f64::from(u8::from(is_near)) - self.near) / MEMORY;
    }

    /// True if another sender fills the queue.
    pub(super) fn is_hit(&self) -> bool {
        self.chance < CHANCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds with these longest round-trip times in milliseconds, over and over; whether the losses of those that `lose` say
    /// show a ceiling.
    fn is_hit(rounds: &[u64], lose: impl Fn(usize) -> bool, steady: bool) -> bool {
        let mut ceiling = Ceiling::new();
        for round in 0..300 {
            let most = rounds[round % rounds.len()];
            ceiling.end_round(Duration::from_millis(most), lose(round), steady);
            if ceiling.is_hit() {
                return true;
            }
        }
        false
    }

    const SAW: [u64; 8] = [80, 83, 86, 89, 92, 95, 98, 100];

    #[test]
    fn losses_at_the_longest_round_trip_are_somebodys_who_fills_the_queue() {
        assert!(is_hit(&SAW, |round| round % 8 == 7, true));
        assert!(is_hit(&SAW, |round| round % 8 == 0, true), "known late");
    }

    #[test]
    fn losses_at_any_round_trip_are_nobodys() {
        assert!(!is_hit(&SAW, |round| round % 5 == 0, true));
        assert!(!is_hit(&SAW, |_| false, true));
        assert!(!is_hit(&[60], |round| round % 5 == 0, true), "no queue");
    }

    #[test]
    fn our_own_pulses_show_no_ceiling() {
        assert!(!is_hit(&SAW, |round| round % 8 == 7, false));
    }
}

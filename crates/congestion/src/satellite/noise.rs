//! Noise: by how much the round-trip times of a path differ although nobody's queue does.
//!
//! A queue grows and shrinks steadily, and one that somebody fills is long; what goes up and down near the shortest
//! round-trip time is the path's own: the frames of a low orbit, its scheduler, its moving satellite. Fed by `path.rs` at the
//! end of every round.

use std::time::Duration;

/// No more of a difference between two rounds is noise.
const MOST: Duration = Duration::from_millis(4);
/// What differs behind a longer queue is that queue's.
const NEARLY_EMPTY: Duration = Duration::from_millis(12);
/// Less, or less than a packet or so, is not worth a longer queue.
const LEAST: Duration = Duration::from_micros(700);
/// Rounds over which the mean is taken; it begins with some of none.
const ROUNDS: u32 = 16;
const QUIET: u32 = 3;

/// What is known of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noise {
    mean: Duration,
    rounds: u32,
    /// The smallest round-trip times of the last two rounds, where these were sent alike.
    last: [Option<Duration>; 2],
}

impl Noise {
    pub(super) fn new() -> Self {
        Self {
            mean: Duration::ZERO,
            rounds: QUIET,
            last: [None; 2],
        }
    }

    /// A round ended whose smallest round-trip time was `rtt`; none if it was sent unlike others.
    pub(super) fn on_round(&mut self, rtt: Option<Duration>, base: Duration) {
        let [older, before] = self.last;
        self.last = [before, rtt];
        let (Some(older), Some(before), Some(rtt)) = (older, before, rtt) else {
            return;
        };
        let near = older.max(before).max(rtt) <= base + NEARLY_EMPTY;
        let bend = if near {
            (older + rtt).abs_diff(before * 2) / 2
        } else {
            Duration::ZERO
        };
        self.rounds = (self.rounds + 1).min(ROUNDS);
        self.mean = (self.mean * (self.rounds - 1) + bend.min(MOST)) / self.rounds;
    }

    /// About a standard deviation of a round's smallest round-trip time; zero if it is too little to matter where packets
    /// are `spacing` apart.
    pub(super) fn get(&self, spacing: Duration) -> Duration {
        let least = LEAST.max(spacing * 5 / 4);
        Some(self.mean)
            .filter(|mean| *mean >= least)
            .unwrap_or_default()
    }

    /// Noise seen, and what may not have shown yet.
    pub(super) fn at_worst(&self, spacing: Duration) -> Duration {
        let unknown = if self.rounds < ROUNDS {
            LEAST
        } else {
            Duration::ZERO
        };
        self.get(spacing).max(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(50);

    /// After rounds with so many milliseconds more than the base.
    fn after(rounds: impl IntoIterator<Item = u64>) -> Duration {
        let mut noise = Noise::new();
        for more in rounds {
            noise.on_round(Some(BASE + Duration::from_millis(more)), BASE);
        }
        noise.get(Duration::ZERO)
    }

    #[test]
    fn what_goes_up_and_down_is_noise() {
        let noise = after([0, 5, 2, 7, 1, 6, 4, 0, 3, 8, 2, 5, 0, 6, 1, 4]);
        let (least, most) = (Duration::from_millis(2), Duration::from_millis(4));
        assert!(noise >= least && noise <= most, "{noise:?}");
    }

    #[test]
    fn a_queue_is_none() {
        assert_eq!(after(0..12), Duration::ZERO, "it grows");
        let somebodys = (0..40).map(|round| 20 + round * 7 % 25);
        assert_eq!(after(somebodys), Duration::ZERO, "somebody fills it");
    }

    #[test]
    fn packets_far_apart_are_none() {
        let mut noise = Noise::new();
        for round in 0..20 {
            noise.on_round(Some(BASE + Duration::from_millis(round % 2)), BASE);
        }
        assert!(!noise.get(Duration::ZERO).is_zero());
        assert!(noise.get(Duration::from_millis(1)).is_zero());
    }
}

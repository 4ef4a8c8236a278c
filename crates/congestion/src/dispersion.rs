//! How fast a path carries packets, seen from one train of them that was sent back to back.
//!
//! The bottleneck spreads the train: what comes after its first packet, over the time it takes to come, is the
//! bottleneck's rate. Other traffic does not stretch the train, so this is what the path *can* carry, not what is free.
//! On the data path this belongs to the receiving side, once per connection; what the sender makes of the figure is the
//! business of its controller (`satellite/startup.rs`).
//!
//! Network interfaces and wireless links deliver packets in clumps: a train that came in few clumps says
//! nothing, and gets no figure. No figure costs a slower start; a wrong one costs a queue.

use std::time::{Duration, Instant};

use bentpipe_units::BitRate;

/// Fewest packets, and fewest different instants, that make a figure.
const FEWEST_PACKETS: usize = 8;
const FEWEST_INSTANTS: usize = 6;
/// No instant may bring more than this part of the train.
const CLUMP: usize = 4;
/// Packets that are looked at, at most.
const MOST_PACKETS: usize = 64;
/// A pause of this part of the whole time, or longer, is not the bottleneck's: once, it is left out.
const PAUSE: u32 = 4;

/// What arrived at one instant.
#[derive(Clone, Copy, Debug)]
struct Clump {
    at: Instant,
    bytes: u64,
    packets: usize,
}

/// The arrival of one train.
#[derive(Clone, Debug, Default)]
pub struct Dispersion {
    clumps: Vec<Clump>,
    packets: usize,
}

/// What a train showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Rate of the bottleneck, counted like the bytes that were handed in.
    pub rate: BitRate,
    /// Packets that came.
    pub packets: u64,
}

impl Dispersion {
    /// A packet of `bytes` of the train came at `now`.
    pub fn on_packet(&mut self, now: Instant, bytes: u64) {
        if self.packets == MOST_PACKETS {
            return;
        }
        self.packets += 1;
        match self.clumps.last_mut().filter(|clump| clump.at >= now) {
            Some(clump) => {
                clump.bytes += bytes;
                clump.packets += 1;
            }
            None => self.clumps.push(Clump {
                at: now,
                bytes,
                packets: 1,
            }),
        }
    }

    /// Packets that came so far.
    pub fn packets(&self) -> usize {
        self.packets
    }

    /// The rate, if it can be told.
    pub fn estimate(&self) -> Option<Estimate> {
        let largest = self.clumps.iter().map(|clump| clump.packets).max()?;
        if self.packets < FEWEST_PACKETS
            || self.clumps.len() < FEWEST_INSTANTS
            || largest > self.packets / CLUMP
        {
            return None;
        }
        let (first, last) = (self.clumps.first()?, self.clumps.last()?);
        let mut span = last.at.saturating_duration_since(first.at);
        let mut bytes: u64 = self.clumps.iter().skip(1).map(|clump| clump.bytes).sum();
        if let Some((pause, after)) = self.longest_pause()
            && pause > span / PAUSE
        {
            span -= pause;
            bytes -= after;
        }
        let bits = u128::from(bytes) * 8 * 1_000_000_000;
        let rate = u64::try_from(bits.checked_div(span.as_nanos())?).unwrap_or(u64::MAX);
        Some(Estimate {
            rate: BitRate::bits_per_second(rate),
            packets: self.packets as u64,
        })
    }

    /// The longest time between two clumps, and the bytes of the second one.
    fn longest_pause(&self) -> Option<(Duration, u64)> {
        let pauses = self.clumps.windows(2).map(|pair| {
            let pause = pair[1].at.saturating_duration_since(pair[0].at);
            (pause, pair[1].bytes)
        });
        pauses.max_by_key(|(pause, _)| *pause)
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "one base instant; all else is virtual"
)]
mod tests {
    use super::*;

    const BYTES: u64 = 1250;

    /// What packets of 1250 bytes that come after so many microseconds say, in kbit/s.
    fn rate(arrivals: impl IntoIterator<Item = u64>) -> Option<u64> {
        let base = Instant::now();
        let mut train = Dispersion::default();
        for micros in arrivals {
            train.on_packet(base + Duration::from_micros(micros), BYTES);
        }
        train.estimate().map(|seen| seen.rate.as_u64() / 1000)
    }

    #[test]
    fn an_even_train_shows_its_rate() {
        assert_eq!(rate((0..24).map(|n| n * 100)), Some(100_000));
        assert_eq!(rate((0..24).map(|n| n * 20_000)), Some(500));
        // Lost packets make it look slower, never faster.
        let holes = (0..24).filter(|n| n % 7 != 3).map(|n| n * 100);
        assert!(rate(holes).is_some_and(|rate| (80_000..100_000).contains(&rate)));
    }

    /// Two packets at a time, as a reader sees them that is a little late.
    #[test]
    fn small_clumps_do_no_harm() {
        let seen = rate((0..24).map(|n| n / 2 * 200));
        assert_eq!(seen, Some(100_000));
    }

    #[test]
    fn large_clumps_say_nothing() {
        assert_eq!(rate([0; 24]), None);
        assert_eq!(rate((0..24).map(|n| n / 8 * 800)), None);
        // The middle of the train was held back and came at once.
        let held = (0..24).map(|n| if (6..14).contains(&n) { 1400 } else { n * 100 });
        assert_eq!(rate(held), None);
        assert_eq!(rate((0..7).map(|n| n * 100)), None);
    }

    #[test]
    fn one_pause_is_left_out() {
        let paused = (0..24).map(|n| n * 100 + if n < 9 { 0 } else { 3000 });
        assert_eq!(rate(paused), Some(100_000));
    }

    #[test]
    fn an_endless_train_takes_no_memory() {
        let base = Instant::now();
        let mut train = Dispersion::default();
        for micros in 0..100_000 {
            train.on_packet(base + Duration::from_micros(micros), u64::MAX >> 20);
        }
        assert!(train.clumps.len() <= MOST_PACKETS && train.estimate().is_some());
    }
}

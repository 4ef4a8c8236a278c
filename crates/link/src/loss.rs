//! Which packets the channel loses: independent, by their length (bit errors), in bursts (Gilbert–Elliott), at equal distances,
//! or all of them during an outage.
//!
//! The fate of a packet is decided when its last bit leaves the sender. Every packet draws its random numbers whether
//! or not an outage takes it anyway, so that adding an outage does not change the losses around it.

use std::time::{Duration, Instant};

use bentpipe_units::{ByteCount, Ratio, Seed};

use crate::random::Random;

/// Way in which packets are lost, apart from outages and full queues.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LossModel {
    /// No packet.
    None,
    /// Each packet with this probability, independently.
    Iid(Ratio),
    /// Each packet that has a wrong bit, where each bit is wrong with this probability, independently.
    Bits(Ratio),
    /// In bursts.
    GilbertElliott(GilbertElliott),
    /// One packet in so many, at equal distances and from the first on; 0 loses none.
    Periodic(u32),
}

/// Loss probability of a packet of `length`, IP header included, if each of its bits is wrong with probability `bit_errors`.
pub(crate) fn loss_by_bits(bit_errors: Ratio, length: ByteCount) -> f64 {
    // 1 − (1 − BER)^bits, in the form that keeps its digits where the rate is small.
    let bits = 8.0 * length.as_u64() as f64;
    if bits == 0.0 {
        return 0.0;
    }
    -(bits * (-bit_errors.as_f64()).ln_1p()).exp_m1()
}

/// A two-state Markov chain that steps once per packet (Gilbert 1960, Elliott 1963). It starts in the good state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GilbertElliott {
    /// Probability per packet of going from good to bad.
    pub p_good_to_bad: Ratio,
    /// Probability per packet of going from bad to good.
    pub p_bad_to_good: Ratio,
    /// Loss probability in the good state.
    pub loss_good: Ratio,
    /// Loss probability in the bad state.
    pub loss_bad: Ratio,
    /// While nothing is sent the chain steps once in this time; `None`: with packets alone. A burst of fading passes
    /// whether or not anybody sends; without this it waits for the next packets, and a sender that probes once a
    /// second would lose one probe after the other.
    pub slot: Option<Duration>,
}

/// No chain has this mean loss in bursts of this mean length.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error(
    "no chain loses {loss} in bursts of {mean_burst} packets; mean_burst is at least 1 and at least loss / (1 - loss)"
)]
pub struct NoSuchChain {
    loss: Ratio,
    mean_burst: f64,
}

impl GilbertElliott {
    /// The chain that loses the share `loss` in bursts of `mean_burst` packets on average: everything in the bad
    /// state, nothing in the good one.
    ///
    /// # Errors
    /// If `mean_burst` is below 1, below `loss / (1 - loss)` (the good state would last less than a packet), or not
    /// finite, or if `loss` is 1.
    pub fn with_mean(loss: Ratio, mean_burst: f64) -> Result<Self, NoSuchChain> {
        let error = NoSuchChain { loss, mean_burst };
        if !mean_burst.is_finite() {
            return Err(error);
        }
        let p_bad_to_good = 1.0 / mean_burst;
        // In equilibrium as many packets enter the bad state as leave it.
        let p_good_to_bad = loss.as_f64() * p_bad_to_good / (1.0 - loss.as_f64());
        Ok(Self {
            p_good_to_bad: Ratio::new(p_good_to_bad).ok_or(error)?,
            p_bad_to_good: Ratio::new(p_bad_to_good).ok_or(error)?,
            loss_good: Ratio::ZERO,
            loss_bad: Ratio::ONE,
            slot: None,
        })
    }

    /// The chain, stepping also once a `slot` while nothing is sent.
    #[must_use]
    pub const fn in_time(mut self, slot: Duration) -> Self {
        self.slot = Some(slot);
        self
    }

    /// The probability of being in the other state than now (`bad` or not) when a packet leaves `pause` after the last.
    fn turn(&self, bad: bool, pause: Duration) -> f64 {
        let [p, q] = [self.p_good_to_bad, self.p_bad_to_good].map(Ratio::as_f64);
        let leave = if bad { q } else { p };
        let slots = self.slot.map_or(0, |slot| {
            pause
                .as_nanos()
                .checked_div(slot.as_nanos())
                .unwrap_or(u128::MAX)
        });
        if slots <= 1 || p + q == 0.0 {
            return leave;
        }
        // k steps of a chain of two states, in closed form.
        let steps = i32::try_from(slots).unwrap_or(i32::MAX);
        leave / (p + q) * (1.0 - (1.0 - p - q).powi(steps))
    }
}

/// A time in which the channel loses everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// Beginning of the outage, counted from the pipe's `start`.
    pub start: Duration,
    /// Length of the outage.
    pub length: Duration,
}

impl Outage {
    pub(crate) fn covers(&self, since_start: Duration) -> bool {
        since_start
            .checked_sub(self.start)
            .is_some_and(|into| into < self.length)
    }
}

#[derive(Debug)]
pub(crate) struct LossProcess {
    model: LossModel,
    bad: bool,
    /// Packets since the last periodic loss.
    since: u32,
    last: Option<Instant>,
    random: Random,
}

impl LossProcess {
    pub(crate) fn new(model: LossModel, seed: Seed) -> Self {
        Self {
            model,
            bad: false,
            since: u32::MAX,
            last: None,
            random: Random::new(seed),
        }
    }

    /// Steps the model by one packet of `length` that leaves at `now`; true if the packet is lost.
    pub(crate) fn step(&mut self, now: Instant, length: ByteCount) -> bool {
        let last = self.last.replace(now).unwrap_or(now);
        match self.model {
            LossModel::None => false,
            LossModel::Iid(loss) => self.random.chance(loss.as_f64()),
            LossModel::Bits(rate) => self.random.chance(loss_by_bits(rate, length)),
            LossModel::Periodic(every) => {
                self.since = self.since.saturating_add(1);
                let lost = every > 0 && self.since >= every;
                if lost {
                    self.since = 0;
                }
                lost
            }
            LossModel::GilbertElliott(chain) => {
                let turn = chain.turn(self.bad, now.saturating_duration_since(last));
                self.bad ^= self.random.chance(turn);
                let loss = if self.bad {
                    chain.loss_bad
                } else {
                    chain.loss_good
                };
                self.random.chance(loss.as_f64())
            }
        }
    }

    /// Changes the model; the random numbers continue, a chain starts in its good state, a period anew.
    pub(crate) const fn set_model(&mut self, model: LossModel) {
        self.model = model;
        self.bad = false;
        self.since = u32::MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: ByteCount = ByteCount::new(1500);

    #[test]
    fn impossible_chains_are_refused() {
        let ratio = |value| Ratio::new(value).unwrap();
        for (loss, burst) in [
            (0.1, 0.5),
            (0.9, 2.0),
            (1.0, 10.0),
            (0.1, f64::NAN),
            (0.1, f64::INFINITY),
            (0.1, -3.0),
        ] {
            assert!(
                GilbertElliott::with_mean(ratio(loss), burst).is_err(),
                "{loss} {burst}"
            );
        }
        let chain = GilbertElliott::with_mean(ratio(0.5), 1.0).unwrap();
        assert_eq!(
            (chain.p_good_to_bad, chain.p_bad_to_good),
            (Ratio::ONE, Ratio::ONE)
        );
        let never = GilbertElliott::with_mean(Ratio::ZERO, 4.0).unwrap();
        assert_eq!(never.p_good_to_bad, Ratio::ZERO);
    }

    #[expect(clippy::disallowed_methods, reason = "an arbitrary origin")]
    fn origin() -> Instant {
        Instant::now()
    }

    /// Losses of `count` packets that leave `pause` apart: their share, and the mean length of a run.
    fn runs(chain: GilbertElliott, pause: Duration, count: u32) -> (f64, f64) {
        let mut process = LossProcess::new(LossModel::GilbertElliott(chain), Seed::new(3));
        let start = origin();
        let fates: Vec<_> = (0..count)
            .map(|packet| process.step(start + pause * packet, LENGTH))
            .collect();
        let lost = fates.iter().filter(|lost| **lost).count() as f64;
        let begun = fates.windows(2).filter(|pair| !pair[0] && pair[1]).count();
        (lost / f64::from(count), lost / begun as f64)
    }

    #[test]
    fn bursts_pass_while_nothing_is_sent() {
        let chain = GilbertElliott::with_mean(Ratio::new(0.02).unwrap(), 6.0).unwrap();
        let slot = Duration::from_millis(1);
        let near = |(share, run): (f64, f64), length: f64| {
            assert!((share - 0.02).abs() < 0.002, "{share}");
            assert!(
                (run / length - 1.0).abs() < 0.1,
                "{run} instead of {length}"
            );
        };
        near(runs(chain, slot * 1000, 400_000), 6.0);
        near(runs(chain.in_time(slot), slot, 400_000), 6.0);
        // Half of the bursts of mean 6 are over after 4 slots; after 1000 nothing is left of them.
        near(runs(chain.in_time(slot), slot * 1000, 400_000), 1.0 / 0.98);
    }

    #[test]
    fn a_period_is_kept() {
        let mut process = LossProcess::new(LossModel::Periodic(64), Seed::new(1));
        let now = origin();
        let lost: Vec<_> = (0..1000).filter(|_| process.step(now, LENGTH)).collect();
        assert_eq!(lost, (0..1000).step_by(64).collect::<Vec<_>>());
        process.set_model(LossModel::Periodic(0));
        assert!((0..1000).all(|_| !process.step(now, LENGTH)));
    }

    #[test]
    fn certainty_is_certain() {
        let mut always = LossProcess::new(LossModel::Iid(Ratio::ONE), Seed::new(1));
        let mut never = LossProcess::new(LossModel::Iid(Ratio::ZERO), Seed::new(1));
        let now = origin();
        assert!((0..10_000).all(|_| always.step(now, LENGTH) && !never.step(now, LENGTH)));
    }

    #[test]
    fn bit_errors_lose_by_length() {
        let now = origin();
        for (rate, length, percent) in [
            (1e-5, 40, 0.319),
            (1e-5, 76, 0.606),
            (1e-5, 256, 2.027),
            (1e-5, 1500, 11.308),
            (1e-6, 40, 0.032),
            (1e-6, 76, 0.061),
            (1e-6, 256, 0.205),
            (1e-6, 1500, 1.193),
        ] {
            let (rate, length) = (Ratio::new(rate).unwrap(), ByteCount::new(length));
            let exact = loss_by_bits(rate, length) * 100.0;
            assert!((exact - percent).abs() < 0.0006, "{rate} {length}: {exact}");
            let mut process = LossProcess::new(LossModel::Bits(rate), Seed::new(1));
            let lost = (0..1_000_000).filter(|_| process.step(now, length)).count();
            let found = lost as f64 / 1e4;
            let tolerance = if percent < 0.1 { 0.1 } else { 0.05 };
            assert!(
                (found / exact - 1.0).abs() < tolerance,
                "{rate} {length}: {found}"
            );
        }
        let all = Ratio::ONE;
        assert_eq!(loss_by_bits(all, ByteCount::ZERO), 0.0);
        assert_eq!(loss_by_bits(all, LENGTH), 1.0);
        assert_eq!(loss_by_bits(Ratio::ZERO, LENGTH), 0.0);
    }
}

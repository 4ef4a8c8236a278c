//! Which packets the channel loses: independent, in bursts (Gilbert–Elliott), or all of them during an outage.
//!
//! The fate of a packet is decided when its last bit leaves the sender. Every packet draws its random numbers whether
//! or not an outage takes it anyway, so that adding an outage does not change the losses around it.

use std::time::Duration;

use bentpipe_units::{Ratio, Seed};
use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;

/// How packets are lost, apart from outages and full queues.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LossModel {
    /// No packet.
    None,
    /// Each packet with this probability, independently.
    Iid(Ratio),
    /// In bursts.
    GilbertElliott(GilbertElliott),
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
        })
    }
}

/// A time in which the channel loses everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// Its beginning, counted from the pipe's `start`.
    pub start: Duration,
    /// Its length.
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
    rng: Pcg64Mcg,
}

impl LossProcess {
    pub(crate) fn new(model: LossModel, seed: Seed) -> Self {
        let [high, low] = ["high", "low"].map(|half| u128::from(seed.stream(half).as_u64()));
        // The state is given whole: rand_core's way of widening a u64 may change between its versions.
        Self {
            model,
            bad: false,
            rng: Pcg64Mcg::new(high << 64 | low),
        }
    }

    /// Steps the model by one packet; true if the packet is lost.
    pub(crate) fn step(&mut self) -> bool {
        match self.model {
            LossModel::None => false,
            LossModel::Iid(loss) => self.draw(loss),
            LossModel::GilbertElliott(chain) => {
                let leave = if self.bad {
                    chain.p_bad_to_good
                } else {
                    chain.p_good_to_bad
                };
                self.bad ^= self.draw(leave);
                self.draw(if self.bad {
                    chain.loss_bad
                } else {
                    chain.loss_good
                })
            }
        }
    }

    /// Changes the model; the random numbers continue, a chain starts in its good state.
    pub(crate) const fn set_model(&mut self, model: LossModel) {
        self.model = model;
        self.bad = false;
    }

    /// True with probability `p`: 53 random bits as a fraction below 1, so that 0 is never and 1 always.
    fn draw(&mut self, p: Ratio) -> bool {
        let bits = self.rng.next_u64() >> 11;
        // Exact: 53 bits fit an f64.
        (bits as f64) / ((1u64 << 53) as f64) < p.as_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn certainty_is_certain() {
        let mut always = LossProcess::new(LossModel::Iid(Ratio::ONE), Seed::new(1));
        let mut never = LossProcess::new(LossModel::Iid(Ratio::ZERO), Seed::new(1));
        assert!((0..10_000).all(|_| always.step() && !never.step()));
    }
}

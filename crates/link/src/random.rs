//! Random numbers for models: named streams of a fixed generator, and the few distributions needed.
//!
//! Numbers that belong to a point in time (an epoch, a slot) come from a generator of their own, made from the seed and
//! the point's number, so that they do not depend on which packets asked before.

use bentpipe_units::Seed;
use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;

#[derive(Debug, Clone)]
pub(crate) struct Random(Pcg64Mcg);

impl Random {
    pub(crate) fn new(seed: Seed) -> Self {
        let [high, low] = ["high", "low"].map(|half| u128::from(seed.stream(half).as_u64()));
        // The state is given whole: rand_core's way of widening a u64 may change between its versions.
        Self(Pcg64Mcg::new(high << 64 | low))
    }

    /// 53 random bits as a fraction in 0..1.
    pub(crate) fn fraction(&mut self) -> f64 {
        // Exact: 53 bits fit an f64.
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with probability `p`; 0 is never and 1 always.
    pub(crate) fn chance(&mut self, p: f64) -> bool {
        self.fraction() < p
    }

    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.fraction()
    }

    /// The absolute value of a normal variable of mean 0 (Box and Muller 1958).
    pub(crate) fn half_normal(&mut self, sigma: f64) -> f64 {
        let radius = (-2.0 * (1.0 - self.fraction()).ln()).sqrt();
        (sigma * radius * (std::f64::consts::TAU * self.fraction()).cos()).abs()
    }

    /// The time to the next of events that come independently, one in `mean` on average.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.fraction()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_have_their_means() {
        let mut random = Random::new(Seed::new(1));
        let mean = |draw: &mut dyn FnMut() -> f64| (0..100_000).map(|_| draw()).sum::<f64>() / 1e5;
        assert!((mean(&mut || random.fraction()) - 0.5).abs() < 0.005);
        assert!((mean(&mut || random.between(20.0, 100.0)) - 60.0).abs() < 0.3);
        // Half-normal: sigma * sqrt(2 / pi).
        assert!((mean(&mut || random.half_normal(10.0)) - 7.979).abs() < 0.1);
        assert!((mean(&mut || random.exponential(7.0)) - 7.0).abs() < 0.1);
    }
}

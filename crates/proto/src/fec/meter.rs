//! How much a path loses, whatever the reason: what left last is lost like what left before it.

use super::Loss;

/// Packets that are looked at together: more than a burst of losses has.
const BUCKET: f64 = 64.0;
/// Packets after which what was seen before counts half.
const MEMORY: f64 = 4000.0;
/// Fewer packets than these say nothing.
const FEWEST: f64 = 40.0;
/// A share that is worth a remedy.
const USUAL: f64 = 0.002;
/// A share that was learned earlier counts as much as so many packets.
const KNOWN: f64 = 500.0;
/// How fast the measured variance follows.
const GAIN: f64 = 0.0625;
/// Bounds of the variance, in variances of independent losses: it takes long to see that they are independent.
const BURSTS: [f64; 2] = [1.5, 30.0];
const UNKNOWN_BURSTS: f64 = 2.0;

/// Counts packets of which the fate is known.
#[derive(Clone, Copy, Debug)]
pub struct LossMeter {
    acked: f64,
    lost: f64,
    /// Of the current bucket.
    bucket: [f64; 2],
    bursts: f64,
}

impl Default for LossMeter {
    fn default() -> Self {
        Self {
            acked: 0.0,
            lost: 0.0,
            bucket: [0.0; 2],
            bursts: UNKNOWN_BURSTS,
        }
    }
}

impl LossMeter {
    /// The path was found to lose this share earlier.
    pub fn expect(&mut self, share: f64) {
        if self.acked + self.lost < FEWEST {
            (self.acked, self.lost) = (KNOWN * (1.0 - share), KNOWN * share);
        }
    }

    /// One ACK: so many packets came, so many are lost.
    pub fn on_ack(&mut self, acked: f64, lost: f64) {
        self.acked += acked;
        self.lost += lost;
        let [came, missed] = &mut self.bucket;
        *came += acked;
        *missed += lost;
        let (total, missed) = (*came + *missed, *missed);
        if total < BUCKET {
            return;
        }
        self.bucket = [0.0; 2];
        let expected = self.share() * total;
        if expected > 0.0 {
            // The mean was measured with this bucket among others: small ones say little each, so they weigh little.
            let deviation = (missed - expected).powi(2) / expected;
            self.bursts += (deviation - self.bursts) * GAIN;
        }
        if self.acked + self.lost > MEMORY {
            self.acked /= 2.0;
            self.lost /= 2.0;
        }
    }

    /// What is lost, if that is worth a remedy.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        let enough = self.acked + self.lost >= FEWEST && self.share() >= USUAL;
        enough.then(|| Loss {
            share: self.share(),
            bursts: self.bursts.clamp(BURSTS[0], BURSTS[1]),
        })
    }

    fn share(&self) -> f64 {
        self.lost / (self.acked + self.lost).max(1.0)
    }
}

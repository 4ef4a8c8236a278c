//! How much a path loses, whatever the reason: what left last is lost like what left before it. Unless the path says that the
//! reason is congestion: more bytes are the wrong answer then.
//!
//! How many packets are marked "congestion experienced" quinn does not tell, only which ACKs report marks. But its receiver
//! acknowledges a marked packet at once (RFC 9000 §13.2.1), so that such an ACK stands for one mark. It stands for more where
//! marked packets come together or ACKs are lost: the share is a lower bound, and near: where a queue marked all for 0.6 s,
//! 994 ACKs reported the marks of 1138 packets at most.

use super::Loss;

/// Packets that are looked at together: more than a burst of losses has.
const BUCKET: f64 = 64.0;
/// Packets after which what was seen before counts half.
const MEMORY: f64 = 4000.0;
/// Fewer packets than these say nothing.
const FEWEST: f64 = 40.0;
/// The share of packets lost that is worth a remedy: one packet of the last few thousand. A path that loses one packet in
/// a thousand makes two of three files of 1.6 MB a round trip late.
const WORTH_REPAIR: f64 = 0.0001;
/// Congestion lasts until fewer than this share of packets are marked, and begins with more than that: queues mark many
/// at a time, and then none.
const CONGESTED: [f64; 2] = [0.005, 0.01];
/// A share that was learned earlier counts as much as so many packets.
const KNOWN: f64 = 500.0;
/// Weight of a new sample in the measured variance.
const GAIN: f64 = 0.0625;
/// Bounds of the variance, in variances of independent losses: it takes long to see that they are independent.
const BURSTS: [f64; 2] = [1.5, 30.0];
const UNKNOWN_BURSTS: f64 = 2.0;

/// Counts full packets of which the fate is known.
#[derive(Clone, Copy, Debug)]
pub struct LossMeter {
    acked: f64,
    lost: f64,
    marked: f64,
    congested: bool,
    /// Of the current bucket.
    bucket: [f64; 2],
    bursts: f64,
}

impl Default for LossMeter {
    fn default() -> Self {
        Self {
            acked: 0.0,
            lost: 0.0,
            marked: 0.0,
            congested: false,
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
        let usual = CONGESTED[usize::from(!self.congested)];
        self.congested = self.marked > usual * self.acked.max(FEWEST);
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
            self.marked /= 2.0;
        }
    }

    /// An ACK reported marks; its newest packet was so much of a full one.
    pub fn on_marked(&mut self, packet: f64) {
        self.marked += packet;
    }

    /// Loss of the path, if that is worth a remedy and not for congestion.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        let enough = self.acked + self.lost >= FEWEST && self.share() >= WORTH_REPAIR;
        (enough && !self.congested).then(|| Loss {
            share: self.share(),
            bursts: self.bursts.clamp(BURSTS[0], BURSTS[1]),
        })
    }

    fn share(&self) -> f64 {
        self.lost / (self.acked + self.lost).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ACKs of `size` packets, of which every fiftieth is lost, until `packets` have come, and one of `every` is marked (none if
    /// 0). A marked packet is acknowledged at once. Returns the share of packets after which repairs were on, and the first
    /// one after which that had changed.
    fn run(meter: &mut LossMeter, packets: u32, size: u32, every: u32) -> (f64, Option<u32>) {
        let (mut on, mut waiting, mut changed) = (0, 0, None);
        let before = meter.loss().is_some();
        for packet in 1..=packets {
            waiting += 1;
            let marked = every > 0 && packet % every == 0;
            if marked || waiting == size {
                let acked = f64::from(waiting);
                meter.on_ack(acked, acked / 50.0);
                waiting = 0;
            }
            if marked {
                meter.on_marked(1.0);
            }
            let now = meter.loss().is_some();
            on += u32::from(now);
            if now != before {
                changed = changed.or(Some(packet));
            }
        }
        (f64::from(on) / f64::from(packets), changed)
    }

    /// A path that has lost 2 % for a while.
    fn lossy(size: u32) -> LossMeter {
        let mut meter = LossMeter::default();
        run(&mut meter, 20_000, size, 0);
        assert!(meter.loss().is_some(), "2 % are worth a remedy");
        meter
    }

    #[test]
    fn one_lost_packet_is_worth_repairs_until_thousands_have_come() {
        let mut meter = LossMeter::default();
        meter.on_ack(4000.0, 0.0);
        assert_eq!(meter.loss(), None, "nothing is lost");
        meter.on_ack(3.0, 1.0);
        assert!(meter.loss().is_some());
        let came = (1..).find(|_| {
            meter.on_ack(100.0, 0.0);
            meter.loss().is_none()
        });
        assert!((20..100).contains(&came.unwrap()), "{came:?} hundreds");
    }

    #[test]
    fn losses_are_congestion_while_more_than_one_packet_in_a_hundred_is_marked() {
        for size in [1, 2, 60, 200] {
            let mut meter = lossy(size);
            let (on, _) = run(&mut meter, 50_000, size, 111);
            assert_eq!(on, 1.0, "0.9 % marked, {size} packets an ACK");
            run(&mut meter, 10_000, size, 91);
            let (on, _) = run(&mut meter, 50_000, size, 91);
            assert_eq!(on, 0.0, "1.1 % marked, {size} packets an ACK");
        }
    }

    #[test]
    fn a_full_queue_is_believed_at_once_and_forgotten_after_a_while() {
        let mut meter = lossy(60);
        let (_, off) = run(&mut meter, 1000, 60, 1);
        assert!(off.is_some_and(|packets| packets < 100), "{off:?}");
        assert_eq!(run(&mut meter, 5000, 60, 0), (0.0, None), "16 % marked");
        let (_, on) = run(&mut meter, 15_000, 60, 0);
        assert!(on.is_some(), "5 % marked, and long ago");
    }

    /// 20 packets of each 1500, together: 1.3 %.
    #[test]
    fn marks_that_come_in_bursts_are_one_congestion() {
        let mut meter = lossy(60);
        let burst = |meter: &mut LossMeter| {
            let (marked, _) = run(meter, 20, 60, 1);
            let (free, _) = run(meter, 1480, 60, 0);
            (20.0 * marked + 1480.0 * free) / 1500.0
        };
        for _ in 0..10 {
            burst(&mut meter);
        }
        let on: f64 = (0..40).map(|_| burst(&mut meter)).sum();
        assert_eq!(on, 0.0);
    }
}

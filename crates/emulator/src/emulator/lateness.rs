//! How late packets were delivered: a histogram, so that a long run needs no more memory than a short one.
//!
//! Buckets are sixteenths of a power of two; a quantile is its bucket's upper edge, thus at most 7 % too high and never
//! too low. It judges nothing: which lateness makes a run invalid is for the reports to say.

use std::time::Duration;

use bentpipe_units::TimeSpan;

/// Sub-buckets per power of two, as a power of two.
const SUB_BITS: u32 = 4;
const SUB: u64 = 1 << SUB_BITS;
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) << SUB_BITS;

/// Time of writing minus time due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lateness {
    /// Packets written.
    pub packets: u64,
    /// Half of the packets were at most this late.
    pub p50: TimeSpan,
    /// 99 % of the packets were at most this late.
    pub p99: TimeSpan,
    /// 99.9 % of the packets were at most this late.
    pub p999: TimeSpan,
    /// The latest packet, exactly.
    pub max: TimeSpan,
}

#[derive(Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            total: 0,
            max: 0,
        }
    }
}

impl Histogram {
    pub(crate) fn record(&mut self, lateness: Duration) {
        let nanos = u64::try_from(lateness.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(nanos)] += 1;
        self.total += 1;
        self.max = self.max.max(nanos);
    }

    pub(crate) fn summary(&self) -> Lateness {
        Lateness {
            packets: self.total,
            p50: self.per_mille(500),
            p99: self.per_mille(990),
            p999: self.per_mille(999),
            max: Duration::from_nanos(self.max).into(),
        }
    }

    fn per_mille(&self, share: u64) -> TimeSpan {
        let rank = (u128::from(self.total) * u128::from(share)).div_ceil(1000);
        let mut seen = 0u128;
        for (index, count) in self.counts.iter().enumerate() {
            seen += u128::from(*count);
            if seen >= rank {
                return Duration::from_nanos(upper_edge(index).min(self.max)).into();
            }
        }
        TimeSpan::default()
    }
}

/// Values below `SUB` have buckets of their own; above, the leading bits choose.
fn bucket(nanos: u64) -> usize {
    let shift = nanos.max(SUB).ilog2() - SUB_BITS;
    // At most 60 × 16 + 31.
    (u64::from(shift) * SUB + (nanos >> shift)) as usize
}

fn upper_edge(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * SUB {
        return bucket;
    }
    let shift = bucket / SUB - 1;
    let leading = bucket - shift * SUB;
    // Subtract first: the last bucket ends at u64::MAX.
    (leading << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_lies_at_most_seven_percent_below_its_edge() {
        for nanos in (0..5_000).chain([123_456, 99_999_999, u64::MAX / 3, u64::MAX]) {
            let edge = upper_edge(bucket(nanos));
            assert!(
                edge >= nanos && (edge - nanos) <= nanos / 15,
                "{nanos} {edge}"
            );
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_found() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.summary(), Lateness::default());
        for micros in 1..=1000 {
            histogram.record(Duration::from_micros(micros));
        }
        let Lateness {
            packets,
            p50,
            p99,
            p999,
            max,
        } = histogram.summary();
        assert_eq!((packets, max.get()), (1000, Duration::from_millis(1)));
        assert!((500..=535).contains(&p50.get().as_micros()), "{p50}");
        assert!((990..=1000).contains(&p99.get().as_micros()), "{p99}");
        assert!((999..=1000).contains(&p999.get().as_micros()), "{p999}");
    }
}

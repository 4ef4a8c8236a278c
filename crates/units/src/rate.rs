//! Bit rates, in bit/s of IP packets unless a caller says otherwise.
//!
//! Conversions between rate, size and time are integer arithmetic and state which way they round. Pacers and links
//! that must not drift carry the remainder themselves; a single conversion here cannot.

use std::time::Duration;

use crate::ByteCount;
use crate::quantity::{Unit, whole_number};

const UNITS: &[Unit] = &[
    ("Gbit/s", 1_000_000_000),
    ("Mbit/s", 1_000_000),
    ("kbit/s", 1_000),
    ("bit/s", 1),
];
const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// A rate in bit/s. Written `"10 Mbit/s"`; prefixes are decimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BitRate(u64);

whole_number!(BitRate in "bit/s", UNITS, "a rate", "\"10 Mbit/s\"");

impl BitRate {
    /// `n` bit/s.
    pub const fn bits_per_second(n: u64) -> Self {
        Self(n)
    }

    /// `n` kbit/s (1000 bit/s each); saturates.
    pub const fn kilobits_per_second(n: u64) -> Self {
        Self(n.saturating_mul(1_000))
    }

    /// `n` Mbit/s (10^6 bit/s each); saturates.
    pub const fn megabits_per_second(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000))
    }

    /// Time that `size` takes at this rate, rounded up to a nanosecond; `Duration::MAX` at 0 bit/s.
    pub fn transmit_time(self, size: ByteCount) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        let nanos = (u128::from(size.as_u64()) * 8 * NANOS_PER_SECOND).div_ceil(u128::from(self.0));
        let Ok(seconds) = u64::try_from(nanos / NANOS_PER_SECOND) else {
            return Duration::MAX;
        };
        // The remainder is below 10^9 and fits.
        Duration::new(seconds, (nanos % NANOS_PER_SECOND) as u32)
    }

    /// The whole bytes that fit into `time` at this rate, rounded down; saturates after 584 years.
    pub fn bytes_in(self, time: Duration) -> ByteCount {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let bytes = u128::from(self.0) * u128::from(nanos) / (8 * NANOS_PER_SECOND);
        ByteCount::new(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_value_agree() {
        for (text, bits) in [
            ("10 Mbit/s", 10_000_000),
            ("9600 bit/s", 9_600),
            ("1500 kbit/s", 1_500_000),
            ("2 Gbit/s", 2_000_000_000),
            ("0 bit/s", 0),
        ] {
            assert_eq!(text.parse(), Ok(BitRate(bits)));
            assert_eq!(BitRate(bits).to_string(), text);
        }
        assert_eq!("0.5 Mbit/s".parse(), Ok(BitRate::kilobits_per_second(500)));
    }

    #[test]
    fn the_error_names_text_and_accepted_forms() {
        let error = "10 Mbps".parse::<BitRate>().unwrap_err().to_string();
        let expected =
            "`10 Mbps` is not a rate; write it as in \"10 Mbit/s\" (bit/s, kbit/s, Mbit/s, Gbit/s)";
        assert_eq!(error, expected);
    }

    #[test]
    fn transmit_time_rounds_up_and_bytes_in_rounds_down() {
        let rate = BitRate::bits_per_second(3_000_000_000);
        assert_eq!(
            rate.transmit_time(ByteCount::new(1)),
            Duration::from_nanos(3)
        );
        assert_eq!(rate.bytes_in(Duration::from_nanos(3)), ByteCount::new(1));
        assert_eq!(rate.bytes_in(Duration::from_nanos(2)), ByteCount::new(0));
        let ten = BitRate::megabits_per_second(10);
        assert_eq!(
            ten.transmit_time(ByteCount::new(1250)),
            Duration::from_millis(1)
        );
        assert_eq!(
            ten.bytes_in(Duration::from_millis(500)),
            ByteCount::new(625_000)
        );
    }

    #[test]
    fn extremes_saturate() {
        assert_eq!(BitRate(0).transmit_time(ByteCount::new(1)), Duration::MAX);
        assert_eq!(
            BitRate(1).transmit_time(ByteCount::new(u64::MAX)),
            Duration::MAX
        );
        assert_eq!(
            BitRate(u64::MAX).bytes_in(Duration::MAX),
            ByteCount::new(u64::MAX)
        );
    }
}

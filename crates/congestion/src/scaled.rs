//! Gains in permille, and rates in bytes per second: what controllers calculate with, exact in integers wherever that is possible.

use std::time::Duration;

const NANOS: u128 = 1_000_000_000;

/// `value × permille / 1000`, saturating.
pub(super) fn scaled(value: u64, permille: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(permille) / 1000).unwrap_or(u64::MAX)
}

/// Converts `value` to a number of which shares and logarithms are taken.
#[expect(
    clippy::cast_precision_loss,
    reason = "rates and counts, far below 2^53"
)]
pub(super) fn float(value: u64) -> f64 {
    value as f64
}

/// Whole part of `value`; nothing if that is negative.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates at both ends"
)]
pub(super) fn whole(value: f64) -> u64 {
    value as u64
}

/// Bytes at `rate` bytes per second in `time`, saturating.
pub(super) fn bytes_in(rate: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(rate) * time.as_nanos() / NANOS).unwrap_or(u64::MAX)
}

/// Bytes per second of `bytes` in `time`, saturating.
pub(super) fn rate_of(bytes: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(bytes) * NANOS / time.as_nanos().max(1)).unwrap_or(u64::MAX)
}

/// Time that `bytes` take at `rate` bytes per second, saturating.
pub(super) fn time_of(bytes: u64, rate: u64) -> Duration {
    let nanos = u128::from(bytes) * NANOS / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

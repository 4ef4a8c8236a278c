//! Gains in permille: the controllers' factors, exact in integers.

/// `value × permille / 1000`, saturating.
pub(super) fn scaled(value: u64, permille: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(permille) / 1000).unwrap_or(u64::MAX)
}

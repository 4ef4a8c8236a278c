//! Sizes in bytes: packets, queues, windows, volumes.
//!
//! Addition saturates at 2^64 - 1, subtraction at zero is spelled out by the caller; nothing here wraps.

use std::iter::Sum;
use std::ops::{Add, AddAssign};

use crate::quantity::{Unit, whole_number};

// Decimal before binary within a magnitude, so that 128 000 B reads "128 kB" and not "125 KiB".
const UNITS: &[Unit] = &[
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("kB", 1_000),
    ("KiB", 1 << 10),
    ("B", 1),
];

/// A number of bytes. Written `"64 MiB"` or `"625 kB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteCount(u64);

whole_number!(ByteCount in "bytes", UNITS, "a size", "\"64 MiB\"");

impl ByteCount {
    /// No bytes.
    pub const ZERO: Self = Self(0);

    /// `n` bytes.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// The size of something in memory, in bytes.
    pub const fn from_usize(n: usize) -> Self {
        // usize is at most 64 bits on every target Rust has.
        Self(n as u64)
    }

    /// The difference, or zero where `other` is larger.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for ByteCount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for ByteCount {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for ByteCount {
    fn sum<I: Iterator<Item = Self>>(sizes: I) -> Self {
        sizes.fold(Self::ZERO, Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_value_agree() {
        for (text, bytes) in [
            ("64 MiB", 64 << 20),
            ("625 kB", 625_000),
            ("1501 B", 1501),
            ("3 GiB", 3 << 30),
            ("30 MB", 30_000_000),
            ("128 kB", 128_000),
            ("4 KiB", 4096),
            ("0 B", 0),
        ] {
            assert_eq!(text.parse(), Ok(ByteCount(bytes)));
            assert_eq!(ByteCount(bytes).to_string(), text);
        }
        assert_eq!("1.5 KiB".parse(), Ok(ByteCount(1536)));
        assert!("64 mib".parse::<ByteCount>().is_err());
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(ByteCount(u64::MAX) + ByteCount(1), ByteCount(u64::MAX));
        assert_eq!(ByteCount(1).saturating_sub(ByteCount(2)), ByteCount::ZERO);
        assert_eq!(
            [ByteCount(1), ByteCount(2)].into_iter().sum::<ByteCount>(),
            ByteCount(3)
        );
    }
}

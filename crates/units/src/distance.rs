//! Distances and altitudes, in whole metres.

use crate::quantity::{Unit, whole_number};

const UNITS: &[Unit] = &[("km", 1_000), ("m", 1)];

/// A distance or an altitude. Written `"780 km"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Distance(u64);

whole_number!(Distance in "metres", UNITS, "a distance", "\"780 km\"");

impl Distance {
    /// `n` m.
    pub const fn metres(n: u64) -> Self {
        Self(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_value_agree() {
        for (text, metres) in [("780 km", 780_000), ("1 m", 1), ("35786 km", 35_786_000)] {
            assert_eq!(text.parse(), Ok(Distance(metres)));
            assert_eq!(Distance(metres).to_string(), text);
        }
    }
}

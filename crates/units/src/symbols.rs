//! Symbol rates and bandwidths of carriers.
//!
//! A carrier of roll-off α with symbol rate R occupies R × (1 + α).

use crate::quantity::{Unit, whole_number};

/// Symbols per second. Written `"40 Mbaud"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SymbolRate(u64);

/// Occupied bandwidth. Written `"50 MHz"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bandwidth(u64);

const SYMBOL_RATES: &[Unit] = &[
    ("Gbaud", 1_000_000_000),
    ("Mbaud", 1_000_000),
    ("kbaud", 1_000),
    ("baud", 1),
];

const BANDWIDTHS: &[Unit] = &[
    ("GHz", 1_000_000_000),
    ("MHz", 1_000_000),
    ("kHz", 1_000),
    ("Hz", 1),
];

whole_number!(SymbolRate in "symbols per second", SYMBOL_RATES, "a symbol rate", "\"40 Mbaud\"");
whole_number!(Bandwidth in "Hz", BANDWIDTHS, "a bandwidth", "\"50 MHz\"");

impl SymbolRate {
    /// `n` symbols per second.
    pub const fn baud(n: u64) -> Self {
        Self(n)
    }
}

impl Bandwidth {
    /// `n` Hz.
    pub const fn hertz(n: u64) -> Self {
        Self(n)
    }

    /// The symbol rate that fits with this roll-off, rounded down; negative and undefined roll-offs count as none.
    pub fn symbol_rate(self, roll_off: f64) -> SymbolRate {
        let roll_off = roll_off.max(0.0);
        // Rates are below 2^53 wherever a carrier has them. Not quite exact quotients must not lose a whole baud.
        SymbolRate((self.0 as f64 / (1.0 + roll_off) + 1e-6).floor() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_value_agree() {
        assert_eq!("40 Mbaud".parse(), Ok(SymbolRate::baud(40_000_000)));
        assert_eq!("9.99 MHz".parse(), Ok(Bandwidth::hertz(9_990_000)));
        assert_eq!(SymbolRate::baud(7_400_000).to_string(), "7400 kbaud");
        assert_eq!(Bandwidth::hertz(50_000_000).to_string(), "50 MHz");
        let error = "40 MHz".parse::<SymbolRate>().unwrap_err().to_string();
        assert!(error.contains("write it as in \"40 Mbaud\""), "{error}");
    }

    #[test]
    fn a_carrier_fits_its_bandwidth() {
        for (hertz, roll_off, baud) in [
            (50_000_000, 0.25, 40_000_000),
            (54_000_000, 0.35, 40_000_000),
            (9_990_000, 0.35, 7_400_000),
            (48_000_000, 0.2, 40_000_000),
        ] {
            let fits = Bandwidth::hertz(hertz).symbol_rate(roll_off);
            assert_eq!(fits, SymbolRate::baud(baud), "{hertz} {roll_off}");
        }
    }
}

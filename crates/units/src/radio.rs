//! What a carrier and an orbit are measured in: symbol rates, bandwidths, distances.

use std::time::Duration;

use crate::quantity::{Unit, string_form};

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// Gives a `u64` newtype its constructor and its number; the string form is per type.
macro_rules! whole_quantity {
    ($(#[$doc:meta])* $type:ident, $of:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $type(u64);

        impl $type {
            #[doc = concat!("`n` ", $of, ".")]
            pub const fn new(n: u64) -> Self {
                Self(n)
            }

            #[doc = concat!("The number of ", $of, ".")]
            pub const fn as_u64(self) -> u64 {
                self.0
            }

            const fn from_base(n: u64) -> Self {
                Self(n)
            }

            const fn base(self) -> u128 {
                self.0 as u128
            }
        }
    };
}

whole_quantity! {
    /// A symbol rate. Written `"40 Mbaud"`.
    SymbolRate, "symbols per second"
}

whole_quantity! {
    /// A bandwidth or a frequency. Written `"50 MHz"`.
    Frequency, "hertz"
}

whole_quantity! {
    /// A distance or an altitude. Written `"780 km"`.
    Distance, "metres"
}

mod symbol_rate {
    use super::*;
    const UNITS: &[Unit] = &[("Mbaud", 1_000_000), ("kbaud", 1_000), ("baud", 1)];
    string_form!(SymbolRate, "a symbol rate", "\"40 Mbaud\"");
}

mod frequency {
    use super::*;
    const UNITS: &[Unit] = &[
        ("GHz", 1_000_000_000),
        ("MHz", 1_000_000),
        ("kHz", 1_000),
        ("Hz", 1),
    ];
    string_form!(Frequency, "a bandwidth", "\"50 MHz\"");
}

mod distance {
    use super::*;
    const UNITS: &[Unit] = &[("km", 1_000), ("m", 1)];
    string_form!(Distance, "a distance", "\"780 km\"");
}

impl SymbolRate {
    /// How long `symbols` take, rounded up to a nanosecond; `Duration::MAX` at 0 baud.
    pub fn transmit_time(self, symbols: u64) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        let nanos = (u128::from(symbols) * NANOS_PER_SECOND).div_ceil(u128::from(self.0));
        u64::try_from(nanos).map_or(Duration::MAX, Duration::from_nanos)
    }

    /// The whole symbols that fit into `time`, rounded down; saturates.
    pub fn symbols_in(self, time: Duration) -> u64 {
        let symbols = u128::from(self.0).saturating_mul(time.as_nanos()) / NANOS_PER_SECOND;
        u64::try_from(symbols).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_value_agree() {
        assert_eq!("7.4 Mbaud".parse(), Ok(SymbolRate::new(7_400_000)));
        assert_eq!(SymbolRate::new(40_000_000).to_string(), "40 Mbaud");
        assert_eq!("9.99 MHz".parse(), Ok(Frequency::new(9_990_000)));
        assert_eq!("780 km".parse(), Ok(Distance::new(780_000)));
        let error = "7.4 MBd".parse::<SymbolRate>().unwrap_err().to_string();
        assert!(error.contains("write it as in \"40 Mbaud\""), "{error}");
    }

    #[test]
    fn frames_and_superframes() {
        let forward = SymbolRate::new(40_000_000);
        assert_eq!(forward.transmit_time(13_050), Duration::from_nanos(326_250));
        let back = SymbolRate::new(7_400_000);
        assert_eq!(back.symbols_in(Duration::from_micros(26_500)), 196_100);
        assert_eq!(SymbolRate::new(0).transmit_time(1), Duration::MAX);
    }
}

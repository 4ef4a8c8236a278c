//! The 28 MODCODs of DVB-S2 with normal FECFRAMEs, and sets of them.
//!
//! EN 302 307-1: Kbch table 5a, slots table 11, Es/N0 for a FECFRAME error ratio of 1e-7 on an AWGN channel table 13.
//! What follows from those is computed.

use std::fmt;
use std::str::FromStr;

use bentpipe_units::{ByteCount, Decibel};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// BBHEADER (EN 302 307-1 §5.1.6).
const BBHEADER_BITS: u64 = 80;
/// Symbols of a slot, and of the PLHEADER.
const SLOT: u64 = 90;
/// A pilot block comes after this many slots.
const SLOTS_PER_PILOT: u64 = 16;
const PILOT_SYMBOLS: u64 = 36;
/// Coded bits of a normal FECFRAME.
const FECFRAME_BITS: u64 = 64_800;

/// Number of MODCODs; they are numbered from 1.
pub(crate) const MODCODS: u8 = 28;

/// One MODCOD, by its number of 1 to 28.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Modcod(u8);

struct Row {
    bits_per_symbol: u64,
    kbch: u64,
    threshold: Decibel,
}

const fn row(bits_per_symbol: u64, kbch: u64, threshold: f64) -> Row {
    Row {
        bits_per_symbol,
        kbch,
        threshold: Decibel::new(threshold),
    }
}

const TABLE: [Row; MODCODS as usize] = [
    // QPSK 1/4, 1/3, 2/5, 1/2, 3/5, 2/3, 3/4, 4/5, 5/6, 8/9, 9/10
    row(2, 16_008, -2.35),
    row(2, 21_408, -1.24),
    row(2, 25_728, -0.30),
    row(2, 32_208, 1.00),
    row(2, 38_688, 2.23),
    row(2, 43_040, 3.10),
    row(2, 48_408, 4.03),
    row(2, 51_648, 4.68),
    row(2, 53_840, 5.18),
    row(2, 57_472, 6.20),
    row(2, 58_192, 6.42),
    // 8PSK 3/5, 2/3, 3/4, 5/6, 8/9, 9/10
    row(3, 38_688, 5.50),
    row(3, 43_040, 6.62),
    row(3, 48_408, 7.91),
    row(3, 53_840, 9.35),
    row(3, 57_472, 10.69),
    row(3, 58_192, 10.98),
    // 16APSK 2/3, 3/4, 4/5, 5/6, 8/9, 9/10
    row(4, 43_040, 8.97),
    row(4, 48_408, 10.21),
    row(4, 51_648, 11.03),
    row(4, 53_840, 11.61),
    row(4, 57_472, 12.89),
    row(4, 58_192, 13.13),
    // 32APSK 3/4, 4/5, 5/6, 8/9, 9/10
    row(5, 48_408, 12.73),
    row(5, 51_648, 13.64),
    row(5, 53_840, 14.28),
    row(5, 57_472, 15.69),
    row(5, 58_192, 16.05),
];

/// Names in the order of [`TABLE`].
const NAMES: [&str; MODCODS as usize] = [
    "QPSK 1/4",
    "QPSK 1/3",
    "QPSK 2/5",
    "QPSK 1/2",
    "QPSK 3/5",
    "QPSK 2/3",
    "QPSK 3/4",
    "QPSK 4/5",
    "QPSK 5/6",
    "QPSK 8/9",
    "QPSK 9/10",
    "8PSK 3/5",
    "8PSK 2/3",
    "8PSK 3/4",
    "8PSK 5/6",
    "8PSK 8/9",
    "8PSK 9/10",
    "16APSK 2/3",
    "16APSK 3/4",
    "16APSK 4/5",
    "16APSK 5/6",
    "16APSK 8/9",
    "16APSK 9/10",
    "32APSK 3/4",
    "32APSK 4/5",
    "32APSK 5/6",
    "32APSK 8/9",
    "32APSK 9/10",
];

impl Modcod {
    /// QPSK 1/4.
    pub(crate) const FIRST: Self = Self(1);

    pub(crate) const fn new(id: u8) -> Option<Self> {
        if id >= 1 && id <= MODCODS {
            Some(Self(id))
        } else {
            None
        }
    }

    pub(crate) fn all() -> impl DoubleEndedIterator<Item = Self> {
        (1..=MODCODS).map(Self)
    }

    /// Number of the MODCOD in EN 302 307-1 table 12.
    pub(crate) const fn id(self) -> u8 {
        self.0
    }

    /// Modulation and code rate, as EN 302 307-1 table 12 writes them.
    pub(crate) const fn name(self) -> &'static str {
        NAMES[(self.0 - 1) as usize]
    }

    const fn row(self) -> &'static Row {
        &TABLE[(self.0 - 1) as usize]
    }

    /// Es/N0 at which one FECFRAME in ten million is lost.
    pub(crate) const fn threshold(self) -> Decibel {
        self.row().threshold
    }

    /// Bytes that a BBFRAME carries besides its header.
    pub(crate) const fn data_field(self) -> ByteCount {
        ByteCount::new((self.row().kbch - BBHEADER_BITS) / 8)
    }

    /// The symbols of a PLFRAME.
    pub(crate) const fn symbols(self, pilots: bool) -> u64 {
        let slots = FECFRAME_BITS / self.row().bits_per_symbol / SLOT;
        // A block that would come before the next header is left out.
        let blocks = (slots - 1) / SLOTS_PER_PILOT;
        let pilot_symbols = if pilots { blocks * PILOT_SYMBOLS } else { 0 };
        SLOT * (slots + 1) + pilot_symbols
    }

    /// Bits of data field per symbol.
    pub(crate) fn efficiency(self, pilots: bool) -> f64 {
        (self.data_field().as_u64() * 8) as f64 / self.symbols(pilots) as f64
    }
}

/// Some of the 28 MODCODs, at least one. Written `"1-28"` or `"4, 12-17, 24"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModcodSet(u32);

impl ModcodSet {
    /// Every MODCOD.
    pub const ALL: Self = Self(((1 << MODCODS) - 1) << 1);

    /// Numbers of the MODCODs, in rising order.
    pub fn ids(self) -> impl DoubleEndedIterator<Item = u8> {
        (1..=MODCODS).filter(move |id| self.0 & (1 << id) != 0)
    }

    pub(crate) const fn contains(self, modcod: Modcod) -> bool {
        self.0 & (1 << modcod.0) != 0
    }

    pub(crate) fn iter(self) -> impl DoubleEndedIterator<Item = Modcod> {
        Modcod::all().filter(move |modcod| self.contains(*modcod))
    }
}

impl Default for ModcodSet {
    fn default() -> Self {
        Self::ALL
    }
}

/// A text that is no set of MODCODs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a set of MODCODs; write numbers from 1 to 28 and ranges, as in \"1-28\" or \"4, 12-17\""
)]
pub struct ParseModcodsError(String);

impl FromStr for ModcodSet {
    type Err = ParseModcodsError;

    fn from_str(text: &str) -> Result<Self, ParseModcodsError> {
        let error = || ParseModcodsError(text.to_owned());
        let number = |text: &str| text.trim().parse().ok().and_then(Modcod::new);
        let mut set = 0;
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Some(first), Some(last)) = (number(first), number(last)) else {
                return Err(error());
            };
            if first > last {
                return Err(error());
            }
            for id in first.0..=last.0 {
                set |= 1 << id;
            }
        }
        Ok(Self(set))
    }
}

impl fmt::Display for ModcodSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has = |id: u8| id <= MODCODS && self.0 & (1 << id) != 0;
        let mut separator = "";
        for first in self.ids().filter(|id| !has(id - 1)) {
            let last = (first..).find(|id| !has(id + 1)).unwrap_or(first);
            write!(f, "{separator}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            separator = ", ";
        }
        Ok(())
    }
}

impl Serialize for ModcodSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ModcodSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spectral efficiencies as EN 302 307-1 table 13 prints them.
    const TABLE_13: [f64; 28] = [
        0.490243, 0.656448, 0.789412, 0.988858, 1.188304, 1.322253, 1.487473, 1.587196, 1.654663,
        1.766451, 1.788612, 1.779991, 1.980636, 2.228124, 2.478562, 2.646012, 2.679207, 2.637201,
        2.966728, 3.165623, 3.300184, 3.523143, 3.567342, 3.703295, 3.951571, 4.119540, 4.397854,
        4.453027,
    ];

    #[test]
    fn efficiencies_are_those_of_the_standard() {
        for (modcod, printed) in Modcod::all().zip(TABLE_13) {
            let computed = modcod.efficiency(false);
            assert!((computed - printed).abs() < 1e-6, "{modcod:?} {computed}");
            // Data fields are whole bytes; nothing is rounded away.
            assert_eq!((modcod.row().kbch - BBHEADER_BITS) % 8, 0);
        }
    }

    #[test]
    fn frames_have_the_length_of_the_standard() {
        for (id, plain, with_pilots) in [
            (1, 32_490, 33_282),
            (12, 21_690, 22_194),
            (18, 16_290, 16_686),
            (28, 13_050, 13_338),
        ] {
            let modcod = Modcod::new(id).unwrap();
            let symbols = [false, true].map(|pilots| modcod.symbols(pilots));
            assert_eq!(symbols, [plain, with_pilots], "{id}");
        }
        assert_eq!(Modcod(28).data_field(), ByteCount::new(7264));
    }

    #[test]
    fn sets_are_read_and_written() {
        for (text, count) in [("1-28", 28), ("4, 12-17, 24", 8), ("7", 1), ("1, 3, 5", 3)] {
            let set: ModcodSet = text.parse().unwrap();
            assert_eq!(set.ids().count(), count, "{text}");
            assert_eq!(set.to_string(), text);
        }
        assert_eq!("1-28".parse(), Ok(ModcodSet::ALL));
        for text in ["", "0", "29", "5-3", "1-", "x", "1-29", "-1", "1,,2"] {
            let error = text.parse::<ModcodSet>().unwrap_err().to_string();
            assert!(error.contains("write numbers from 1 to 28"), "{text}");
        }
        assert_eq!(Modcod::new(0), None);
        assert_eq!(Modcod::new(29), None);
    }
}

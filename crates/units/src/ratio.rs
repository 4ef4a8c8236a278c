//! Probabilities and shares, between 0 and 1.
//!
//! Read from a number (`0.01`) or a percentage (`"1 %"`), written as a number. The type holds no other value, so a
//! model that takes a `Ratio` needs no range check.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::ParseQuantityError;

/// A number in 0..=1. Written `"1 %"`, `"0.01"` or `0.01`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize)]
#[serde(transparent)]
pub struct Ratio(f64);

impl Ratio {
    /// Never, or nothing.
    pub const ZERO: Self = Self(0.0);
    /// Always, or everything.
    pub const ONE: Self = Self(1.0);

    /// The ratio `value`, or `None` outside 0..=1 (NaN included).
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=1.0).contains(&value).then_some(Self(value))
    }

    /// The value in 0..=1.
    pub const fn as_f64(self) -> f64 {
        self.0
    }
}

impl FromStr for Ratio {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let trimmed = text.trim();
        let value = match trimmed.strip_suffix('%') {
            Some(percent) => percent
                .trim_end()
                .parse::<f64>()
                .map(|percent| percent / 100.0),
            None => trimmed.parse::<f64>(),
        };
        value
            .ok()
            .and_then(Self::new)
            .ok_or_else(|| ParseQuantityError::Form {
                text: text.to_owned(),
                kind: "a ratio",
                example: "\"1 %\"",
                accepted: "or a number from 0 to 1".to_owned(),
            })
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Ratio {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberOrText)
    }
}

struct NumberOrText;

impl de::Visitor<'_> for NumberOrText {
    type Value = Ratio;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a ratio as in \"1 %\" or 0.01")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Ratio, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Ratio, E> {
        Ratio::new(value).ok_or_else(|| E::invalid_value(de::Unexpected::Float(value), &self))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Ratio, E> {
        match value {
            0 => Ok(Ratio::ZERO),
            1 => Ok(Ratio::ONE),
            _ => Err(E::invalid_value(de::Unexpected::Signed(value), &self)),
        }
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Ratio, E> {
        self.visit_i64(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_and_numbers_agree() {
        assert_eq!("7 %".parse(), Ok(Ratio(0.07)));
        assert_eq!("7%".parse(), Ok(Ratio(0.07)));
        assert_eq!("0.07".parse(), Ok(Ratio(0.07)));
        assert_eq!("100 %".parse(), Ok(Ratio::ONE));
        assert_eq!(Ratio(0.07).to_string().parse(), Ok(Ratio(0.07)));
    }

    #[test]
    fn only_zero_to_one() {
        for text in ["101 %", "-1 %", "1.5", "NaN", "%", "one"] {
            assert!(text.parse::<Ratio>().is_err(), "{text}");
        }
        assert_eq!(Ratio::new(f64::NAN), None);
    }
}

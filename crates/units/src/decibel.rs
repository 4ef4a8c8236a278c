//! Decibels: C/N, Es/N0, margins, attenuation.
//!
//! A number of its own, not a scaled integer: levels are sums of logarithms, and no file states them finer than a
//! hundredth. Always finite, so that levels have an order.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, Neg, Sub};
use std::str::FromStr;

use crate::ParseQuantityError;

/// No level of a radio link is further from 0 dB than this, in either direction.
const LARGEST: f64 = 1000.0;

/// A level or a difference of levels. Written `"16.05 dB"` or `"-2.35 dB"`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Decibel(f64);

impl Decibel {
    /// No difference; a ratio of one.
    pub const ZERO: Self = Self(0.0);

    /// `value` dB, held within ±1000 dB; NaN counts as -1000 dB, which is no signal at all.
    pub const fn new(value: f64) -> Self {
        Self(if value.is_nan() {
            -LARGEST
        } else {
            // Plus zero: -0 dB and 0 dB are one level.
            value.clamp(-LARGEST, LARGEST) + 0.0
        })
    }

    /// The number of decibels.
    pub const fn as_f64(self) -> f64 {
        self.0
    }

    /// The level of a ratio of powers.
    pub fn from_power_ratio(ratio: f64) -> Self {
        Self::new(10.0 * ratio.log10())
    }

    /// The ratio of powers, 10^(dB/10).
    pub fn power_ratio(self) -> f64 {
        10f64.powf(self.0 / 10.0)
    }
}

impl Eq for Decibel {}

impl PartialOrd for Decibel {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decibel {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Add for Decibel {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self::new(self.0 + other.0)
    }
}

impl Sub for Decibel {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self::new(self.0 - other.0)
    }
}

impl Neg for Decibel {
    type Output = Self;

    fn neg(self) -> Self {
        Self::new(-self.0)
    }
}

impl FromStr for Decibel {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = text.trim().strip_suffix("dB").map(str::trim_end);
        number
            .and_then(|number| number.parse::<f64>().ok())
            .filter(|value| value.abs() <= LARGEST)
            .map(Self::new)
            .ok_or_else(|| ParseQuantityError::Form {
                text: text.to_owned(),
                kind: "a level",
                example: "\"16.05 dB\"",
                accepted: "dB, at most ±1000".to_owned(),
            })
    }
}

impl fmt::Display for Decibel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} dB", self.0)
    }
}

crate::quantity::serde_as_text!(Decibel, "a level", "\"16.05 dB\"");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_value_agree() {
        for (text, value) in [("16.05 dB", 16.05), ("-2.35 dB", -2.35), ("0 dB", 0.0)] {
            assert_eq!(text.parse(), Ok(Decibel(value)));
            assert_eq!(Decibel(value).to_string(), text);
        }
        assert_eq!("3dB".parse(), Ok(Decibel(3.0)));
        for text in ["3", "dB", "NaN dB", "inf dB", "1001 dB", "3 db"] {
            let error = text.parse::<Decibel>().unwrap_err().to_string();
            assert!(error.contains("write it as in \"16.05 dB\""), "{error}");
        }
    }

    #[test]
    fn levels_have_an_order_and_powers() {
        assert!(Decibel::new(-2.0) < Decibel::new(1.0));
        assert_eq!(Decibel::new(f64::NAN), Decibel(-1000.0));
        assert_eq!(Decibel::from_power_ratio(0.0), Decibel(-1000.0));
        assert!((Decibel::new(3.0103).power_ratio() - 2.0).abs() < 1e-4);
        assert_eq!(Decibel::from_power_ratio(100.0), Decibel(20.0));
    }
}

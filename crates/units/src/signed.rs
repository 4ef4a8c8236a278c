//! Angles and slopes: quantities that may be negative and are read as floating point, as decibels are.
//!
//! Each has one unit, is finite, and lies in a range outside of which it is surely a slip. Display writes the shortest
//! number that is read back as the same value.

use crate::ParseQuantityError;

/// The number before `unit`, if it is one of -`limit`..=`limit`.
fn parse(text: &str, unit: &str, limit: f64) -> Option<f64> {
    let number = text.trim().strip_suffix(unit)?.trim_end();
    let decimal = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+');
    let value: f64 = number.chars().all(decimal).then(|| number.parse().ok())??;
    (value.abs() <= limit).then_some(value)
}

/// A newtype of `f64` with one unit; see the module.
macro_rules! signed_quantity {
    ($(#[$doc:meta])* $type:ident, $kind:literal, $unit:literal, $example:literal, $limit:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
        pub struct $type(f64);

        impl $type {
            /// Nothing.
            pub const ZERO: Self = Self(0.0);

            #[doc = concat!("So many ", $unit, "; NaN counts as 0 and the range ends at ±", stringify!($limit), ".")]
            pub const fn new(value: f64) -> Self {
                if value.is_nan() { Self(0.0) } else { Self(value.clamp(-$limit, $limit)) }
            }

            #[doc = concat!("The number of ", $unit, ".")]
            pub const fn as_f64(self) -> f64 {
                self.0
            }
        }

        impl std::str::FromStr for $type {
            type Err = ParseQuantityError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                parse(text, $unit, $limit)
                    .map(Self)
                    .ok_or_else(|| ParseQuantityError::Form {
                        text: text.to_owned(),
                        kind: $kind,
                        example: $example,
                        accepted: format!("{}, at most ±{}", $unit, $limit),
                    })
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)?;
                f.write_str(concat!(" ", $unit))
            }
        }

        crate::quantity::serde_as_text!($type, $kind, $example);
    };
}

signed_quantity! {
    /// Rate at which an attenuation changes. Written `"1 dB/s"`.
    DecibelSlope, "a slope in decibels", "dB/s", "\"1 dB/s\"", 1000.0
}

signed_quantity! {
    /// An angle: longitude (east positive), latitude (north positive), elevation, inclination. Written `"-40 deg"`.
    Angle, "an angle", "deg", "\"-40 deg\"", 360.0
}

impl Angle {
    /// The angle in radians.
    pub const fn as_radians(self) -> f64 {
        self.0.to_radians()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_value_agree() {
        for (text, value) in [("86.4 deg", 86.4), ("-40 deg", -40.0), ("0 deg", 0.0)] {
            let angle: Angle = text.parse().unwrap();
            assert_eq!(angle, Angle::new(value));
            assert_eq!(angle.to_string(), text);
        }
        assert_eq!("+3deg".parse(), Ok(Angle::new(3.0)));
        assert_eq!("-0.5 dB/s".parse(), Ok(DecibelSlope::new(-0.5)));
        assert_eq!(Angle::new(f64::NAN), Angle::ZERO);
    }

    #[test]
    fn malformed_text_is_refused() {
        for text in [
            "", "deg", "3", "3 Deg", "1e3 deg", "inf deg", "NaN deg", "- 3 deg", "361 deg",
        ] {
            assert!(text.parse::<Angle>().is_err(), "{text}");
        }
        let error = "3 dB".parse::<DecibelSlope>().unwrap_err().to_string();
        let expected =
            "`3 dB` is not a slope in decibels; write it as in \"1 dB/s\" (dB/s, at most ±1000)";
        assert_eq!(error, expected);
    }
}

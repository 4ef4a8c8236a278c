//! The string form of a quantity: a decimal number, an optional space, a unit.
//!
//! Numbers are read as integers scaled by the unit, never as floating point, so `0.1 s` is exactly 100 ms.
//! What does not fit the base unit is rounded to nearest (`0.1 KiB` is 102 B). Display picks the largest unit that
//! holds the value whole: exact, and read back as the same value.

/// A unit's name and its size in base units (bit/s, bytes, nanoseconds), largest first in a table.
pub(crate) type Unit = (&'static str, u64);

/// A string that is not the quantity it should be. The message quotes the text, and shows an accepted form if it has another.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseQuantityError {
    /// The text has another form.
    #[error("`{text}` is not {kind}; write it as in {example} ({accepted})")]
    Form {
        /// Text that was read.
        text: String,
        /// Kind of quantity, with its article.
        kind: &'static str,
        /// Text that would be accepted.
        example: &'static str,
        /// Units.
        accepted: String,
    },
    /// The quantity exceeds 64 bits of base units.
    #[error("`{text}` is more than {kind} can be; choose less")]
    TooLarge {
        /// Text that was read.
        text: String,
        /// Kind of quantity, with its article.
        kind: &'static str,
    },
}

/// `text` in base units, or `None` if it is malformed, has an unknown unit or exceeds 64 bits.
pub(crate) fn parse(text: &str, units: &[Unit]) -> Option<u64> {
    let (number, scale) = split(text, units)?;
    scaled(number, scale)
}

/// The number of `text`, and the size of its unit in base units.
fn split<'a>(text: &'a str, units: &[Unit]) -> Option<(&'a str, u64)> {
    let text = text.trim();
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(unit_at);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    Some((number, *scale))
}

/// `number` × `scale`, rounded to nearest.
fn scaled(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let divisor = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let whole = whole.parse::<u128>().ok()?.checked_mul(u128::from(scale))?;
    let part = fraction
        .parse::<u128>()
        .ok()?
        .checked_mul(u128::from(scale))?;
    let rounded = part.checked_add(divisor / 2)? / divisor;
    u64::try_from(whole.checked_add(rounded)?).ok()
}

/// The value in the largest unit that divides it; zero in the base unit, which is the table's last.
pub(crate) fn format(
    value: u128,
    units: &[Unit],
    f: &mut std::fmt::Formatter<'_>,
) -> std::fmt::Result {
    let whole = |unit: &&Unit| value != 0 && value.is_multiple_of(u128::from(unit.1));
    match units.iter().find(whole).or(units.last()) {
        Some((name, scale)) => write!(f, "{} {name}", value / u128::from(*scale)),
        None => write!(f, "{value}"),
    }
}

/// The error for `text`, which lists the units of the table if its form is wrong.
pub(crate) fn error(
    text: &str,
    kind: &'static str,
    example: &'static str,
    units: &[Unit],
) -> ParseQuantityError {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let number =
        split(text, units).map(|(number, _)| number.split_once('.').unwrap_or((number, "0")));
    let text = text.to_owned();
    if number.is_some_and(|(whole, fraction)| digits(whole) && digits(fraction)) {
        return ParseQuantityError::TooLarge { text, kind };
    }
    let names: Vec<_> = units.iter().rev().map(|(name, _)| *name).collect();
    ParseQuantityError::Form {
        text,
        kind,
        example,
        accepted: names.join(", "),
    }
}

/// Gives a wrapped `u64` of base units its number and its string form.
macro_rules! whole_number {
    ($type:ident in $base:literal, $units:expr, $kind:literal, $example:literal) => {
        impl $type {
            #[doc = concat!("In ", $base, ".")]
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

        $crate::quantity::string_form!($type, $units, $kind, $example);
    };
}
pub(crate) use whole_number;

/// Gives a type with `from_base(u64)` and `base(self) -> u128` its string form in Rust and serde.
macro_rules! string_form {
    ($type:ident, $units:expr, $kind:literal, $example:literal) => {
        impl std::str::FromStr for $type {
            type Err = $crate::ParseQuantityError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $crate::quantity::parse(text, $units)
                    .map(Self::from_base)
                    .ok_or_else(|| $crate::quantity::error(text, $kind, $example, $units))
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $crate::quantity::format(self.base(), $units, f)
            }
        }

        $crate::quantity::serde_as_text!($type, $kind, $example);
    };
}
pub(crate) use string_form;

/// Lets serde read and write a type by its string form.
macro_rules! serde_as_text {
    ($type:ident, $kind:literal, $example:literal) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl serde::de::Visitor<'_> for Text {
                    type Value = $type;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!($kind, " as in ", $example))
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }
    };
}
pub(crate) use serde_as_text;

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: &[Unit] = &[("k", 1000), ("one", 1)];

    #[test]
    fn numbers_are_exact_and_rounded_to_nearest() {
        assert_eq!(parse("0.1 k", UNITS), Some(100));
        assert_eq!(parse("1.2344 k", UNITS), Some(1234));
        assert_eq!(parse("1.2345 k", UNITS), Some(1235));
        assert_eq!(parse("18446744073709551615 one", UNITS), Some(u64::MAX));
        assert_eq!(parse(" 7k ", UNITS), Some(7000));
    }

    #[test]
    fn malformed_text_is_refused() {
        for text in [
            "", "k", "7", ".5 k", "5. k", "1.2.3 k", "-1 k", "1e3 k", "1 K", "1 k k", "١ k",
        ] {
            assert_eq!(parse(text, UNITS), None, "{text}");
        }
        assert_eq!(parse("18446744073709551616 one", UNITS), None);
        assert_eq!(
            parse("99999999999999999999999999999999999999999 k", UNITS),
            None
        );
    }
}

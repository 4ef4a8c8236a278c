//! The forms in which values are written: a string, a number within bounds, one entry or a list.
//!
//! Everything deserialises straight into its final type, so that an error carries the place of the value itself.

use std::fmt;
use std::marker::PhantomData;

use bentpipe_units::BitRate;
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::FromText;

/// Below this a tunnel's own timers and ACKs are more than it carries.
const SLOWEST: BitRate = BitRate::kilobits_per_second(16);

/// Deserialises a list of strings, each with its place.
pub(in crate::config) fn spanned_texts<'de, D: Deserializer<'de>, T: FromText>(
    deserializer: D,
) -> Result<Vec<Spanned<T>>, D::Error> {
    let texts = Vec::<Spanned<Text<T>>>::deserialize(deserializer)?;
    let plain = |text: Spanned<Text<T>>| Spanned::new(text.span(), text.into_inner().0);
    Ok(texts.into_iter().map(plain).collect())
}

/// The default of what is on unless it is switched off.
pub(in crate::config) fn yes() -> bool {
    true
}

/// Deserialises a string into `T`.
pub(in crate::config) fn text<'de, D: Deserializer<'de>, T: FromText>(
    deserializer: D,
) -> Result<T, D::Error> {
    Text::deserialize(deserializer).map(|text| text.0)
}

/// Deserialises a string into `Some(T)`.
pub(in crate::config) fn some_text<'de, D: Deserializer<'de>, T: FromText>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    text(deserializer).map(Some)
}

/// Deserialises an integer from `LEAST` to `MOST`.
pub(in crate::config) fn within<'de, D: Deserializer<'de>, const LEAST: u64, const MOST: u64>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    deserializer
        .deserialize_i64(Within::<LEAST, MOST>)
        .map(Some)
}

/// Deserialises the most of something: at least one, for none at all would be a daemon that does nothing.
pub(in crate::config) fn count<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<u32, D::Error> {
    let number = deserializer.deserialize_i64(Within::<1, 1_000_000_000>)?;
    Ok(u32::try_from(number).expect("a number within its bounds"))
}

/// Deserialises what [`count`] does into `Some`.
pub(in crate::config) fn some_count<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u32>, D::Error> {
    count(deserializer).map(Some)
}

/// Deserialises a rate at which something moves.
pub(in crate::config) fn positive_rate<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BitRate>, D::Error> {
    let rate = BitRate::deserialize(deserializer)?;
    if rate < SLOWEST {
        let fault = format!("{rate} is too slow for a tunnel; expected {SLOWEST} or more");
        return Err(D::Error::custom(fault));
    }
    Ok(Some(rate))
}

/// Deserialises a list of strings.
pub(in crate::config) fn texts<'de, D: Deserializer<'de>, T: FromText>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    Vec::<Text<T>>::deserialize(deserializer).map(plain)
}

/// Deserialises a string, or a list; `lists.rs` says which may be empty.
pub(in crate::config) fn text_or_texts<'de, D: Deserializer<'de>, T: FromText>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    one_or_many::<_, Text<T>>(deserializer).map(plain)
}

/// Deserialises a string or table, or a list.
pub(in crate::config) fn one_or_many<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    deserializer.deserialize_any(OneOrMany(PhantomData))
}

fn plain<T>(texts: Vec<Text<T>>) -> Vec<T> {
    texts.into_iter().map(|text| text.0).collect()
}

/// Carries the syntax of [`FromText`] into serde.
struct Text<T>(T);

impl<'de, T: FromText> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor(PhantomData))
    }
}

struct TextVisitor<T>(PhantomData<T>);

impl<T: FromText> Visitor<'_> for TextVisitor<T> {
    type Value = Text<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text<T>, E> {
        T::from_text(text).map(Text).map_err(E::custom)
    }
}

struct Within<const LEAST: u64, const MOST: u64>;

impl<const LEAST: u64, const MOST: u64> Visitor<'_> for Within<LEAST, MOST> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an integer from {LEAST} to {MOST}")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<u64, E> {
        let fitting = u64::try_from(value).ok();
        fitting
            .filter(|value| (LEAST..=MOST).contains(value))
            .ok_or_else(|| {
                E::custom(format!(
                    "{value} is out of range; expected {LEAST} to {MOST}"
                ))
            })
    }
}

/// Unlike serde's untagged enums this keeps the place and the message of an inner error.
struct OneOrMany<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrMany<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one entry or a list of them")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<T>, E> {
        T::deserialize(StrDeserializer::new(text)).map(|one| vec![one])
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Vec<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(|one| vec![one])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
        let mut many = Vec::new();
        while let Some(one) = seq.next_element()? {
            many.push(one);
        }
        Ok(many)
    }
}

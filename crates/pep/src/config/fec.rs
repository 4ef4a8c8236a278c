//! `fec = "off" | "auto" | { repair = 1, per = 20 }`.

use std::fmt;

use bentpipe_proto::fec::Fec;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::value::within;

/// Most packets that a fixed rate may name.
const MOST: u64 = 1000;

/// A fixed rate as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fixed {
    #[serde(deserialize_with = "within::<_, 0, MOST>")]
    repair: Option<u64>,
    #[serde(deserialize_with = "within::<_, 1, MOST>")]
    per: Option<u64>,
}

struct FecVisitor;

impl<'de> Visitor<'de> for FecVisitor {
    type Value = Fec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"off\", \"auto\" or a table such as { repair = 1, per = 20 }")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Fec, E> {
        match text {
            "off" => Ok(Fec::Off),
            "auto" => Ok(Fec::Auto),
            _ => Err(E::unknown_variant(text, &["off", "auto"])),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Fec, A::Error> {
        let fixed = Fixed::deserialize(MapAccessDeserializer::new(map))?;
        let small = |number: Option<u64>| number.and_then(|number| u16::try_from(number).ok());
        Ok(Fec::Fixed {
            repair: small(fixed.repair).unwrap_or_default(),
            per: small(fixed.per).unwrap_or(1),
        })
    }
}

/// Deserialises how losses are to be repaired.
pub(super) fn some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Fec>, D::Error> {
    deserializer.deserialize_any(FecVisitor).map(Some)
}

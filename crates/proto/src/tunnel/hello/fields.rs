//! Values of HELLO's parameters: prefixes, addresses, controllers, repairs.

use std::net::IpAddr;

use ipnet::IpNet;

use super::super::address::{get_ip, put_ip};
use super::super::wire::{Reader, put_tlv};
use super::super::{DecodeError, varint};
use super::{MAX_AGENT, MAX_ASSIGNED, MAX_CONTROLLER};
use crate::fec::Fec;

/// A mode, and the two numbers of a fixed rate.
pub(super) fn encode_fec(fec: Fec) -> Vec<u8> {
    let mut value = Vec::new();
    let fields: &[u64] = match fec {
        Fec::Off => &[0],
        Fec::Auto => &[1],
        Fec::Fixed { repair, per } => &[2, u64::from(repair), u64::from(per)],
    };
    for field in fields {
        varint::encode(*field, &mut value);
    }
    value
}

/// Modes that are not known are read as the default.
pub(super) fn decode_fec(reader: &mut Reader<'_>) -> Result<Fec, DecodeError> {
    let mut number =
        || -> Result<u16, DecodeError> { Ok(u16::try_from(reader.varint()?).unwrap_or(u16::MAX)) };
    let fec = match number()? {
        0 => Fec::Off,
        2 => Fec::Fixed {
            repair: number()?,
            per: number()?.max(1),
        },
        _ => Fec::Auto,
    };
    while !reader.is_empty() {
        reader.varint()?;
    }
    Ok(fec)
}

/// Writes `name` if it is one.
pub(super) fn put_controller(id: u64, name: Option<&str>, out: &mut Vec<u8>) {
    if let Some(name) = name.filter(|name| is_controller(name)) {
        put_tlv(id, name.as_bytes(), out);
    }
}

pub(super) fn agent(value: &[u8]) -> Result<String, DecodeError> {
    text(value)
        .filter(|text| text.len() <= MAX_AGENT)
        .ok_or(DecodeError::Text("agent"))
}

pub(super) fn controller(value: &[u8]) -> Result<String, DecodeError> {
    text(value)
        .filter(|name| is_controller(name))
        .ok_or(DecodeError::Text("controller"))
}

/// Printable ASCII; what goes to logs must not carry terminal escapes.
fn text(value: &[u8]) -> Option<String> {
    let printable = value.iter().all(|b| *b == b' ' || b.is_ascii_graphic());
    str::from_utf8(value)
        .ok()
        .filter(|_| printable)
        .map(str::to_owned)
}

fn is_controller(name: &str) -> bool {
    (1..=MAX_CONTROLLER).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Writes the first `most` of `prefixes`, if there are some.
pub(super) fn put_prefixes(id: u64, prefixes: &[IpNet], most: usize, out: &mut Vec<u8>) {
    if prefixes.is_empty() {
        return;
    }
    let mut value = Vec::new();
    for prefix in prefixes.iter().take(most) {
        put_ip(prefix.network(), &mut value);
        value.push(prefix.prefix_len());
    }
    put_tlv(id, &value, out);
}

pub(super) fn prefixes(reader: &mut Reader<'_>, most: usize) -> Result<Vec<IpNet>, DecodeError> {
    let mut prefixes = Vec::new();
    while !reader.is_empty() {
        if prefixes.len() == most {
            return Err(DecodeError::TooManyAddresses);
        }
        let [kind] = reader.array()?;
        let address = get_ip(kind, reader)?;
        let [length] = reader.array()?;
        let prefix = IpNet::new(address, length);
        prefixes.push(
            prefix
                .map_err(|_| DecodeError::PrefixLength(length))?
                .trunc(),
        );
    }
    Ok(prefixes)
}

pub(super) fn assigned(reader: &mut Reader<'_>) -> Result<Vec<IpAddr>, DecodeError> {
    let mut addresses = Vec::new();
    while !reader.is_empty() {
        if addresses.len() == MAX_ASSIGNED {
            return Err(DecodeError::TooManyAddresses);
        }
        let [kind] = reader.array()?;
        addresses.push(get_ip(kind, reader)?);
    }
    Ok(addresses)
}

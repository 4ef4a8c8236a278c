//! Names that are answered here, whatever a resolver would say: `localhost` and `invalid` (RFC 6761), `local` (RFC 6762), and
//! the reverse zones of addresses that mean something to neighbours alone (RFC 6303, RFC 7793).

use super::query::Query;
use super::{rcode, reply, rtype};

/// TTL of these answers, seconds (RFC 6303 §3).
const TTL: u32 = 10_800;

/// The answer, if the name is one of these; `local` and reverse zones, which a site may have of its own, only if `zones`.
pub(super) fn answer(query: &Query, zones: bool) -> Option<Vec<u8>> {
    let labels: Vec<Vec<u8>> = query.labels().map(<[u8]>::to_ascii_lowercase).collect();
    let mut up = labels.iter().rev().map(Vec::as_slice);
    match up.next()? {
        b"localhost" => Some(localhost(query)),
        // Neighbours are asked for `local` by multicast. There is no such zone, not even at its top: hosts that find one there
        // ask nobody else.
        name if name == b"invalid" || (zones && name == b"local") => Some(reply::none_in_zone(
            query,
            rcode::NXDOMAIN,
            offset(&labels, 1),
            TTL,
        )),
        b"arpa" if zones => {
            let depth = match up.next()? {
                b"in-addr" => ipv4(up)?,
                b"ip6" => ipv6(up)?,
                _ => return None,
            };
            Some(empty_zone(query, &labels, depth + 2))
        }
        _ => None,
    }
}

/// True if a name, its labels in lower case, is in the reverse zone of a private address.
pub(super) fn is_reverse_of_private(labels: &[Vec<u8>]) -> bool {
    let mut up = labels.iter().rev().map(Vec::as_slice).skip(1);
    match up.next() {
        Some(b"in-addr") => ipv4(up).is_some(),
        Some(b"ip6") => ipv6(up).is_some(),
        _ => false,
    }
}

fn localhost(query: &Query) -> Vec<u8> {
    match query.rtype() {
        rtype::A => reply::one_record(query, rtype::A, TTL, &[127, 0, 0, 1]),
        rtype::AAAA => {
            let address = std::net::Ipv6Addr::LOCALHOST.octets();
            reply::one_record(query, rtype::AAAA, TTL, &address)
        }
        _ => reply::bare(query, rcode::NOERROR, None),
    }
}

/// In the zone that `depth` labels from the root name.
fn empty_zone(query: &Query, labels: &[Vec<u8>], depth: usize) -> Vec<u8> {
    let apex = labels.len() == depth;
    if apex && matches!(query.rtype(), rtype::SOA | rtype::NS) {
        return reply::apex(query, TTL);
    }
    let code = if apex {
        rcode::NOERROR
    } else {
        rcode::NXDOMAIN
    };
    reply::none_in_zone(query, code, offset(labels, depth), TTL)
}

/// Byte of the name at which its last `depth` labels begin.
fn offset(labels: &[Vec<u8>], depth: usize) -> usize {
    let before = labels.len().saturating_sub(depth);
    labels
        .iter()
        .take(before)
        .map(|label| label.len() + 1)
        .sum()
}

/// Labels of the zone below `in-addr.arpa`, if the address is one of these; `up` goes on from there.
fn ipv4<'a>(up: impl Iterator<Item = &'a [u8]>) -> Option<usize> {
    let mut octets = [None; 4];
    for (place, label) in octets.iter_mut().zip(up) {
        let number = str::from_utf8(label).ok()?.parse::<u8>().ok()?;
        *place = Some(number);
    }
    match octets {
        [Some(0 | 10 | 127), ..] => Some(1),
        [Some(100), Some(64..=127), ..]
        | [Some(169), Some(254), ..]
        | [Some(172), Some(16..=31), ..]
        | [Some(192), Some(168), ..] => Some(2),
        [Some(192), Some(0), Some(2), _]
        | [Some(198), Some(51), Some(100), _]
        | [Some(203), Some(0), Some(113), _] => Some(3),
        [Some(255), Some(255), Some(255), Some(255)] => Some(4),
        _ => None,
    }
}

/// As [`ipv4`], below `ip6.arpa`.
fn ipv6<'a>(up: impl Iterator<Item = &'a [u8]>) -> Option<usize> {
    let mut nibbles = Vec::new();
    for label in up {
        let &[digit] = label else { return None };
        nibbles.push(char::from(digit).to_digit(16)?);
    }
    match nibbles.as_slice() {
        [0xf, 0xd, ..] => Some(2),
        [0xf, 0xe, 0x8..=0xb, ..] => Some(3),
        [2, 0, 0, 1, 0, 0xd, 0xb, 8, ..] => Some(8),
        // `::` and `::1`.
        all if all.len() == 32 && all.iter().take(31).all(|n| *n == 0) => {
            (all.last().is_some_and(|n| *n <= 1)).then_some(32)
        }
        _ => None,
    }
}

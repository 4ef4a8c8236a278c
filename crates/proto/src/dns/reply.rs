//! Writing answers: the header, EDNS with an extended error, truncation, and answers that no resolver was asked for.

use super::query::{Query, RD, Room};
use super::{CLASS_IN, HEADER, UDP_SIZE, rtype};

/// Length of an OPT record without options, bytes.
pub(super) const OPT_SIZE: usize = 11;

/// Flags of an answer: it is one, and recursion is available.
const QR: u16 = 0x8000;
const TC: u16 = 0x0200;
const RA: u16 = 0x0080;
const AD: u16 = 0x0020;
const CD: u16 = 0x0010;

/// A pointer to the question's name, plus so many bytes.
const POINTER: u16 = 0xc000 + HEADER as u16;

/// Reason why an answer is what it is (RFC 8914).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extended {
    /// Anything, explained by the text.
    Other(&'static str),
    /// Past its TTL.
    Stale,
    /// The resolver cannot be reached.
    Network(&'static str),
    /// The resolver did not answer.
    Silent,
    /// Withheld by the operator's policy.
    Blocked(&'static str),
}

impl Extended {
    pub(super) fn option(self) -> Vec<u8> {
        let (code, text): (u16, &str) = match self {
            Self::Other(text) => (0, text),
            Self::Stale => (3, ""),
            Self::Blocked(text) => (15, text),
            Self::Network(text) => (23, text),
            Self::Silent => (22, "the server's resolver does not answer"),
        };
        let mut option = Vec::with_capacity(6 + text.len());
        let length = u16::try_from(2 + text.len()).unwrap_or(2);
        for field in [15, length, code] {
            option.extend_from_slice(&field.to_be_bytes());
        }
        option.extend_from_slice(text.as_bytes());
        option
    }
}

/// Appends an OPT record; `code` is the whole response code, `options` are encoded.
pub(super) fn push_opt(out: &mut Vec<u8>, code: u16, dnssec_ok: bool, options: &[u8]) {
    let [high, _] = (code << 4).to_be_bytes();
    out.push(0);
    out.extend_from_slice(&rtype::OPT.to_be_bytes());
    out.extend_from_slice(&UDP_SIZE.to_be_bytes());
    out.extend_from_slice(&[high, 0, if dnssec_ok { 0x80 } else { 0 }, 0]);
    let length = u16::try_from(options.len()).unwrap_or(0);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(options);
}

fn flags(query: &Query, code: u16, authentic: bool) -> u16 {
    let set = |on: bool, bit: u16| if on { bit } else { 0 };
    let authentic = authentic && (query.authentic || query.dnssec_ok());
    QR | RA
        | set(query.recursion, RD)
        | set(authentic, AD)
        | set(query.unchecked, CD)
        | (code & 0xf)
}

/// Begins an answer: header and question, without EDNS and with `records` that are still to be appended.
pub(super) fn begin(query: &Query, code: u16, authentic: bool, records: [u16; 3]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER + query.question.len() + 64);
    let questions = u16::from(!query.question.is_empty());
    for field in [query.id, flags(query, code, authentic), questions] {
        out.extend_from_slice(&field.to_be_bytes());
    }
    for count in records {
        out.extend_from_slice(&count.to_be_bytes());
    }
    out.extend_from_slice(&query.question);
    out
}

/// Makes the message `out`, which has no OPT yet, the answer to `query`: identifier, flags, letters of the question, EDNS, and no
/// more bytes than there is room for.
pub(super) fn finish(
    out: &mut Vec<u8>,
    query: &Query,
    room: Room,
    code: u16,
    authentic: bool,
    options: &[u8],
) {
    let end = HEADER + query.question.len();
    let head = [query.id, flags(query, code, authentic)];
    put(out, 0, &head.map(u16::to_be_bytes).concat());
    put(out, HEADER, &query.question);
    let opt = query.edns.map_or(0, |_| OPT_SIZE + options.len());
    if out.len() + opt > query.limit(room) {
        out.truncate(end);
        put(out, 2, &(flags(query, code, authentic) | TC).to_be_bytes());
        put(out, 6, &[0; 6]);
    }
    if let Some(edns) = query.edns {
        let count = out.get(10..HEADER).and_then(<[u8]>::first_chunk);
        let count = count.map_or(0, |bytes| u16::from_be_bytes(*bytes));
        put(out, 10, &count.saturating_add(1).to_be_bytes());
        // An extended error explains, and is the first thing to go.
        let fits = out.len() + OPT_SIZE + options.len() <= query.limit(room);
        let options = if fits { options } else { &[] };
        push_opt(out, code, edns.dnssec_ok, options);
    }
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = out.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// An answer without records.
pub(super) fn bare(query: &Query, code: u16, extended: Option<Extended>) -> Vec<u8> {
    with_records(query, code, [0; 3], &[], extended)
}

fn with_records(
    query: &Query,
    code: u16,
    counts: [u16; 3],
    records: &[u8],
    extended: Option<Extended>,
) -> Vec<u8> {
    let mut out = begin(query, code, false, counts);
    out.extend_from_slice(records);
    let options = extended.map(Extended::option).unwrap_or_default();
    // Never longer than any room: a question, one record and a short text.
    finish(&mut out, query, Room::Udp, code, false, &options);
    out
}

/// One record of the name that was asked for.
pub(super) fn one_record(query: &Query, rtype: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    let record = record(POINTER, rtype, ttl, data);
    with_records(query, super::rcode::NOERROR, [1, 0, 0], &record, None)
}

/// "There is none", with the SOA of the zone whose name begins `offset` bytes into the name that was asked for.
pub(super) fn none_in_zone(query: &Query, code: u16, offset: usize, ttl: u32) -> Vec<u8> {
    let soa = soa(offset, ttl);
    with_records(query, code, [0, 1, 0], &soa, None)
}

/// The SOA, or the NS, of an empty zone that is served here.
pub(super) fn apex(query: &Query, ttl: u32) -> Vec<u8> {
    let record = match query.rtype() {
        rtype::SOA => soa(0, ttl),
        _ => record(POINTER, rtype::NS, ttl, &POINTER.to_be_bytes()),
    };
    with_records(query, super::rcode::NOERROR, [1, 0, 0], &record, None)
}

/// `zone SOA zone nobody.invalid. 1 3600 1200 604800 ttl` (RFC 6303 §3).
fn soa(offset: usize, ttl: u32) -> Vec<u8> {
    let zone = POINTER + u16::try_from(offset).unwrap_or(0);
    let mut data = zone.to_be_bytes().to_vec();
    data.extend_from_slice(b"\x06nobody\x07invalid\x00");
    for number in [1, 3600, 1200, 604_800, ttl] {
        data.extend_from_slice(&u32::to_be_bytes(number));
    }
    record(zone, rtype::SOA, ttl, &data)
}

fn record(owner: u16, rtype: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(12 + data.len());
    for field in [owner, rtype, CLASS_IN] {
        out.extend_from_slice(&field.to_be_bytes());
    }
    out.extend_from_slice(&ttl.to_be_bytes());
    let length = u16::try_from(data.len()).unwrap_or(0);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(data);
    out
}

/// The options of an answer past its TTL.
pub(super) fn stale_option() -> Vec<u8> {
    Extended::Stale.option()
}

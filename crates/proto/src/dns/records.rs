//! Records of an answer: what of them is kept, and where in the message it stands.

use std::time::Duration;

use domain::base::Message;
use domain::base::iana::Rtype;
use domain::base::name::ParsedName;
use domain::base::record::ParsedRecord;
use domain::rdata::ZoneRecordData;

use super::query::Query;
use super::{rcode, rtype};

/// Longest time for which it is believed that there is nothing (RFC 2308 §5: one to three hours).
const MAX_NEGATIVE: Duration = Duration::from_secs(3 * 3600);

/// Extended errors that are passed on, bytes.
const MAX_OPTIONS: usize = 256;

/// Option code of an extended error.
const EXTENDED_ERROR: u16 = 15;

/// Parameters of services that are addresses.
const IPV4_HINT: u16 = 4;
const IPV6_HINT: u16 = 6;

/// QTYPE that every record answers.
const ANY: u16 = 255;

/// Time for which a failure is believed (RFC 2308 §7: five minutes at most; RFC 9520 §3.2: at least one second).
pub(super) const FAILURE: Duration = Duration::from_secs(5);

/// Types in whose data names may be compressed (RFC 3597 §4), so that hosts follow pointers there.
const WITH_NAMES: [Rtype; 7] = [
    Rtype::NS,
    Rtype::CNAME,
    Rtype::SOA,
    Rtype::PTR,
    Rtype::MX,
    Rtype::SRV,
    Rtype::DNAME,
];

/// Place at which an address begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressPlace {
    V4(u16),
    V6(u16),
}

/// Findings of a reader of records.
#[derive(Default)]
pub(super) struct Records {
    pub(super) ttls: Vec<u16>,
    pub(super) addresses: Vec<AddressPlace>,
    /// Smallest TTL of the answer section.
    answers: Option<u32>,
    matching: bool,
    /// TTL of a negative answer.
    negative: Option<u32>,
    /// Place of OPT or of the end, and records of the additional section before it.
    pub(super) end: usize,
    pub(super) additional: u16,
    pub(super) extended_code: u16,
    pub(super) options: Vec<u8>,
}

impl Records {
    /// Reads all records of the answer to `query`; `None`: malformed.
    pub(super) fn read(message: &Message<[u8]>, query: &Query) -> Option<Self> {
        let mut found = Self::default();
        let mut section = message.answer().ok()?;
        found.end = section.pos();
        for number in 0.. {
            while let Some(record) = section.next() {
                let record = record.ok()?;
                if number == 2 && record.rtype().to_int() == rtype::OPT {
                    found.on_opt(message.as_slice(), section.pos(), &record);
                    return Some(found);
                }
                found.end = section.pos();
                found.on_record(message.as_slice(), number, &record, query.rtype())?;
            }
            match section.next_section().ok()? {
                Some(next) => section = next,
                None => break,
            }
        }
        Some(found)
    }

    fn on_record(
        &mut self,
        bytes: &[u8],
        section: u8,
        record: &ParsedRecord<'_, [u8]>,
        wanted: u16,
    ) -> Option<()> {
        if WITH_NAMES.contains(&record.rtype()) {
            record
                .to_record::<ZoneRecordData<_, ParsedName<_>>>()
                .ok()?;
        }
        let data = self.end.checked_sub(usize::from(record.rdlen()))?;
        self.ttls.push(u16::try_from(data.checked_sub(6)?).ok()?);
        // A TTL with its highest bit set is none (RFC 2181 §8).
        let ttl = record.ttl().as_secs();
        let ttl = if ttl > i32::MAX as u32 { 0 } else { ttl };
        let rtype = record.rtype().to_int();
        match section {
            0 => {
                self.answers = Some(self.answers.map_or(ttl, |least| least.min(ttl)));
                self.matching |= rtype == wanted || wanted == ANY;
                let place = u16::try_from(data).ok()?;
                match (rtype, record.rdlen()) {
                    (rtype::A, 4) => self.addresses.push(AddressPlace::V4(place)),
                    (rtype::AAAA, 16) => self.addresses.push(AddressPlace::V6(place)),
                    (rtype::SVCB | rtype::HTTPS, _) => drop(self.on_hints(bytes, data)),
                    _ => {}
                }
            }
            1 if rtype == rtype::SOA => {
                let minimum = bytes.get(data..self.end)?.last_chunk()?;
                self.negative = Some(ttl.min(u32::from_be_bytes(*minimum)));
            }
            1 => {}
            _ => self.additional += 1,
        }
        Some(())
    }

    /// Addresses that hosts may use before they have asked for any (RFC 9460 §7.3). What is malformed is for those who use it.
    fn on_hints(&mut self, bytes: &[u8], data: usize) -> Option<()> {
        // The priority, and the target's labels up to the empty one.
        let mut at = data + 2;
        loop {
            let length = usize::from(*bytes.get(at).filter(|_| at < self.end)?);
            at += 1 + length;
            if length == 0 {
                break;
            }
        }
        while at + 4 <= self.end {
            let [a, b, c, d] = *bytes.get(at..)?.first_chunk()?;
            let (start, length) = (at + 4, usize::from(u16::from_be_bytes([c, d])));
            at = start + length;
            if at > self.end {
                return None;
            }
            let (size, place): (_, fn(u16) -> AddressPlace) = match u16::from_be_bytes([a, b]) {
                IPV4_HINT => (4, AddressPlace::V4),
                IPV6_HINT => (16, AddressPlace::V6),
                _ => continue,
            };
            for hint in 0..length / size {
                let hint = u16::try_from(start + hint * size).ok()?;
                self.addresses.push(place(hint));
            }
        }
        Some(())
    }

    fn on_opt(&mut self, bytes: &[u8], end: usize, record: &ParsedRecord<'_, [u8]>) {
        let [high, ..] = record.ttl().as_secs().to_be_bytes();
        self.extended_code = u16::from(high) << 4;
        let start = end.saturating_sub(usize::from(record.rdlen()));
        let mut rest = bytes.get(start..end).unwrap_or_default();
        while let Some((head, tail)) = rest.split_first_chunk::<4>() {
            let [a, b, c, d] = *head;
            let length = usize::from(u16::from_be_bytes([c, d]));
            let Some((data, tail)) = tail.split_at_checked(length) else {
                break;
            };
            let whole = self.options.len() + 4 + length <= MAX_OPTIONS;
            if u16::from_be_bytes([a, b]) == EXTENDED_ERROR && whole {
                self.options.extend_from_slice(head);
                self.options.extend_from_slice(data);
            }
            rest = tail;
        }
    }

    pub(super) fn lifetime(&self, code: u16) -> Option<Duration> {
        let seconds = |ttl: u32| Duration::from_secs(ttl.into());
        match code {
            rcode::NOERROR if self.matching => self.answers.map(seconds),
            rcode::NOERROR | rcode::NXDOMAIN => {
                let negative = self.negative?.min(self.answers.unwrap_or(u32::MAX));
                Some(seconds(negative).min(MAX_NEGATIVE))
            }
            _ => Some(FAILURE),
        }
    }
}

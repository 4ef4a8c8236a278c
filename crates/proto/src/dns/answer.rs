//! An answer from a resolver: what of it is kept, for how long, and how it is given out again.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use domain::base::Message;
use thiserror::Error;

use super::query::{self, Query, Room};
use super::rebind::Scope;
use super::records::{AddressPlace, FAILURE, Records};
use super::{rcode, reply};

/// TTL of what is given out past its own (RFC 8767 §4), seconds.
pub(super) const STALE_TTL: u32 = 30;

/// The header's bit Z in its fourth byte: reserved between resolvers, ours within the tunnel.
const Z: u8 = 0x40;

/// Longest time for which hosts believe that there is no record where one is withheld.
const MAX_WITHHELD: Duration = Duration::from_secs(60);

const WITHHELD: reply::Extended =
    reply::Extended::Blocked("bentpipe: a private address for a public name; see [dns] rebind_ok");

/// Reason why a message is not an answer to the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AnswerError {
    /// The message cannot be read.
    #[error("malformed")]
    Malformed,
    /// The message is a query, or of another operation.
    #[error("not an answer")]
    NotAnAnswer,
    /// The message is about something else.
    #[error("answers another question")]
    OtherQuestion,
}

/// Addresses that a name was said to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Learned {
    /// The name that was asked for: lower case, dots between labels, none at the end.
    pub name: String,
    /// All of them, as far as this answer goes.
    pub addresses: Vec<IpAddr>,
    /// Time for which they may be used.
    pub ttl: Duration,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Header, question and records, without OPT and what followed it.
    bytes: Vec<u8>,
    /// Places of the TTLs.
    ttls: Vec<u16>,
    /// Places at which addresses in answers begin.
    addresses: Vec<AddressPlace>,
    /// The whole response code.
    code: u16,
    authentic: bool,
    /// Extended errors, encoded.
    options: Vec<u8>,
    /// For how long it may be used again.
    lifetime: Option<Duration>,
    /// The server lets its client reach the private addresses in it.
    reachable: bool,
}

impl Answer {
    /// Reads what is to be the answer to `query`.
    ///
    /// # Errors
    /// [`AnswerError`]: it is not.
    pub fn decode(bytes: &[u8], query: &Query) -> Result<Self, AnswerError> {
        let message = Message::from_slice(bytes).map_err(|_| AnswerError::Malformed)?;
        let header = message.header();
        if !header.qr() || header.opcode().to_int() != 0 {
            return Err(AnswerError::NotAnAnswer);
        }
        let question = query::question(message).ok_or(AnswerError::OtherQuestion)?;
        if !is_same(&question, &query.question) {
            return Err(AnswerError::OtherQuestion);
        }
        let records = Records::read(message, query).ok_or(AnswerError::Malformed)?;
        let mut kept = bytes
            .get(..records.end)
            .ok_or(AnswerError::Malformed)?
            .to_vec();
        if let Some(count) = kept.get_mut(10..12) {
            count.copy_from_slice(&records.additional.to_be_bytes());
        }
        let code = u16::from(header.rcode().to_int()) | records.extended_code;
        Ok(Self {
            bytes: kept,
            lifetime: records.lifetime(code).filter(|_| !header.tc()),
            ttls: records.ttls,
            addresses: records.addresses,
            code,
            authentic: header.ad(),
            options: records.options,
            reachable: header.z(),
        })
    }

    /// "The resolver failed", for as long as failures are believed.
    pub(super) fn failure(query: &Query) -> Self {
        Self {
            bytes: reply::begin(query, rcode::SERVFAIL, false, [0; 3]),
            ttls: Vec::new(),
            addresses: Vec::new(),
            code: rcode::SERVFAIL,
            authentic: false,
            options: Vec::new(),
            lifetime: Some(FAILURE),
            reachable: false,
        }
    }

    /// "There is no such record", for what is withheld from hosts because of an address in it; believed for as long as
    /// the true one would be, a minute at most.
    pub(super) fn withheld(&self, query: &Query) -> Self {
        Self {
            bytes: reply::begin(query, rcode::NOERROR, false, [0; 3]),
            code: rcode::NOERROR,
            options: WITHHELD.option(),
            lifetime: self.lifetime.map(|lifetime| lifetime.min(MAX_WITHHELD)),
            ..Self::failure(query)
        }
    }

    /// A server's answer to its client, with what the server knows of the addresses in it: the header's bit Z is set if
    /// there are none that mean something at a site alone, or `reaches` says of each such that the client may reach it.
    /// What cannot be read stays as it is, without the bit.
    #[must_use]
    pub fn judged(mut bytes: Vec<u8>, query: &Query, reaches: impl Fn(IpAddr) -> bool) -> Vec<u8> {
        let reachable = Self::decode(&bytes, query).is_ok_and(|answer| {
            let within = |address| match Scope::of(address) {
                Scope::Public => true,
                Scope::Private(_) | Scope::Host => reaches(address),
            };
            answer.addresses().all(within)
        });
        if let Some(flags) = bytes.get_mut(3) {
            *flags = (*flags & !Z) | if reachable { Z } else { 0 };
        }
        bytes
    }

    /// True if the server has said of all private addresses in it that its client may reach them.
    pub(super) fn reachable(&self) -> bool {
        self.reachable
    }

    /// The resolver could not say: what was known before is better.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        !matches!(self.code, rcode::NOERROR | rcode::NXDOMAIN)
    }

    /// For how long it may be used again, counted from its arrival.
    #[must_use]
    pub fn lifetime(&self) -> Option<Duration> {
        self.lifetime.filter(|lifetime| !lifetime.is_zero())
    }

    /// Memory, bytes.
    pub(super) fn memory(&self) -> usize {
        let places = 2 * self.ttls.len() + size_of::<AddressPlace>() * self.addresses.len();
        self.bytes.len() + self.options.len() + places
    }

    /// The answer to `query`, `age` after this one arrived.
    #[must_use]
    pub fn encode(&self, query: &Query, room: Room, age: Duration) -> Vec<u8> {
        let age = u32::try_from(age.as_secs()).unwrap_or(u32::MAX);
        self.written(query, room, |ttl| ttl.saturating_sub(age), &self.options)
    }

    /// The answer to `query`, past its time.
    #[must_use]
    pub fn encode_stale(&self, query: &Query, room: Room) -> Vec<u8> {
        self.written(query, room, |_| STALE_TTL, &reply::stale_option())
    }

    fn written(
        &self,
        query: &Query,
        room: Room,
        ttl: impl Fn(u32) -> u32,
        options: &[u8],
    ) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes.len() + reply::OPT_SIZE + options.len());
        out.extend_from_slice(&self.bytes);
        for &at in &self.ttls {
            let at = usize::from(at);
            if let Some(field) = out.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
                *field = ttl(u32::from_be_bytes(*field)).to_be_bytes();
            }
        }
        reply::finish(&mut out, query, room, self.code, self.authentic, options);
        out
    }

    /// The addresses in its answer section, hints of services among them.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let at = |at: u16| self.bytes.get(usize::from(at)..);
        self.addresses.iter().filter_map(move |place| {
            Some(match *place {
                AddressPlace::V4(v4) => Ipv4Addr::from(*at(v4)?.first_chunk()?).into(),
                AddressPlace::V6(v6) => Ipv6Addr::from(*at(v6)?.first_chunk()?).into(),
            })
        })
    }

    /// The addresses in it; `None` if there are none, or the name is none of a host.
    pub(super) fn learned(&self, query: &Query, ttl: Duration) -> Option<Learned> {
        let mut name = String::new();
        for label in query.labels() {
            let ordinary = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
            if !label.iter().all(ordinary) {
                return None;
            }
            if !name.is_empty() {
                name.push('.');
            }
            name.extend(label.iter().map(|b| char::from(b.to_ascii_lowercase())));
        }
        let addresses: Vec<_> = self.addresses().collect();
        (!addresses.is_empty()).then_some(Learned {
            name,
            addresses,
            ttl,
        })
    }
}

/// Name without regard to case, type and class.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let split = one.len().saturating_sub(4);
    one.len() == other.len()
        && one.eq_ignore_ascii_case(other)
        && one.get(split..) == other.get(split..)
}

//! A query as a LAN host or a terminal sends it, reduced to what an answer depends on.

use std::net::SocketAddr;
use std::sync::Arc;

use domain::base::Message;
use domain::base::iana::Opcode;
use domain::base::opt::{Opt, OptRecord};

use super::{CLASS_IN, HEADER, UDP_SIZE, rcode, reply, rtype};

/// Smallest UDP answer that every host takes, bytes (RFC 1035 §4.2.1).
const PLAIN_UDP_SIZE: u16 = 512;

/// Key of equal queries: name without regard to case, type, the bits that change an answer, and the router's name server, if that one
/// is asked: it may say of a name what nobody else says.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<[u8]>, Option<Arc<SocketAddr>>);

impl Key {
    /// Question to the name server `router`, if there is one.
    pub(super) fn at(self, router: Option<SocketAddr>) -> Self {
        Self(self.0, router.map(Arc::new))
    }

    /// True if the question is for a router's name server.
    pub(super) fn is_at_router(&self) -> bool {
        self.1.is_some()
    }

    /// Memory of the key, bytes.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// The sender understands EDNS (RFC 6891).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edns {
    /// Largest UDP answer it takes, bytes; at least 512.
    pub size: u16,
    /// The query wants DNSSEC records.
    pub dnssec_ok: bool,
}

/// Size that the answer may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// One datagram.
    Udp,
    /// Up to [`super::MAX_MESSAGE`].
    Stream,
}

/// One question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Identifier that the sender chose.
    pub id: u16,
    /// Recursion desired.
    pub recursion: bool,
    /// Authentic data wanted (RFC 6840 §5.7).
    pub authentic: bool,
    /// Checking disabled: the answer is wanted although DNSSEC says it is wrong.
    pub unchecked: bool,
    /// EDNS, if the sender speaks it.
    pub edns: Option<Edns>,
    /// Name, type and class as they came, uncompressed.
    pub(super) question: Vec<u8>,
}

/// A message that is not answered from DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not a query, or too short to answer: silence.
    Silence,
    /// The answer that refuses.
    Answer(Vec<u8>),
}

impl Query {
    /// Reads a message.
    ///
    /// # Errors
    /// [`Refusal`]: what to say to a message that is malformed or asks for what a cache does not do.
    pub fn decode(bytes: &[u8]) -> Result<Self, Refusal> {
        let message = Message::from_slice(bytes).map_err(|_| Refusal::Silence)?;
        let header = message.header();
        if header.qr() {
            return Err(Refusal::Silence);
        }
        let mut query = Self {
            id: header.id(),
            recursion: header.rd(),
            authentic: header.ad(),
            unchecked: header.cd(),
            edns: None,
            question: Vec::new(),
        };
        if header.opcode() != Opcode::QUERY {
            return Err(query.refuse(rcode::NOTIMP));
        }
        query.question = question(message).ok_or_else(|| query.refuse(rcode::FORMERR))?;
        let opt = opt(message).map_err(|()| query.refuse(rcode::FORMERR))?;
        query.edns = opt.as_ref().map(|opt| Edns {
            size: opt.udp_payload_size().max(PLAIN_UDP_SIZE),
            dnssec_ok: opt.dnssec_ok(),
        });
        if opt.is_some_and(|opt| opt.version() != 0) {
            return Err(query.refuse(rcode::BADVERS));
        }
        if query.class() != CLASS_IN || rtype::TRANSFERS.contains(&query.rtype()) {
            return Err(query.refuse(rcode::REFUSED));
        }
        Ok(query)
    }

    /// The question for addresses of `name`, as this machine itself asks it; `None` if it is no name of DNS.
    #[must_use]
    pub fn for_addresses(name: &str, ipv6: bool) -> Option<Self> {
        let mut question = Vec::with_capacity(name.len() + 6);
        for label in name.strip_suffix('.').unwrap_or(name).split('.') {
            let length = u8::try_from(label.len()).ok();
            question.push(length.filter(|length| (1..=63).contains(length))?);
            question.extend_from_slice(label.as_bytes());
        }
        question.push(0);
        let rtype = if ipv6 { rtype::AAAA } else { rtype::A };
        question.extend_from_slice(&rtype.to_be_bytes());
        question.extend_from_slice(&CLASS_IN.to_be_bytes());
        // 255 bytes of name, and four of type and class (RFC 1035 §2.3.4).
        (question.len() <= 259).then_some(Self {
            id: 0,
            recursion: true,
            authentic: false,
            unchecked: false,
            edns: Some(Edns {
                size: UDP_SIZE,
                dnssec_ok: false,
            }),
            question,
        })
    }

    fn refuse(&self, code: u16) -> Refusal {
        Refusal::Answer(reply::bare(self, code, None))
    }

    /// Key that this query shares with equal ones.
    #[must_use]
    pub fn key(&self) -> Key {
        let mut key = self.question.to_ascii_lowercase();
        // Types and classes are no letters.
        let split = key.len().saturating_sub(4);
        key.truncate(split);
        key.extend_from_slice(self.question.get(split..).unwrap_or_default());
        key.push(u8::from(self.dnssec_ok()) | u8::from(self.unchecked) << 1);
        Key(key.into(), None)
    }

    /// The answer where there is none: SERVFAIL, and that the resolver is silent.
    #[must_use]
    pub fn unanswered(&self) -> Vec<u8> {
        reply::bare(self, rcode::SERVFAIL, Some(reply::Extended::Silent))
    }

    /// A query that has this key, of nobody.
    pub(super) fn of(key: &Key) -> Self {
        let (bits, question) = key.0.split_last().unwrap_or((&0, &[]));
        Self {
            id: 0,
            recursion: true,
            authentic: true,
            unchecked: bits & 2 != 0,
            edns: Some(Edns {
                size: UDP_SIZE,
                dnssec_ok: bits & 1 != 0,
            }),
            question: question.to_vec(),
        }
    }

    /// The name, uncompressed, in the letters that were sent.
    pub(super) fn name(&self) -> &[u8] {
        let split = self.question.len().saturating_sub(4);
        self.question.get(..split).unwrap_or_default()
    }

    /// The labels of the name from the first on, without the root.
    pub(super) fn labels(&self) -> impl Iterator<Item = &[u8]> {
        labels(self.name())
    }

    pub(super) fn rtype(&self) -> u16 {
        self.number(4)
    }

    fn class(&self) -> u16 {
        self.number(2)
    }

    /// The 16 bits that begin so many bytes before the question's end.
    fn number(&self, from_end: usize) -> u16 {
        let start = self.question.len().saturating_sub(from_end);
        let bytes = self.question.get(start..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u16::from_be_bytes(*bytes))
    }

    pub(super) fn dnssec_ok(&self) -> bool {
        self.edns.is_some_and(|edns| edns.dnssec_ok)
    }

    /// Largest answer, bytes.
    pub(super) fn limit(&self, room: Room) -> usize {
        let udp = self.edns.map_or(PLAIN_UDP_SIZE, |edns| edns.size);
        match room {
            Room::Udp => usize::from(udp.min(UDP_SIZE)),
            Room::Stream => super::MAX_MESSAGE,
        }
    }

    /// The query as it crosses: without identifier and options, which mean something to neighbours alone.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let flags = RD | AD | if self.unchecked { CD } else { 0 };
        encode(0, flags, &self.question, Some(self.dnssec_ok()))
    }
}

/// Recursion desired, authentic data, checking disabled.
pub(super) const RD: u16 = 0x0100;
const AD: u16 = 0x0020;
const CD: u16 = 0x0010;

/// A query from its parts; `dnssec_ok` of EDNS, if that is to be used.
pub(super) fn encode(id: u16, flags: u16, question: &[u8], dnssec_ok: Option<bool>) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER + question.len() + reply::OPT_SIZE);
    let additional = u16::from(dnssec_ok.is_some());
    for field in [id, flags, 1, 0, 0, additional] {
        out.extend_from_slice(&field.to_be_bytes());
    }
    out.extend_from_slice(question);
    if let Some(dnssec_ok) = dnssec_ok {
        reply::push_opt(&mut out, 0, dnssec_ok, &[]);
    }
    out
}

/// The labels of an uncompressed name, without the root.
pub(super) fn labels(mut name: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (&length, rest) = name.split_first()?;
        let (label, rest) = rest.split_at_checked(usize::from(length))?;
        name = rest;
        (!label.is_empty()).then_some(label)
    })
}

/// The only question of a message, uncompressed: name, type, class.
pub(super) fn question(message: &Message<[u8]>) -> Option<Vec<u8>> {
    if message.header_counts().qdcount() != 1 {
        return None;
    }
    let mut section = message.question();
    let question = section.next()?.ok()?;
    // Nothing precedes it that a name could refer to.
    if question.qname().is_compressed() {
        return None;
    }
    message
        .as_slice()
        .get(HEADER..section.pos())
        .map(<[u8]>::to_vec)
}

/// The only OPT record of a message, if it has one.
fn opt(message: &Message<[u8]>) -> Result<Option<OptRecord<&[u8]>>, ()> {
    let mut records = message.additional().map_err(drop)?;
    let mut found = None;
    for record in &mut records {
        let record = record.map_err(drop)?;
        if record.rtype().to_int() == rtype::OPT {
            let opt = record.into_record::<Opt<_>>().map_err(drop)?;
            if found.replace(opt.ok_or(())?).is_some() {
                return Err(());
            }
        }
    }
    Ok(found.map(OptRecord::from))
}

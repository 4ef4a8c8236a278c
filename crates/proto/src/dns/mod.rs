//! DNS: the terminal answers from a cache, what it does not know crosses to the server's resolver.
//!
//! ```text
//!   LAN host ─► Forwarder ─ Cache ─► tunnel ─► server: Outgoing ─► its resolver
//!            ◄─         │  ◄─ Answer ◄─         ◄─ judge        ◄─
//!                       └─ Zones ──► a name server of the site
//! ```
//!
//! Messages are kept as they came: only identifier, flags, the letters' case of the question, TTLs and EDNS are changed, so record
//! types and DNSSEC records that are unknown here pass. Every byte comes from a stranger: nothing here indexes unchecked,
//! and every table is bounded. Which records are true is not decided here: there is no validation of DNSSEC.

mod answer;
mod cache;
mod companions;
mod forwarder;
mod outgoing;
mod query;
mod questions;
mod rebind;
mod records;
mod reply;
mod share;
mod special;
mod zones;

pub use answer::{Answer, AnswerError, Learned};
pub use cache::{Cache, Found};
pub use forwarder::{Config, Forwarder, Source, Stats};
pub use outgoing::{Outgoing, Verdict};
pub use query::{Edns, Key, Query, Refusal, Room};
pub use questions::Ticket;
pub use rebind::{Rebinding, Scope};
pub use zones::{Suffix, Zones};

/// Longest DNS message, bytes: lengths have 16 bits wherever messages are framed.
pub const MAX_MESSAGE: usize = 65_535;

/// Longest query that crosses, bytes: a question has at most 259.
pub const MAX_QUERY: usize = 512;

/// Largest UDP answer given and taken, bytes: what crosses every path unfragmented (DNS Flag Day 2020).
pub const UDP_SIZE: u16 = 1232;

/// Length of the header, bytes.
const HEADER: usize = 12;

/// Response codes (RFC 1035 §4.1.1, RFC 6891).
mod rcode {
    pub(super) const NOERROR: u16 = 0;
    pub(super) const FORMERR: u16 = 1;
    pub(super) const SERVFAIL: u16 = 2;
    pub(super) const NXDOMAIN: u16 = 3;
    pub(super) const NOTIMP: u16 = 4;
    pub(super) const REFUSED: u16 = 5;
    pub(super) const BADVERS: u16 = 16;
}

/// Record types that are treated differently from others.
mod rtype {
    pub(super) const A: u16 = 1;
    pub(super) const NS: u16 = 2;
    pub(super) const SOA: u16 = 6;
    pub(super) const AAAA: u16 = 28;
    pub(super) const OPT: u16 = 41;
    pub(super) const SVCB: u16 = 64;
    pub(super) const HTTPS: u16 = 65;
    /// IXFR, AXFR: transfers, which are many messages.
    pub(super) const TRANSFERS: [u16; 2] = [251, 252];
}

/// The internet class.
const CLASS_IN: u16 = 1;

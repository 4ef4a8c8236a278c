//! SLE: one TCP connection per flow, whose payload is sealed in records (`PROTOCOL.md` §18 is
//! normative).
//!
//! ```text
//!  client   Offers ── Keys ──► Conn ══ preface, records ══► Acceptor ── OPEN ──► Conn   server
//!                                                              │ record 0, then the window
//!                                                          Admissions, by id
//! ```
//!
//! Operators' splitters may cut and merge the bytes as they like. What they drop, alter, repeat or
//! cut off resets the flow.

/// Label of the TLS exporter from which the secrets of a tunnel's epochs come (RFC 8446 §7.5).
pub const EXPORTER: &[u8] = b"EXPORTER-bentpipe-sle";

mod accept;
mod association;
mod conn;
mod keys;
mod preface;
mod record;
#[cfg(test)]
mod tests;

/// Connections of an epoch that the server tells apart; older ones are refused.
const WINDOW: u64 = 65_536;

pub use accept::{Accepted, Acceptor, HELD, OPENING, Refusal};
pub use association::{Admissions, Associations, Offers};
pub use conn::{Action, Conn, Fault, MAX_HELD, Outcome, SILENCE, State};
pub use keys::{ANSWER, Keys};
pub use preface::{PREFACE, Preface, PrefaceError};
pub use record::{
    Kind, MAX_BODY, MAX_RECORD, MAX_RECORDS, Opener, Record, RecordError, Sealer, Spent,
};

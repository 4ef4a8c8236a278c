//! Associations of LES (`PROTOCOL.md` §20.1): how A and B agree on one, grant K2 to PEPs, renew it,
//! and end it.
//!
//! ```text
//!  A: Initiator ── Q1 Proposal ──► B: Responder        short: A seals at once
//!         ▲  ◄──── Q2 Answer ──────────╯               paper: A seals now, after Q3 Proof
//!         ├──── Q4 Grant ──► each PEP, on a connection of its own
//!         ╰── Live ══ packets ══► Live ──► Held: packets that were faster than Q1
//! ```
//!
//! In the lab, [`Psk`] stands for the tunnel: Q1 and Q2 are datagrams then.

mod fields;
mod granting;
mod held;
mod initiator;
mod live;
mod message;
mod psk;
mod responder;
#[cfg(test)]
mod tests;
mod word;

pub(super) use fields::put_address;
pub use fields::{MAX_PEPS, MAX_SELECTORS, MessageFault};
pub use granting::{Plan, REKEY};
pub use held::{HELD_PACKETS, HELD_TIME, Held};
pub use initiator::{Initiator, MAX_ASSOCIATIONS, RENEW_AT};
pub use live::{LAST_WORDS, LINGER, Live, Unopened, Unsent};
pub use message::{Answer, AnswerCode, Grant, Handshake, PepKey, Proof, Proposal, Random};
pub use psk::Psk;
pub use responder::{BEGUN_PER_MINUTE, Responder, Rules};
pub use word::{MAX_WORD, Word};

use bentpipe_proto::tunnel::{LesBody, LesKind};
use zeroize::Zeroizing;

use super::Spi;
use crate::Exporter;

/// Inputs of one association that come from outside.
#[derive(Debug)]
pub struct Material {
    /// Exporter of the tunnel's TLS session, for [`EXPORTER`](super::EXPORTER) and the
    /// association's count.
    pub exporter: Exporter,
    /// Random bytes, used once.
    pub random: Random,
    /// Random name for the own receiving direction; the short flow derives its own.
    pub spi: Spi,
}

/// Step that the holder of a state machine has to take, in order.
#[derive(Debug)]
pub enum Step {
    /// Send this message, a [`Proposal`], [`Answer`] or [`Proof`], on the tunnel's control stream.
    Send(LesKind, LesBody),
    /// Send Q4 to this PEP, on the connection to it.
    Grant(PepKey, Box<Grant>),
    /// Close the connection to this PEP with REVOKED.
    Withdraw(PepKey),
    /// Take in packets of this direction, also those that are [`Held`].
    Listen(Spi),
    /// The association with this count carries packets both ways. A renews the keys of the tunnel
    /// (RFC 9001 §6), so that recorded random bytes cannot be opened later.
    Established(u32),
    /// B has refused the association: what `status` says.
    Refused(AnswerCode),
}

/// Step that sends a message.
fn send(kind: LesKind, body: Zeroizing<Vec<u8>>) -> Step {
    Step::Send(kind, LesBody::new(body))
}

/// Fault of the peer: the tunnel is to be closed with PROTOCOL_VIOLATION.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The message is malformed.
    #[error(transparent)]
    Message(#[from] MessageFault),
    /// The flow is one of a tunnel where there is none, or the other way round.
    #[error(
        "Q1: a flow that does not belong here: the PSK flow has no tunnel, the others need one"
    )]
    Flow,
    /// The count is not above those before.
    #[error("Q1: association {0} again, or after a later one")]
    Count(u32),
    /// The message answers nothing that was asked.
    #[error("{0}: association {1} was not asked for, or is over")]
    Unasked(&'static str, u32),
    /// The proof does not fit: somebody has other keys.
    #[error("Q3: the proof of association {0} does not fit")]
    Proof(u32),
}

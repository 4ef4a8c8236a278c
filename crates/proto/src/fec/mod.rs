//! Losses repaired without a round trip: a code over what streams carried last (`PROTOCOL.md` §5.5).
//!
//! ```text
//!  written into streams ─► Outgoing ─ repairs ═══ DATAGRAM frames ═══► Incoming ─► bytes, ends of streams
//!                             ▲                                          ▲
//!                     how much: Policy                        received of streams
//! ```
//!
//! A packet that is lost while more is to be sent costs nothing but itself: QUIC sends its content again, among the rest.
//! One of those that left last costs a round trip in which the link idles. So when streams have run dry, what they carried
//! during the last round trips is taken for one block, cut into symbols, and Reed-Solomon symbols over all of it follow:
//! as many as will probably be lost, and some more. Whichever are missing at the receiver, as many symbols mend them.
//!
//! The code is over bytes of streams and not over packets, because quinn takes a packet that is 129 behind the newest for a
//! duplicate, while the last flight of a fast link has ten thousand; because QUIC goes on hearing of every loss, and with it
//! the congestion controller; and because repairs are sealed, paced and counted like everything else in the connection.

mod block;
mod history;
mod incoming;
mod meter;
mod outgoing;
mod policy;

pub use block::{MAX_BLOCK, MAX_RANGES, MAX_REPAIRS, Range, Repair};
pub use incoming::{Incoming, MendStats, Mended};
pub use meter::LossMeter;
pub use outgoing::{Outgoing, RepairStats};
pub use policy::{Fec, Loss, Path};

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "small numbers of a test"
)]
mod tests;

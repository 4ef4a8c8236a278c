//! What moves flows and packets between the two ends, over QUIC.
//!
//! ```text
//!   engine ─► Lane ─────────► Tunnel ─► LAN sides, devices      events in, flows and packets out
//!   engine ◄─ Lane::write ◄── Tunnel ◄─ LAN sides, devices      turns, control frames, repairs
//!                └─ Streams ──────┘                             the QUIC connection that both use
//! ```
//! [`Tunnel`] is what one peer and this side have with each other, [`Lane`] one QUIC connection of it, and [`Streams`] that
//! connection with the order of its streams. None holds a socket or a clock, so the same code runs in virtual time.

mod event;
mod key;
mod lane;
mod streams;
mod tunnel;

pub use event::{Carried, Fault, OpenError, Refusals, TunnelEvent, TunnelStats};
pub use key::{FlowKey, QueryKey};
pub(crate) use lane::{Batch, Written};
pub use lane::{FecStats, Lane};
pub use streams::Streams;
pub use tunnel::{Agreement, Incoming, LesAccord, MemoryPool, PacketStats, Tunnel};

/// Queries of one tunnel at one time (`PROTOCOL.md` §9).
pub const MAX_QUERIES: usize = 256;

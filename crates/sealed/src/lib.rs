//! Carriers of sealed payload beside the tunnel; none of them has a clock, a socket or randomness
//! of its own.
//!
//! ```text
//!  tunnel ── exporter, random bytes ──► epoch ── keys of one connection ──╮
//!                                                                         ▼
//!  LAN bytes ──────────────────────────────► sle: conn ── record ══ one TCP connection per flow ══ conn ──► LAN bytes
//!                                                 accept, window: before anything is dialled
//!
//! tunnel ── exporter, random bytes ──► les: keys ── K1 for the ends, K2 for the ends and the operator's PEPs ──╮
//!                                                                                                             ▼
//! IP packet ── segment ──► les: end ── packet ══ one UDP packet for each ══ PEP (K2) ══ end, replay ──► IP packet
//!
//! K1 connection ── exporter ──► dssl: K2 for one hub, which opens links by it; K1obj for objects, which the hub carries
//! ```

mod counted_key;
pub mod dssl;
mod epoch;
pub mod les;
#[cfg(test)]
mod page;
pub mod sle;
mod window;

pub use epoch::{Absent, Epoch, Epochs, Exporter, LINGER, OutOfOrder};
pub use window::{Stale, Window};

//! Carriers of sealed payload beside the tunnel; none of them has a clock, a socket or randomness
//! of its own.
//!
//! ```text
//!  tunnel ── exporter, random bytes ──► epoch ── keys of one connection ──╮
//!                                                                         ▼
//!  LAN bytes ──────────────────────────────► sle: conn ── record ══ one TCP connection per flow ══ conn ──► LAN bytes
//!                                                 accept, window: before anything is dialled
//! ```

mod epoch;
#[cfg(test)]
mod page;
pub mod sle;
mod window;

pub use epoch::{Absent, Epoch, Epochs, Exporter, LINGER, OutOfOrder};
pub use window::{Stale, Window};

//! The encrypted tunnel as a state machine: QUIC connections and what they carry, without sockets and without a clock.
//!
//! ```text
//!   datagrams ─► engine ─► quinn-proto ─► transport ─► flows, IP packets, DNS answers, published ports
//!   datagrams ◄─ pacer, gate ◄─ quinn-proto ◄─ transport ◄─ flows, IP packets, DNS queries
//! ```
//!
//! `now` and seeds are arguments, so that a client, a link model and a server run in virtual time in one thread. The shell
//! with a socket, a timer and the wakers of tasks is crate `pep`'s. What the bytes mean is written in PROTOCOL.md.

pub mod dial;
pub mod engine;
pub mod lines;
pub mod relay;
pub mod text;
pub mod transport;

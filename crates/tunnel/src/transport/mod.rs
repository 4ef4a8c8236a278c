//! What moves a flow between the two ends: the QUIC tunnel.
//!
//! IP packets travel beside flows, in DATAGRAM frames (`packets.rs`).
//! [`Tunnel`] binds the relay machines of `proto/relay` to the streams of one QUIC connection and
//! speaks the control stream. It is driven by `engine/connection.rs` and holds no socket and no
//! clock, so the same code runs in virtual time.

mod acks;
mod again;
mod control;
mod early;
mod enrol;
mod event;
mod flow;
mod headers;
mod lan;
mod memory;
mod meter;
mod openings;
mod packets;
mod pool;
mod publish;
mod queries;
mod repair;
mod tunnel;
mod writer;

pub use event::{Carried, Fault, OpenError, Refusals, TunnelEvent, TunnelStats};
pub use flow::{FlowKey, Incoming};
pub use packets::PacketStats;
pub use pool::MemoryPool;
pub use queries::{MAX_QUERIES, QueryKey};
pub use repair::FecStats;
pub use tunnel::Tunnel;
pub(crate) use writer::{Batch, Written};

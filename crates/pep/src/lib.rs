//! Client and server of the encrypted proxy.
//!
//! ```text
//!   LAN host ─TCP─► frontend ─► relay ─► transport ─► engine ─► UDP ══ satellite ══ UDP ─► engine
//!                   (tproxy, socks5, http)                                                  │
//!                                            origin ◄─TCP─ net/dial  ◄─ relay ◄─ transport ┘
//! ```
//!
//! `engine` and `transport` take `now` as an argument and run in virtual time as well;
//! everything that touches sockets, clocks or tasks is in `engine/shard.rs`, `relay`, `client` and
//! `server`.

pub mod client;
pub mod config;
mod congestion_control;
#[cfg(target_os = "linux")]
mod device;
pub mod engine;
#[cfg(target_os = "linux")]
mod kernel;
pub mod net;
mod paths;
mod process;
mod qlog;
pub mod relay;
mod sampler;
mod sandbox;
pub mod server;
mod state;
pub mod status;
mod text;
pub mod transport;

#[cfg(target_os = "linux")]
pub use client::guard;
pub use process::{Diagnosis, RunError, end_on_panic};

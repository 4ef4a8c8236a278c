//! Daemons of bentpipe: client, server, an operator's PEP and the origin of DSSL, with their configuration, status and checks.
//!
//! ```text
//!   LAN host ─TCP─► client/frontend ─► relay ─► shard ─► tunnel ─► UDP ══ satellite ══ UDP ─► shard ─► tunnel
//!                   (tproxy, socks5, http)                                                             │
//!                                        origin ◄─TCP─ net/dial ◄─ server ◄─ relay ◄───────────────────┘
//! ```
//!
//! The tunnel itself is crate `tunnel`'s, which owns no socket and no clock. Here are the sockets, clocks and tasks around
//! it: a shard gives a tunnel's engine its UDP socket and timer, a relay joins one TCP connection and one flow.

mod asked;
pub mod authority;
mod bucket;
mod certified;
pub mod client;
mod complaint;
pub mod config;
mod congestion_control;
#[cfg(target_os = "linux")]
mod device;
#[cfg(target_os = "linux")]
pub mod doctor;
pub mod events;
mod filler;
#[cfg(target_os = "linux")]
mod firewall;
#[cfg(target_os = "linux")]
mod kernel;
pub mod keys;
mod les;
mod les_keys;
mod metrics;
mod net;
pub mod origin;
mod page;
mod paths;
mod process;
mod qlog;
mod reading;
mod relay;
mod reload;
mod sampler;
mod sandbox;
#[cfg(target_os = "linux")]
pub mod segments;
pub mod server;
mod service_manager;
mod shard;
mod sle_traffic;
mod state;
pub mod status;
mod stop;
mod throttle;
mod tls;
mod trust;
mod web;
mod wishes;

pub use certified::check_certificate;
#[cfg(target_os = "linux")]
pub use client::guard;
pub use process::{Diagnosis, RunError, clock, end_on_panic};

//! What hosts send through real daemons and the emulated satellite: connections, packets and names; what is taken in, and what
//! outlives outages and restarts.
//!
//! Each site is built in namespaces of its own, so that tests run beside each other. Slow ones take [`alone`], so that
//! `cargo test -- --ignored` runs one after another. Needs root, except for the relays on loopback.
#![expect(
    clippy::disallowed_methods,
    reason = "these tests watch real processes by the machine's clock"
)]

mod associate;
mod dns;
mod endurance;
mod fidelity;
mod gates;
mod interception;
mod lacking;
mod metering;
mod packets;
mod pages;
mod plain_http;
mod policy;
mod proxies;
mod publish;
mod refused_changes;
mod responder;
mod routes;
mod segments;
mod session_life;
mod splitting;
mod talk;
mod way_back;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Program under test, which cargo builds before this binary.
pub(crate) const BENTPIPE: &str = env!("CARGO_BIN_EXE_bentpipe");

/// Lock of the slow tests, which compare speeds or count every loss: each wants the machine for itself.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    // A test that failed has nothing more to do with the machine.
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

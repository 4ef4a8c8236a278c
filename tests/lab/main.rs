//! `bentpipe demo`, `bentpipe emulate` and `bentpipe lab` as their users run them, and that nothing of them stays; what a run of
//! the lab measures, and what is shown of it.
//!
//! Most of it needs root. Each command makes namespaces under a name of its own. What the whole machine has once, as CUBIC's
//! HyStart, the lab itself locks between processes, so that tests run beside each other.
#![expect(
    clippy::disallowed_methods,
    reason = "these tests watch real processes by the machine's clock"
)]

mod contenders;
mod demo;
mod emulate;
mod experiments;
mod measure;
mod pages;
mod report;
mod traffic;
mod unprivileged;
mod uplink;

/// Program under test, which cargo builds before this binary.
pub(crate) const BENTPIPE: &str = env!("CARGO_BIN_EXE_bentpipe");

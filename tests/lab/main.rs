//! `bentpipe demo`, `bentpipe emulate` and `bentpipe lab` as their users run them, and that nothing of them stays.
//!
//! Most of it needs root. Each command makes namespaces under a name of its own. What the whole machine has once, as CUBIC's
//! HyStart, the lab itself locks between processes, so that tests run beside each other.
#![expect(
    clippy::disallowed_methods,
    reason = "these tests watch real processes by the machine's clock"
)]

#[path = "../common/mod.rs"]
mod common;
mod contenders;
mod demo;
mod emulate;
mod experiments;
mod unprivileged;

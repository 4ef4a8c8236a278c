//! What an operator meets who starts daemons: faults in files, keys, signals, and clients that are shared among threads.
//!
//! What needs a network namespace is skipped without root; all else runs as anybody.
#![expect(
    clippy::disallowed_methods,
    reason = "these tests watch real processes by the machine's clock"
)]

mod authority;
mod config_errors;
mod doctor;
mod doctor_origin;
mod doctor_pep;
mod full_disk;
mod joining;
mod log;
mod measure;
mod metrics;
mod monitoring;
mod page;
mod program;
mod service_manager;
mod shards;
mod shares;
mod untouched;

/// Program under test, which cargo builds before this binary.
pub(crate) const BENTPIPE: &str = env!("CARGO_BIN_EXE_bentpipe");

//! Rules that the compiler does not hold: who may depend on whom, that the documents say what the program does, and that
//! their links lead somewhere.
//!
//! They need no root.

mod arrows;
mod binaries;
mod circles;
mod docs;
mod seeds;
mod shape;
mod site;
mod sources;
mod tour;
mod voice;

/// Program under test, which cargo builds before this binary.
pub(crate) const BENTPIPE: &str = env!("CARGO_BIN_EXE_bentpipe");

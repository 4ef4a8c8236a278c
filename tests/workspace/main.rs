//! Rules that the compiler does not hold: who may depend on whom, and that the documents say what the program does.
//!
//! They need no root.

mod arrows;
mod docs;

/// Program under test, which cargo builds before this binary.
pub(crate) const BENTPIPE: &str = env!("CARGO_BIN_EXE_bentpipe");

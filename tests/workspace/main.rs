//! Rules that the compiler does not hold: who may depend on whom, and that the documents say what the program does.
//!
//! They need no root.
#![expect(
    clippy::disallowed_methods,
    reason = "these tests watch real processes by the machine's clock"
)]

mod arrows;
#[path = "../common/mod.rs"]
mod common;
mod docs;

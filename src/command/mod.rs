//! One file per command: from the command line to the library that does the work, and back to an exit code.

pub(crate) mod authority;
pub(crate) mod check;
pub(crate) mod daemon;
#[cfg(feature = "lab")]
pub(crate) mod demo;
#[cfg(target_os = "linux")]
pub(crate) mod doctor;
#[cfg(feature = "lab")]
pub(crate) mod emulate;
pub(crate) mod generate;
#[cfg(target_os = "linux")]
pub(crate) mod guard;
pub(crate) mod keys;
#[cfg(feature = "lab")]
pub(crate) mod lab;
pub(crate) mod measure;
pub(crate) mod operator;
pub(crate) mod status;

use std::io::{self, Write};

use anyhow::Context;

use crate::exit::Failure;

/// Writes `text` and a newline to standard output. A reader that has gone, as `head` does, has read what it wanted.
fn print(text: &str) -> Result<(), Failure> {
    deliver(text).map(drop)
}

/// Writes `text` as [`print()`] does; false if the reader has gone, so that whoever would write more for it ends.
fn deliver(text: &str) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => {
            written.context("cannot write to standard output")?;
            Ok(true)
        }
    }
}

/// A remark to whoever sits there; without a standard error there is nobody.
fn hint(text: &str) {
    let _ = writeln!(io::stderr(), "bentpipe: {text}");
}

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

use anyhow::{Context, anyhow};
use rustix::fs::OFlags;

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

/// Refuses to print `what` cannot be had again where standard output was closed. The runtime of Rust opens the null device in its
/// place, for reading too, and a shell that is to throw output away for writing alone.
fn refuse_lost_output(what: &str) -> Result<(), Failure> {
    let closed = || {
        let output = rustix::fs::fstat(io::stdout())?;
        let null = rustix::fs::stat("/dev/null")?;
        let flags = rustix::fs::fcntl_getfl(io::stdout())? & OFlags::ACCMODE;
        let is_null = output.st_rdev == null.st_rdev && output.st_mode == null.st_mode;
        Ok::<_, rustix::io::Errno>(is_null && flags == OFlags::RDWR)
    };
    match closed() {
        Ok(true) => Err(Failure::Run(anyhow!(
            "standard output is closed or the null device, so {what} would be lost; nothing was made"
        ))),
        _ => Ok(()),
    }
}

/// A remark to whoever sits there; without a standard error there is nobody.
fn hint(text: &str) {
    let _ = writeln!(io::stderr(), "bentpipe: {text}");
}

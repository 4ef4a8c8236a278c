//! The kernel's CUBIC without HyStart: a parameter of the whole machine, not of a namespace.
//!
//! It is put back when the run ends. What it was is kept in a directory of the experiment's name meanwhile, so that whoever
//! removes what a killed experiment left puts it back too. Nobody else should measure TCP on the machine until then.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

const PARAMETER: &str = "/sys/module/tcp_cubic/parameters/hystart";
/// What the directory's name ends with.
const SUFFIX: &str = "-hystart";
const FILE: &str = "value";

/// Whether it can be turned off here.
pub(super) fn check() -> Result<(), String> {
    let open = fs::OpenOptions::new().write(true).open(PARAMETER);
    open.map(drop)
        .map_err(|error| format!("HyStart cannot be turned off: {PARAMETER}: {error}"))
}

/// HyStart is off until this is dropped.
#[derive(Debug)]
pub(crate) struct Off(PathBuf);

/// Turns it off for an experiment with this prefix.
pub(super) fn off(prefix: &str) -> Result<Off> {
    let before = fs::read_to_string(PARAMETER).with_context(|| PARAMETER.to_owned())?;
    let memory = std::env::temp_dir().join(format!("{prefix}{SUFFIX}"));
    fs::create_dir_all(&memory)
        .and_then(|()| fs::write(memory.join(FILE), before))
        .with_context(|| format!("cannot write {}", memory.display()))?;
    let off = Off(memory);
    fs::write(PARAMETER, "0").with_context(|| PARAMETER.to_owned())?;
    Ok(off)
}

impl Drop for Off {
    fn drop(&mut self) {
        // If it cannot be put back now, the directory stays, and the next experiment tries again.
        if restore(&self.0).is_ok() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// Puts back what `directory` remembers, if it is one of ours.
pub(crate) fn restore(directory: &Path) -> Result<()> {
    let ours = directory
        .file_name()
        .is_some_and(|name| name.to_string_lossy().ends_with(SUFFIX));
    if !ours {
        return Ok(());
    }
    match fs::read_to_string(directory.join(FILE)) {
        // Nothing but what the kernel may have said.
        Ok(before) if before.trim().parse::<u8>().is_ok() => {
            fs::write(PARAMETER, before.trim()).with_context(|| PARAMETER.to_owned())
        }
        // It ended before it had changed anything.
        _ => Ok(()),
    }
}

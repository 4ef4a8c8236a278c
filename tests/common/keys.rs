//! Keys, made as an operator makes them.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

pub(crate) const BENTPIPE: &str = env!("CARGO_BIN_EXE_bentpipe");

/// Writes a fresh private key to `file`, for its owner only; returns the public key.
pub(crate) fn generate(file: &Path) -> Result<String> {
    let output = fs::File::create(file).with_context(|| format!("{}", file.display()))?;
    let status = Command::new(BENTPIPE)
        .arg("genkey")
        .stdout(output)
        .status()
        .context("cannot run bentpipe")?;
    ensure!(status.success(), "bentpipe genkey: {status}");
    let output = Command::new(BENTPIPE)
        .arg("pubkey")
        .stdin(fs::File::open(file)?)
        .output()?;
    ensure!(output.status.success(), "bentpipe pubkey: {output:?}");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

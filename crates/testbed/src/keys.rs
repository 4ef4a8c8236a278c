//! Keys, made as an operator makes them.

use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Writes a fresh private key to `file`, for its owner only, and returns the public key; `program` is bentpipe.
pub fn generate(program: &str, file: &Path) -> Result<String> {
    let closed = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(file)
        .with_context(|| format!("{}", file.display()))?;
    let status = Command::new(program)
        .arg("genkey")
        .stdout(closed)
        .status()
        .context("cannot run bentpipe")?;
    ensure!(status.success(), "bentpipe genkey: {status}");
    let output = Command::new(program)
        .arg("pubkey")
        .stdin(fs::File::open(file)?)
        .output()?;
    ensure!(output.status.success(), "bentpipe pubkey: {output:?}");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

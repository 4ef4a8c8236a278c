//! `nft` that fails for as long as a test wants it to, as on a machine without memory.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use bentpipe_sys::command::{run_command, tool};

/// An `nft` in a directory of its own, which can be made to fail.
pub struct BreakableNft {
    directory: PathBuf,
    broken: PathBuf,
}

impl BreakableNft {
    /// Makes it in `directory`; it works.
    pub fn new(directory: &Path) -> Result<Self> {
        let broken = directory.join("broken");
        let real = run_command(tool("which").arg("nft"))?;
        let script = format!(
            "#!/bin/sh\n[ ! -e {} ] || {{ echo \"no memory: $(tail -n 1)\" >&2; exit 1; }}\nexec {} \"$@\"\n",
            broken.display(),
            real.trim()
        );
        let nft = directory.join("nft");
        fs::write(&nft, script)?;
        fs::set_permissions(&nft, Permissions::from_mode(0o755))?;
        Ok(Self {
            directory: directory.to_owned(),
            broken,
        })
    }

    /// Has `program` find it before the system's.
    pub fn put_first(&self, program: &mut Command) -> Result<()> {
        let path = std::env::var("PATH").context("no search path")?;
        program.env("PATH", format!("{}:{path}", self.directory.display()));
        Ok(())
    }

    /// Makes it fail from now on, and say the last line of what it was told.
    pub fn fail(&self) -> Result<()> {
        Ok(fs::write(&self.broken, "")?)
    }

    /// Makes it work again.
    pub fn work(&self) -> Result<()> {
        Ok(fs::remove_file(&self.broken)?)
    }
}

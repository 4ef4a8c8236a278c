//! A tool of the system that fails for as long as a test wants it to.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use bentpipe_sys::command::run_with_input;

/// Tool that stands before the system's own, and does what that does unless it is to fail.
pub struct FailingTool {
    directory: PathBuf,
}

impl FailingTool {
    /// Puts the tool `name` into a directory of its own below `place`, which the daemon's sandbox must let it read: its state directory.
    pub fn new(place: &Path, name: &str) -> Result<Self> {
        let directory = place.join("tools");
        fs::create_dir_all(&directory)?;
        let fails = directory.join("fails");
        let script = format!(
            "#!/bin/sh\nif [ -e '{}' ]; then echo \"Cannot allocate memory: $(tail -n 1)\" >&2; exit 1; fi\n\
             PATH=${{PATH#*:}}\nexport PATH\nexec {name} \"$@\"\n",
            fails.display()
        );
        // By a process of its own: a thread of ours that forks meanwhile would keep it open for writing, and it could not be run.
        let mut write = Command::new("sh");
        write
            .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
            .arg(directory.join(name));
        run_with_input(&mut write, &script)?;
        Ok(Self { directory })
    }

    /// Has `command` find the tool before the system's own.
    pub fn put_first(&self, command: &mut Command) -> Result<()> {
        let path = std::env::var("PATH").context("a search path")?;
        command.env("PATH", format!("{}:{path}", self.directory.display()));
        Ok(())
    }

    /// Has the tool fail from now on, in words of its own: with the last line of what it was told.
    pub fn fail(&self) -> Result<()> {
        Ok(fs::write(self.directory.join("fails"), "")?)
    }

    /// Has the tool work again.
    pub fn work(&self) -> Result<()> {
        Ok(fs::remove_file(self.directory.join("fails"))?)
    }
}

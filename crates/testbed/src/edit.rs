//! Changes to a site's configuration, made as an operator makes them: in the files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::site::Site;

impl Site {
    /// Path of the server's configuration.
    pub fn server_file(&self) -> PathBuf {
        self.topology.directory().join("server.toml")
    }

    /// Path of the client's configuration.
    pub fn client_file(&self) -> PathBuf {
        self.client_home().join("client.toml")
    }
}

/// Replaces `old`, which is in `file` once, with `new`.
pub fn edit(file: &Path, old: &str, new: &str) -> Result<()> {
    let name = file.display();
    let text = fs::read_to_string(file).with_context(|| format!("{name}"))?;
    let count = text.matches(old).count();
    ensure!(count == 1, "`{old}` is {count} times in {name}");
    fs::write(file, text.replace(old, new)).with_context(|| format!("{name}"))
}

//! A client at the second terminal, of a site whose scenario has one.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::process::Command;

use anyhow::{Context as _, Result};
use bentpipe_emulator::topology::Process;
use bentpipe_sys::netns::NetNs;
use tempfile::TempDir;

use super::keys;
use super::site::{Site, with_config};

/// Client at the second terminal, configured as the first.
pub struct Second {
    process: Option<Process>,
    home: TempDir,
}

impl Second {
    /// Makes it, and names it in the configuration of the server, which is to be started after that.
    pub fn introduce(site: &Site) -> Result<Self> {
        let home = tempfile::Builder::new().prefix("bp-client-").tempdir()?;
        let key = keys::generate(site.program(), &home.path().join("client.key"))?;
        fs::copy(site.client_file(), home.path().join("client.toml"))?;
        let mut server = OpenOptions::new().append(true).open(site.server_file())?;
        write!(
            server,
            "[[client]]\nname = \"terminal-2\"\npublic_key = \"{key}\"\n\
             allow = [\"10.30.0.0/24\", \"fd00:30::/64\"]\n"
        )?;
        Ok(Self {
            process: None,
            home,
        })
    }

    /// Starts it and waits until its tunnel is up.
    pub fn start(&mut self, site: &Site) -> Result<()> {
        let (_, terminal) = places(site)?;
        let mut command = Command::new(site.program());
        with_config(&mut command, self.home.path());
        self.process = Some(site.start_client_in(terminal, command)?);
        Ok(())
    }

    /// Text that it has logged, to be shown with a failure.
    pub fn log(&self) -> String {
        let text = self.process.as_ref().map(Process::stderr_text);
        format!(
            "--- log of the second client:\n{}",
            text.unwrap_or_default()
        )
    }
}

/// The second user and the second terminal.
pub fn places(site: &Site) -> Result<(&NetNs, &NetNs)> {
    site.topology.sites().nth(1).context("a second terminal")
}

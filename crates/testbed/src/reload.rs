//! SIGHUP, and waiting until it has taken effect.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bentpipe_emulator::topology::Process;
use rustix::process::Signal;

use super::site::Site;

/// Time that a daemon may take to read its file again.
const PATIENCE: Duration = Duration::from_secs(20);

/// Has the server read its file again, which it then says with one more line that contains `says`.
pub fn reload(site: &Site, says: &str) -> Result<()> {
    has_read(site.server(), says)
}

/// Has the client read its file again, which it then says with one more line that contains `says`.
pub fn reload_client(site: &Site, says: &str) -> Result<()> {
    has_read(site.client(), says)
}

fn has_read(daemon: &Process, says: &str) -> Result<()> {
    let lines = || daemon.stderr_text().matches(says).count();
    let before = lines();
    daemon.signal(Signal::HUP)?;
    let deadline = Instant::now() + PATIENCE;
    while lines() == before {
        ensure!(
            Instant::now() < deadline,
            "the daemon does not say `{says}`"
        );
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

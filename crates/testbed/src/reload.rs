//! SIGHUP, and waiting until it has taken effect.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::process::Signal;

use super::site::Site;

/// Time that a server may take to read its file again.
const PATIENCE: Duration = Duration::from_secs(20);

/// Has the server read its file again, which it then says with one more line that contains `says`.
pub fn reload(site: &Site, says: &str) -> Result<()> {
    let lines = || site.server().stderr_text().matches(says).count();
    let before = lines();
    site.server().signal(Signal::HUP)?;
    let deadline = Instant::now() + PATIENCE;
    while lines() == before {
        ensure!(
            Instant::now() < deadline,
            "the server does not say `{says}`"
        );
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

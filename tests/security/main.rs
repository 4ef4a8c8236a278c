//! Who gets in, what they may reach, and what anybody else gets to see; and that a daemon which dies or is taken apart lets
//! nothing out.
//!
//! The real daemons between namespaces, with the terminal's side of the link captured. Needs root.
#![expect(
    clippy::disallowed_methods,
    reason = "these tests watch real processes by the machine's clock"
)]

mod admission;
mod failclosed;
mod leaks;
mod limits;
mod neighbours;
mod outer_tls;
mod policy;
mod privacy;
mod sandbox;
mod sealed;
mod strangers;

use std::time::Duration;

use anyhow::Result;
use bentpipe_testbed::privileged;
use bentpipe_testbed::site::{Site, SiteConfig};

/// Program under test, which cargo builds before this binary.
pub(crate) const BENTPIPE: &str = env!("CARGO_BIN_EXE_bentpipe");

/// Of the emulated satellite, without queueing.
const RTT: Duration = Duration::from_millis(500);

/// What a busy machine is given on top.
const SLACK: Duration = Duration::from_millis(1500);

/// What needs no round trip, on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// Runs `case` on a site where nothing runs yet, and shows the daemons' logs if it fails.
fn on_site(name: &str, config: SiteConfig, case: impl FnOnce(&mut Site) -> Result<()>) {
    if !privileged(name) {
        return;
    }
    let mut site = Site::plain(config).expect("a site");
    let result = case(&mut site);
    assert!(result.is_ok(), "{:#}\n{}", result.unwrap_err(), site.logs());
}

/// Lines of a daemon's log, other than about the limits of this machine.
fn lines(log: &str) -> Vec<&str> {
    log.lines()
        .filter(|line| !line.contains("open files"))
        .collect()
}

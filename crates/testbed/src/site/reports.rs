//! Reports of the site's daemons, as `bentpipe status` gives them.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::Value;

use super::Site;
use crate::status::report;

/// Time in which a server tells newer figures, on a busy machine.
const FIGURES_RENEWED: Duration = Duration::from_secs(20);

impl Site {
    /// Report of the client. Totals, flows and states in it are of the moment of this call; rates and round-trip times are up
    /// to a second old.
    pub fn client_report(&self) -> Result<Value> {
        let socket = self.client_home().join("client.sock");
        report(self.config.program, &socket)
    }

    /// Report of the server. Figures about its clients are up to a second old: see [`Self::newer_server_report`].
    pub fn server_report(&self) -> Result<Value> {
        let socket = self.topology.directory().join("server.sock");
        report(self.config.server_program, &socket)
    }

    /// Report of the server whose figures about the first of its clients were all taken after this call, which lasts between
    /// one and three seconds. A server that lists no client with a tunnel is an error: a tunnel's age is what shows that figures
    /// are newer.
    pub fn newer_server_report(&self) -> Result<Value> {
        let age = |report: &Value| report["clients"][0]["tunnel"]["since_s"].as_u64();
        let deadline = Instant::now() + FIGURES_RENEWED;
        let mut known = age(&self.server_report()?);
        // Once a second a server takes figures, and then publishes them. What it publishes next may have been taken before this
        // call, but what follows that was not.
        let mut renewals = 0;
        loop {
            thread::sleep(Duration::from_millis(50));
            let report = self.server_report()?;
            let seen = age(&report);
            if seen != known {
                known = seen;
                renewals += 1;
            }
            if renewals >= 2 && seen.is_some() {
                return Ok(report);
            }
            let late = Instant::now() >= deadline;
            ensure!(
                !late || seen.is_some(),
                "the server lists no client with a tunnel: {report:#}"
            );
            ensure!(!late, "the server tells no newer figures than {report:#}");
        }
    }
}

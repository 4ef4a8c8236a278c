//! What was learned of the path outlives both daemons.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use bentpipe_testbed::site::{Site, SiteConfig};
use bentpipe_testbed::transfer::{Transfer, Way};

use super::{RTT, SOON, on_site, route};
use crate::BENTPIPE;

/// Enough for ten round trips at the link's rate.
const BYTES: usize = 8_000_000;

/// Where client and server remember their paths.
fn files(site: &Site) -> [PathBuf; 2] {
    let client = site.client_home().join("state/client-paths.json");
    let server = site.topology.directory();
    [client, server.join("state/server-paths.json")]
}

/// The one path in `file`, in Mbit/s and milliseconds.
fn path(file: &Path) -> Result<(f64, f64)> {
    let mode = fs::metadata(file)
        .with_context(|| file.display().to_string())?
        .permissions()
        .mode();
    ensure!(mode & 0o777 == 0o600, "mode {mode:o}");
    let text = fs::read_to_string(file)?;
    let value: serde_json::Value = serde_json::from_str(&text)?;
    let paths = value["paths"].as_array().context("a list")?;
    ensure!(paths.len() == 1, "{text}");
    let figure = |key: &str| paths[0][key].as_f64().context("a figure");
    Ok((figure("rate_bit_s")? / 1e6, figure("rtt_us")? / 1e3))
}

#[test]
fn restarted_daemons_know_their_path() {
    let config = SiteConfig {
        client_tables: "controller = \"satellite\"\n[intercept]\ninterfaces = [\"lan0\"]\n".into(),
        ..SiteConfig::new(BENTPIPE)
    };
    on_site("known path", config, |site| {
        for way in [Way::Download, Way::Upload] {
            Transfer::start(&route(site, RTT), way, BYTES)?.finish_whole()?;
        }
        site.stop_client()?;
        site.stop_server()?;
        for file in files(site) {
            let (rate, rtt) = path(&file)?;
            println!("{}: {rate} Mbit/s, {rtt} ms", file.display());
            ensure!((7.0..10.5).contains(&rate), "{rate} Mbit/s");
            ensure!((500.0..600.0).contains(&rtt), "{rtt} ms");
        }
        site.start_server()?;
        site.start_client()?;
        site.client().wait_for_line("resumed at ", SOON)?;
        Transfer::start(&route(site, RTT), Way::Download, BYTES)?.finish_whole()?;
        // The server's log came before it knew what the client wishes it to send with.
        let status = site.server_report()?;
        let resumed = &status["clients"][0]["tunnel"]["resumed_rate_bit_s"];
        ensure!(resumed.as_u64() > Some(7_000_000), "{status:#}");
        // A file that is not ours, or half of one, is no reason not to start.
        site.kill_client()?;
        site.kill_server()?;
        for file in files(site) {
            fs::write(&file, "{\"format\": \"bentpipe paths 1\"")?;
        }
        site.start_server()?;
        site.start_client()?;
        for daemon in [site.client(), site.server()] {
            let log = daemon.stderr_text();
            ensure!(log.contains("-paths.json is ignored"), "{log}");
        }
        Ok(())
    });
}

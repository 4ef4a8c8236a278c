//! What `--qlog` writes is a trace that qvis can draw.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use bentpipe_testbed::site::SiteConfig;
use bentpipe_testbed::transfer::{Transfer, Way};
use serde_json::Value;

use super::{RTT, SOON, on_site, route, start};
use crate::BENTPIPE;

/// The records of the only trace in `directory`.
fn records(directory: &Path) -> Result<Vec<Value>> {
    let mut files = fs::read_dir(directory)?.collect::<Result<Vec<_>, _>>()?;
    ensure!(files.len() == 1, "{} files", files.len());
    let file = files.remove(0).path();
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    ensure!(name.starts_with("client-") && name.ends_with(".sqlog"));
    let mode = fs::metadata(&file)?.permissions().mode() & 0o777;
    ensure!(mode == 0o600, "mode {mode:o}");
    // RFC 7464: every record begins with RS and ends with LF.
    let text = fs::read_to_string(&file)?;
    let records = text.strip_prefix('\x1e').context("no JSON-SEQ")?;
    let record = |text: &str| {
        let text = text.strip_suffix('\n').context("a record without end")?;
        serde_json::from_str(text).context("no JSON")
    };
    records.split('\x1e').map(record).collect()
}

#[test]
fn a_trace_shows_packets_and_the_controller() {
    on_site("trace", SiteConfig::new(BENTPIPE), |site| {
        site.stop_client()?;
        let directory = site.client_home().join("traces");
        let client = start::client(site, |command| {
            command.arg("--qlog").arg(&directory);
        })?;
        client.wait_for_line("ready", SOON)?;
        Transfer::start(&route(site, RTT), Way::Upload, 1_000_000)?.finish_whole()?;
        client.signal(rustix::process::Signal::TERM)?;
        client.wait(SOON)?;

        let records = records(&directory)?;
        let head = &records[0];
        ensure!(head["qlog_format"] == "JSON-SEQ", "{head}");
        ensure!(head["title"] == "bentpipe client", "{head}");
        ensure!(head["trace"]["vantage_point"]["type"] == "client", "{head}");
        let mut events = BTreeMap::new();
        let mut metrics = BTreeMap::new();
        for event in &records[1..] {
            let name = event["name"].as_str().context("a name")?;
            *events.entry(name).or_insert(0) += 1;
            if name.ends_with("metrics_updated") {
                let data = event["data"].as_object().context("data")?;
                metrics.extend(data.iter().map(|(key, value)| (key.as_str(), value)));
            }
        }
        println!("{events:?} {metrics:?}");
        let count = |name: &str| {
            let of = events.iter().filter(|(event, _)| event.ends_with(name));
            of.map(|(_, count)| *count).sum::<u32>()
        };
        ensure!(count("packet_sent") > 600, "{events:?}");
        ensure!(count("packet_received") > 20, "{events:?}");
        for metric in ["congestion_window", "pacing_rate"] {
            ensure!(metrics[metric].as_u64() > Some(1000), "{metrics:?}");
        }
        let rtt = metrics["min_rtt"].as_f64().context("milliseconds")?;
        ensure!((500.0..600.0).contains(&rtt), "{rtt}");
        Ok(())
    });
}

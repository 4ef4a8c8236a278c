//! One TCP stream of iperf3, as papers measure goodput: its own figure, taken where the bytes arrive.
//!
//! Its clock starts when its data may flow; the connection that it arranges a test by is made before and not counted.

use std::fs::{self, File};
use std::net::IpAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bentpipe_sys::command::{run_command, tool};
use serde::Deserialize;

use bentpipe_emulator::Stop;
use bentpipe_emulator::topology::Topology;

const PROGRAM: &str = "iperf3";
const POLL: Duration = Duration::from_millis(20);
/// For the server to listen: it says nothing when it does.
const COMES_UP: Duration = Duration::from_millis(300);

#[derive(Debug, Deserialize)]
struct IperfReport {
    error: Option<String>,
    end: Option<Totals>,
}

#[derive(Debug, Deserialize)]
struct Totals {
    sum_received: Option<Sum>,
}

#[derive(Debug, Deserialize)]
struct Sum {
    seconds: f64,
    bytes: u64,
}

/// Version of iperf3.
///
/// # Errors
/// It is missing.
pub fn iperf3_version() -> Result<String, String> {
    let text = run_command(tool(PROGRAM).arg("--version"))
        .map_err(|_| "iperf3 is missing (Debian: iperf3); `.ci/deps` installs it")?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// Moves `bytes` between the user and the web server's `address`, to the user if `down`: how long its goodput takes for
/// them. None if `patience` ends first.
///
/// # Errors
/// iperf3's own, or `stop` was thrown.
pub fn iperf3(
    topology: &Topology,
    address: IpAddr,
    down: bool,
    bytes: u64,
    patience: Duration,
    stop: &Stop,
) -> Result<Option<Duration>> {
    let address = address.to_string();
    let mut server = Command::new(PROGRAM);
    server.args(["--server", "--one-off", "--bind", &address]);
    server.stdout(File::create(topology.directory().join("iperf3.server"))?);
    let _server = topology.spawn_in(topology.web(), server)?;
    stop.sleep(COMES_UP)?;
    let output = topology.directory().join("iperf3.json");
    let mut client = Command::new(PROGRAM);
    let bytes_text = bytes.to_string();
    client.args(["--client", &address, "--json", "--bytes", &bytes_text]);
    client.args(down.then_some("--reverse"));
    client.stdout(File::create(&output)?);
    let client = topology.spawn_in(topology.user(), client)?;
    let deadline = Instant::now() + patience;
    while client.try_wait()?.is_none() {
        if Instant::now() >= deadline {
            return Ok(None);
        }
        stop.sleep(POLL)?;
    }
    let text = fs::read_to_string(&output).context("iperf3 wrote no report")?;
    time_for(bytes, &text).map(Some)
}

/// Time that iperf3 took for `bytes`, by its rate: iperf3 sends whole blocks, the last beyond what was asked, and ends its clock
/// before the last ones arrive.
fn time_for(bytes: u64, text: &str) -> Result<Duration> {
    let report: IperfReport =
        serde_json::from_str(text).with_context(|| format!("iperf3 wrote: {text}"))?;
    if let Some(error) = report.error {
        bail!("iperf3: {error}");
    }
    let sum = report.end.and_then(|end| end.sum_received);
    let sum = sum.context("iperf3 reports no sum of what was received")?;
    ensure!(
        sum.bytes > 0 && sum.seconds > 0.0,
        "iperf3 received nothing"
    );
    let seconds = sum.seconds * bytes as f64 / sum.bytes as f64;
    Duration::try_from_secs_f64(seconds).context("iperf3 reports no possible time")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_what_arrived_counts() {
        let report = |bytes: u64, seconds: f64| {
            format!("{{\"end\":{{\"sum_received\":{{\"bytes\":{bytes},\"seconds\":{seconds}}}}}}}")
        };
        let time = time_for(1_000_000, &report(1_100_000, 2.2)).unwrap();
        assert_eq!(time.as_millis(), 2000);
        for wrong in [
            report(0, 2.2),
            report(5, -1.0),
            "{\"error\":\"unable to connect\"}".into(),
            "{\"end\":{}}".into(),
            "x".into(),
        ] {
            assert!(time_for(1, &wrong).is_err(), "{wrong}");
        }
        let error = time_for(1, "{\"error\":\"unable to connect\"}").unwrap_err();
        assert!(error.to_string().contains("unable to connect"), "{error}");
    }
}

//! The emulator as strangers measure it: `ping` and `iperf3`, from end to end of the namespaces that `bentpipe emulate`
//! makes. What the other measurements' own sockets might have wrong in the same way as the emulator shows here.

use std::process::Command;

use anyhow::{Context as _, Result};
use bentpipe_link::Scenario;
use serde::Deserialize;

use super::Measured;
use crate::emulator::EmulatorStats;
use crate::scenario::preset;
use crate::selftest::bench::scenario;
use crate::selftest::model::constant;
use crate::selftest::row::{Row, binomial_interval};
use crate::topology::{Topology, TopologyConfig, USER, WEB, unique_prefix};

const PROPERTY: &str = "from outside";
const PINGS: u32 = 100;
/// iperf3's payload, and the IP packet that it makes.
const PAYLOAD: u64 = 1400;
const PACKET: f64 = 1428.0;
/// Of a measurement of rate: what is sent, as a share of what the link carries.
const OVERLOAD: f64 = 1.1;
/// Seconds of UDP. The first two and the last are not whole: the queue fills, the end comes.
const SECONDS: u32 = 10;
const SETTLED: usize = 2;
/// Of a measurement of loss.
const LOSS: f64 = 0.01;
/// The CNES measurements' file and time.
const FILE: u64 = 30_000_000;
const FILE_SECONDS: f64 = 29.4;

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub(super) enum Check {
    /// Round trips of 250 ms one way.
    Ping,
    /// A link of so many Mbit/s that is offered more.
    Rate(u64),
    /// One packet in a hundred lost.
    Loss,
    /// A file over the CNES' GEO link with the kernel's CUBIC.
    File,
}

/// None of them is quick.
pub(super) fn checks(quick: bool) -> Vec<Check> {
    if quick {
        return Vec::new();
    }
    let rates = [10, 50, 150].map(Check::Rate);
    [Check::Ping]
        .into_iter()
        .chain(rates)
        .chain([Check::Loss, Check::File])
        .collect()
}

impl Check {
    /// Title that the case is found by.
    pub(super) fn title(self) -> String {
        let (program, case) = self.case();
        format!("{PROPERTY} {program}: {case}")
    }

    fn case(self) -> (&'static str, String) {
        match self {
            Self::Ping => ("ping", format!("{PINGS} pings, 250 ms one way")),
            Self::Rate(megabits) => ("iperf3", format!("UDP over {megabits} Mbit/s")),
            Self::Loss => ("iperf3", "UDP, 1 % lost".into()),
            Self::File => ("iperf3", "30 MB of cubic, cnes-geo".into()),
        }
    }

    fn scenario(self) -> Result<Scenario> {
        match self {
            Self::Ping => scenario(&constant("100 Mbit/s", "250 ms", "")),
            Self::Rate(megabits) => scenario(&constant(
                &format!("{megabits} Mbit/s"),
                "25 ms",
                "[queue]\npackets = 500\n",
            )),
            Self::Loss => scenario(&constant(
                "50 Mbit/s",
                "25 ms",
                &format!("[errors]\nmodel = \"iid\"\nrate = {LOSS}\ndirection = \"forward\"\n"),
            )),
            Self::File => preset("cnes-geo").context("the preset cnes-geo"),
        }
    }
}

pub(super) fn measure(check: Check) -> Result<Measured> {
    let (program, case) = check.case();
    let case = format!("{program}: {case}");
    if Command::new(program).arg("--version").output().is_err() {
        return Ok(absent(&case, program));
    }
    let topology = Topology::build(&TopologyConfig {
        link: check.scenario()?.into(),
        prefix: format!("{}-out", unique_prefix()),
        hosts: 0,
    })?;
    let rows = match check {
        Check::Ping => ping(&topology, &case)?,
        Check::Rate(megabits) => vec![rate(&topology, case, megabits as f64)?],
        Check::Loss => vec![loss(&topology, case)?],
        Check::File => vec![file(&topology, case)?],
    };
    Ok(Measured {
        rows,
        stats: vec![topology.finish()?],
        unfit: None,
    })
}

/// Nothing could be measured.
fn absent(case: &str, program: &str) -> Measured {
    let package = if program == "ping" {
        "iputils-ping"
    } else {
        program
    };
    Measured {
        rows: vec![Row::new(PROPERTY, case, "-", "-", false)],
        stats: Vec::<EmulatorStats>::new(),
        unfit: Some(format!(
            "`{program}` is not installed: apt-get install {package}"
        )),
    }
}

fn ping(topology: &Topology, case: &str) -> Result<Vec<Row>> {
    let count = PINGS.to_string();
    let to = WEB.to_string();
    let args = ["-n", "-q", "-c", &count, "-i", "0.05", &to];
    let text = topology.user().run("ping", &args)?;
    let [least, mean] = round_trips(&text).with_context(|| format!("ping wrote: {text}"))?;
    let row = |what: &str, figure| {
        Row::within(
            PROPERTY,
            format!("{case}: {what}"),
            figure,
            500.0..=500.6,
            "ms",
            3,
        )
    };
    Ok(vec![row("least", least), row("mean", mean)])
}

/// Least and mean of `rtt min/avg/max/mdev = 500.114/500.230/500.913/0.080 ms`.
fn round_trips(text: &str) -> Option<[f64; 2]> {
    let (_, figures) = text.split_once("min/avg/max/mdev = ")?;
    let mut figures = figures.split('/');
    Some([figures.next()?.parse().ok()?, figures.next()?.parse().ok()?])
}

/// Part of iperf3's report that is needed, as the receiver saw it.
#[derive(Debug, Deserialize)]
struct Report {
    intervals: Vec<Interval>,
    end: End,
}

#[derive(Debug, Deserialize)]
struct Interval {
    sum: Sum,
}

#[derive(Debug, Deserialize)]
struct End {
    /// UDP.
    sum: Option<Sum>,
    /// TCP.
    sum_received: Option<Sum>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Sum {
    seconds: f64,
    bytes: u64,
    #[serde(default)]
    packets: u64,
    #[serde(default)]
    lost_packets: u64,
}

/// Sends from the web to the user with iperf3, as `options` say; what the user's end reports.
fn iperf3(topology: &Topology, options: &[&str]) -> Result<Report> {
    let mut server = Command::new("iperf3");
    server.args(["--server", "--one-off", "--json", "--interval", "1"]);
    server.stdout(std::process::Stdio::null());
    let _server = topology.spawn_in(topology.user(), server)?;
    // It says nothing when it is ready.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let to = USER.to_string();
    let mut args = vec!["--client", &to, "--json", "--get-server-output"];
    args.extend(options);
    let text = topology.web().run("iperf3", &args)?;
    #[derive(Deserialize)]
    struct Client {
        server_output_json: Report,
    }
    let client: Client =
        serde_json::from_str(&text).with_context(|| format!("iperf3 wrote: {text}"))?;
    Ok(client.server_output_json)
}

/// `--window`: what the receiver misses must not look like the emulator's.
const UDP: [&str; 4] = ["--udp", "--window", "4M", "--length"];

fn udp(topology: &Topology, rate: f64) -> Result<Report> {
    let rate = format!("{:.0}", rate * PAYLOAD as f64 / PACKET);
    let (seconds, length) = (SECONDS.to_string(), PAYLOAD.to_string());
    let options = [&length, "--bitrate", &rate, "--time", &seconds];
    iperf3(topology, &[&UDP[..], &options[..]].concat())
}

fn rate(topology: &Topology, case: String, megabits: f64) -> Result<Row> {
    let report = udp(topology, megabits * 1e6 * OVERLOAD)?;
    let inner = report.intervals.iter().skip(SETTLED);
    let inner = inner.take(report.intervals.len().saturating_sub(SETTLED + 1));
    let (bytes, seconds) = inner.fold((0, 0.0), |(bytes, seconds), interval| {
        (bytes + interval.sum.bytes, seconds + interval.sum.seconds)
    });
    let measured = bytes as f64 / PAYLOAD as f64 * PACKET * 8.0 / seconds / 1e6;
    let range = megabits * 0.995..=megabits * 1.005;
    Ok(Row::within(PROPERTY, case, measured, range, "Mbit/s", 3))
}

fn loss(topology: &Topology, case: String) -> Result<Row> {
    let report = udp(topology, 40e6)?;
    let sum = report.end.sum.context("iperf3 reports no loss")?;
    let share = sum.lost_packets as f64 / sum.packets as f64;
    let interval = binomial_interval(sum.packets, LOSS);
    let range = interval.start() * 100.0..=interval.end() * 100.0;
    Ok(Row::within(PROPERTY, case, share * 100.0, range, "%", 3))
}

fn file(topology: &Topology, case: String) -> Result<Row> {
    let bytes = FILE.to_string();
    let report = iperf3(topology, &["--bytes", &bytes, "--congestion", "cubic"])?;
    let sum = report.end.sum_received.context("iperf3 reports no sum")?;
    // It sends whole blocks, the last beyond what was asked.
    let seconds = sum.seconds * FILE as f64 / sum.bytes as f64;
    let range = FILE_SECONDS * 0.9..=FILE_SECONDS * 1.1;
    Ok(Row::within(PROPERTY, case, seconds, range, "s", 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_ping_are_found() {
        let text = "\n--- 10.30.0.2 ping statistics ---\n3 packets transmitted, 3 received, 0% packet loss, time 2003ms\n\
                    rtt min/avg/max/mdev = 500.114/500.230/500.913/0.080 ms\n";
        assert_eq!(round_trips(text), Some([500.114, 500.230]));
        assert_eq!(round_trips("3 packets transmitted, 0 received"), None);
    }
}

//! TCP: one download of the kernel's own over links whose goodput is known.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_link::Scenario;
use rustix::io::Errno;
use rustix::net::sockopt::{set_tcp_congestion, tcp_congestion};

use super::Measured;
use crate::emulator::EmulatorStats;
use crate::scenario::preset;
use crate::selftest::bench::scenario;
use crate::selftest::model::constant;
use crate::selftest::row::Row;
use crate::topology::{Topology, TopologyConfig, WEB, unique_prefix};

const PORT: u16 = 7001;
/// Payload of a full segment with timestamps, in a packet of 1500 bytes.
const SEGMENT: f64 = 1448.0;
const PACKET: f64 = 1500.0;
/// The CNES measurements' file and time, CUBIC without HyStart; 29.9 s with.
const FILE: usize = 30_000_000;
const FILE_SECONDS: f64 = 29.4;
/// The link that a flow fills: one way in milliseconds, and Mbit/s.
const PIPE: (u64, f64) = (25, 10.0);
/// The link that losses keep it from filling: its round trip is long beside a delayed ACK's 40 ms, its BDP three windows.
const LOSSY: (u64, f64) = (50, 20.0);
/// One packet in so many is lost there.
const PERIOD: u32 = 1000;

/// A download.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flow {
    congestion_control: &'static str,
    over: Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    /// A file over the CNES' GEO link: the seconds that it takes.
    CnesGeo,
    /// A link with a queue of one BDP: what it carries when it is full.
    Pipe,
    /// A link that is never full, and loses at equal distances: 1/p packets per tooth of the saw.
    Losses,
}

/// None of them is quick.
pub(super) fn flows(quick: bool) -> Vec<Flow> {
    let flow = |congestion_control, over| Flow {
        congestion_control,
        over,
    };
    if quick {
        return Vec::new();
    }
    vec![
        flow("cubic", Over::CnesGeo),
        flow("cubic", Over::Pipe),
        flow("reno", Over::Pipe),
        flow("bbr", Over::Pipe),
        flow("reno", Over::Losses),
    ]
}

impl Flow {
    /// Title that the case is found by.
    pub(super) fn title(&self) -> String {
        let over = match self.over {
            Over::CnesGeo => "cnes-geo",
            Over::Pipe => "fills a link",
            Over::Losses => "losses",
        };
        format!("TCP {} {over}", self.congestion_control)
    }

    fn scenario(&self) -> Result<Scenario> {
        let link = |(millis, megabits): (u64, f64), more: &str| {
            scenario(&constant(
                &format!("{megabits} Mbit/s"),
                &format!("{millis} ms"),
                more,
            ))
        };
        match self.over {
            Over::CnesGeo => preset("cnes-geo").context("the preset cnes-geo"),
            Over::Pipe => link(PIPE, ""),
            Over::Losses => link(
                LOSSY,
                &format!(
                    "[errors]\nmodel = \"periodic\"\nevery = {PERIOD}\ndirection = \"forward\"\n"
                ),
            ),
        }
    }

    fn row(&self, download: &Download) -> Row {
        let name = self.congestion_control;
        let goodput = download.late_bytes as f64 * 8.0 / download.late.as_secs_f64() / 1e6;
        let near = |expected: f64| expected * 0.95..=expected * 1.05;
        match self.over {
            Over::CnesGeo => Row::within(
                "TCP",
                format!("30 MB of {name}, cnes-geo"),
                download.whole.as_secs_f64(),
                FILE_SECONDS * 0.9..=FILE_SECONDS * 1.1,
                "s",
                1,
            ),
            Over::Pipe => Row::within(
                "TCP",
                format!("{name} fills 10 Mbit/s, 50 ms, a queue of a BDP"),
                goodput,
                near(PIPE.1 * SEGMENT / PACKET),
                "Mbit/s",
                2,
            ),
            Over::Losses => Row::within(
                "TCP",
                format!("{name}, one in {PERIOD} lost, 100 ms: its saw"),
                goodput,
                near(saw()),
                "Mbit/s",
                2,
            ),
        }
    }
}

/// Rate of Reno's saw in Mbit/s: from W/2 to W by one segment a round trip, and W/2 in the round trip of the
/// retransmission. A tooth is 1/p = 3/8 W² + W/2 segments in W/2 + 2 round trips; without the last terms this is the
/// square root of 3/2p.
fn saw() -> f64 {
    let (millis, megabits) = LOSSY;
    let tooth = f64::from(PERIOD);
    let window = ((0.25 + 1.5 * tooth).sqrt() - 0.5) / 0.75;
    let rtt = 2e-3 * millis as f64 + PACKET * 8.0 / (megabits * 1e6);
    tooth / (window / 2.0 + 2.0) * SEGMENT * 8.0 / rtt / 1e6
}

pub(super) fn measure(flow: &Flow) -> Result<Measured> {
    let topology = Topology::build(&TopologyConfig {
        link: flow.scenario()?.into(),
        prefix: format!("{}-self", unique_prefix()),
        hosts: 0,
    })?;
    let listener = topology.web().enter(|| TcpListener::bind((WEB, PORT)))??;
    if let Err(error) = set_tcp_congestion(&listener, flow.congestion_control) {
        return Ok(absent(flow, error, topology.finish()?));
    }
    let start = Instant::now();
    let connect = || TcpStream::connect_timeout(&(WEB, PORT).into(), Duration::from_secs(10));
    let client = topology.user().enter(connect)??;
    let download = thread::scope(|scope| -> Result<Download> {
        let server = scope.spawn(|| serve(&listener, flow.congestion_control));
        let download = download(client, start, flow.over == Over::CnesGeo);
        // It ends with its client, which has gone by now.
        let served = server.join();
        served.map_err(|_| anyhow::anyhow!("the server panicked"))??;
        download
    })?;
    Ok(Measured {
        rows: vec![flow.row(&download)],
        stats: vec![topology.finish()?],
        unfit: None,
    })
}

/// Nothing could be measured: this machine's kernel has no such congestion control, or does not let us use it.
fn absent(flow: &Flow, error: Errno, stats: EmulatorStats) -> Measured {
    let name = flow.congestion_control;
    let nothing = Download {
        whole: Duration::MAX,
        late_bytes: 0,
        late: Duration::MAX,
    };
    Measured {
        rows: vec![flow.row(&nothing)],
        stats: vec![stats],
        unfit: Some(format!(
            "this kernel offers no `{name}` ({error}); as root: `modprobe tcp_{name}`"
        )),
    }
}

fn serve(listener: &TcpListener, congestion_control: &str) -> Result<()> {
    let (mut socket, _) = listener.accept()?;
    // Here and not at the listener alone: a route that names another wins over that.
    set_tcp_congestion(&socket, congestion_control)?;
    let used = tcp_congestion(&socket)?;
    ensure!(used == congestion_control, "the flow is one of {used}");
    let block = vec![0; 1 << 16];
    // Until the client has enough, and goes.
    while socket.write_all(&block).is_ok() {}
    Ok(())
}

/// Download as a client saw it.
#[derive(Debug, Clone, Copy)]
struct Download {
    /// From before the connection.
    whole: Duration,
    /// Bytes that came after start-up, in so much time.
    late_bytes: usize,
    late: Duration,
}

/// A file, or as much as comes in half a minute.
fn download(mut socket: TcpStream, start: Instant, file: bool) -> Result<Download> {
    const START_UP: Duration = Duration::from_secs(10);
    const END: Duration = Duration::from_secs(40);
    socket.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut block = vec![0; 1 << 16];
    let (mut received, mut early) = (0, None);
    loop {
        let length = socket.read(&mut block)?;
        ensure!(length > 0, "the server ended after {received} bytes");
        received += length;
        let now = start.elapsed();
        if now >= START_UP && early.is_none() {
            early = Some((now, received));
        }
        if file && received >= FILE || !file && now >= END {
            let (since, bytes) = early.unwrap_or_default();
            return Ok(Download {
                whole: now,
                late_bytes: received - bytes,
                late: now - since,
            });
        }
    }
}

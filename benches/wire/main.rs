//! Downloads over the emulated satellite: the kernel's CUBIC and BBR, and bentpipe with each of its controllers, in one
//! run, each in namespaces of its own. Needs root.
//!
//! `cargo bench --bench wire [-- TEXT]` prints seconds, and their ratio to what the link allows; with TEXT only the rows
//! that contain it. It fails where bentpipe takes longer than a row's ceiling.
//!
//! ```text
//!  user ── terminal ─ sat0 ══ emulated link ══ sat0 ─ gateway ── web        kernel: end to end
//!          └─ bentpipe client            bentpipe server ─┘                 bentpipe: in between
//! ```
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

mod transfer;

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bentpipe_emulator::scenario::preset;
use bentpipe_emulator::topology::Topology;
use bentpipe_lab::contender::kernel_bbr;
use bentpipe_lab::workload::LinkLimit;
use bentpipe_link::{Direction, ErrorUnit, Errors, Orbit, Scenario, Standard};
use bentpipe_testbed::site::{Site, SiteConfig};

use transfer::{Outcome, download};

/// Program under test, which cargo builds before this binary.
pub(crate) const BENTPIPE: &str = env!("CARGO_BIN_EXE_bentpipe");

/// What bentpipe sends with; the first is held to the ceilings.
const CONTROLLERS: [&str; 3] = ["satellite", "bbr3", "cubic"];

/// Between two transfers in one tunnel: queues empty, and the second one is warm.
const PAUSE: Duration = Duration::from_secs(3);

/// Packets that leave the emulated link later than this falsify the figures.
const TOLERABLE_LATENESS: Duration = Duration::from_millis(10);

/// One link and what crosses it.
struct Row {
    name: &'static str,
    /// Forward and return link.
    rates: [&'static str; 2],
    one_way_delay: Duration,
    /// Share of the forward link's packets.
    loss: f64,
    bytes: u64,
    /// Nobody is waited for any longer.
    cap: Duration,
    /// What bentpipe is to take in a warm tunnel, in seconds.
    goal: f64,
    /// What it takes at most now: one run's losses may need one round trip more than another's at the end.
    ceiling: f64,
    /// The same in a new tunnel: without a figure from its train of packets a start takes longer.
    cold_ceiling: f64,
}

const ROWS: [Row; 4] = [
    Row {
        name: "10 MB at 20/2 Mbit/s, 600 ms",
        rates: ["20 Mbit/s", "2 Mbit/s"],
        one_way_delay: Duration::from_millis(300),
        loss: 0.0,
        bytes: 10_000_000,
        cap: Duration::from_secs(60),
        goal: 5.1,
        ceiling: 5.1,
        cold_ceiling: 9.0,
    },
    Row {
        name: "10 MB at 20/2 Mbit/s, 600 ms, 1 % loss",
        rates: ["20 Mbit/s", "2 Mbit/s"],
        one_way_delay: Duration::from_millis(300),
        loss: 0.01,
        bytes: 10_000_000,
        cap: Duration::from_secs(60),
        goal: 5.3,
        ceiling: 5.9,
        cold_ceiling: 12.0,
    },
    Row {
        name: "30 MB at 10/10 Mbit/s, 500 ms, 1 % loss",
        rates: ["10 Mbit/s", "10 Mbit/s"],
        one_way_delay: Duration::from_millis(250),
        loss: 0.01,
        bytes: 30_000_000,
        cap: Duration::from_secs(90),
        goal: 26.6,
        ceiling: 27.1,
        cold_ceiling: 32.0,
    },
    Row {
        name: "100 MB at 250/3 Mbit/s, 600 ms",
        rates: ["250 Mbit/s", "3 Mbit/s"],
        one_way_delay: Duration::from_millis(300),
        loss: 0.0,
        bytes: 100_000_000,
        cap: Duration::from_secs(60),
        goal: 4.3,
        ceiling: 4.3,
        cold_ceiling: 6.0,
    },
];

impl Row {
    fn scenario(&self) -> Scenario {
        let [forward_link, return_link] = self.rates.map(|rate| Standard::Cbr {
            bit_rate: rate.parse().expect("a rate"),
        });
        Scenario {
            orbit: Orbit::constant(self.one_way_delay),
            forward_link,
            return_link,
            errors: Errors::Iid {
                rate: self.loss.to_string().parse().expect("a ratio"),
                unit: ErrorUnit::Ip,
                direction: Direction::Forward,
            },
            ..preset("geo").expect("a preset")
        }
    }

    /// What the link allows: one round trip, and every byte once and what is lost of it again.
    fn limit(&self) -> Result<f64> {
        let link = LinkLimit::new(&self.scenario().link_config()?);
        let rtt = 2.0 * self.one_way_delay.as_secs_f64();
        let serial = link.object(self.bytes).as_secs_f64() - rtt;
        Ok(rtt + serial / (1.0 - self.loss))
    }

    /// The kernel's TCP from end to end.
    fn plain(&self, congestion: &'static str) -> Result<Outcome> {
        let site = Site::plain(self.site(String::new()))?;
        let outcome = download(&site.topology, congestion, self.bytes, self.cap)?;
        sound(site.topology)?;
        Ok(outcome)
    }

    /// bentpipe at both ends: in a fresh tunnel, and again in the same one if that was of any use.
    fn tunnel(&self, controller: &str) -> Result<Vec<Outcome>> {
        let tables =
            format!("controller = \"{controller}\"\n[intercept]\ninterfaces = [\"lan0\"]\n");
        let mut site = Site::start(self.site(tables))?;
        let mut outcomes = Vec::new();
        while outcomes.len() < 2 && outcomes.iter().all(|outcome: &Outcome| outcome.whole) {
            let outcome = download(&site.topology, "cubic", self.bytes, self.cap);
            outcomes.push(outcome.with_context(|| site.logs())?);
            thread::sleep(PAUSE);
        }
        site.stop_client()?;
        site.stop_server()?;
        sound(site.topology)?;
        Ok(outcomes)
    }

    fn site(&self, client_tables: String) -> SiteConfig {
        SiteConfig {
            scenario: self.scenario(),
            client_tables,
            ..SiteConfig::new(BENTPIPE)
        }
    }

    /// Runs everybody; true if bentpipe keeps below the ceiling.
    fn run(&self) -> Result<bool> {
        let limit = self.limit()?;
        println!("{}: the link allows {limit:.2} s", self.name);
        let cubic = self.plain("cubic")?;
        tell("kernel CUBIC", &cubic, limit, &[]);
        let bbr = self.plain("bbr")?;
        tell(&format!("kernel {}", kernel_bbr()), &bbr, limit, &[]);
        let peers = [("CUBIC", cubic), ("BBR", bbr)];
        let mut kept = true;
        for controller in CONTROLLERS {
            let outcomes = self.tunnel(controller)?;
            for (outcome, state) in outcomes.iter().zip(["cold", "warm"]) {
                let who = format!("bentpipe {controller}, {state}");
                tell(&who, outcome, limit, &peers);
            }
            if controller == CONTROLLERS[0] {
                let within = |index: usize, bound| {
                    let whole = outcomes.get(index).filter(|outcome| outcome.whole);
                    whole.is_some_and(|outcome| outcome.took.as_secs_f64() <= bound)
                };
                kept = within(0, self.cold_ceiling) && within(1, self.ceiling);
                let verdict = match (within(1, self.goal), kept) {
                    (true, _) => "met",
                    (false, true) => "SHORT",
                    (false, false) => "SHORT, and above the ceiling",
                };
                println!("  {:32} {:7.2} s {verdict}", "goal when warm", self.goal);
            }
        }
        Ok(kept)
    }
}

/// One line: seconds, ratio to the limit, ratio to the peers.
fn tell(who: &str, outcome: &Outcome, limit: f64, peers: &[(&str, Outcome)]) {
    let took = outcome.took.as_secs_f64();
    if !outcome.whole {
        let rate = outcome.got as f64 * 8.0 / took / 1e6;
        let got = outcome.got as f64 / 1e6;
        return println!("  {who:32} > {took:5.1} s, {got:.1} MB by then: {rate:.2} Mbit/s");
    }
    let compared = peers.iter().map(|(name, peer)| {
        let bound = if peer.whole { "" } else { "< " };
        format!(", {bound}{:.2} × {name}", took / peer.took.as_secs_f64())
    });
    let compared: String = compared.collect();
    println!(
        "  {who:32} {took:7.2} s = {:.3} × limit{compared}",
        took / limit
    );
}

/// Says so if the emulated link was late.
fn sound(topology: Topology) -> Result<()> {
    let stats = topology.finish()?;
    let late = stats.emulator.lateness.p99.get();
    if late > TOLERABLE_LATENESS || stats.emulator.write_errors > 0 {
        println!("  (the machine was busy: one packet in a hundred was {late:.0?} late or more)");
    }
    Ok(())
}

fn main() -> ExitCode {
    if !bentpipe_testbed::privileged("wire") {
        return ExitCode::SUCCESS;
    }
    // cargo itself passes `--bench`.
    let wanted: Vec<_> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let rows = ROWS.iter().filter(|row| {
        wanted.is_empty() || wanted.iter().any(|text| row.name.contains(text.as_str()))
    });
    let mut kept = true;
    for row in rows {
        match row.run() {
            Ok(row_kept) => kept &= row_kept,
            Err(error) => {
                println!("  {error:#}");
                kept = false;
            }
        }
    }
    if kept {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

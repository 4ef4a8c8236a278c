//! CPU seconds per gigabyte through client and server on loopback, beside a plain quinn-proto transfer.
//!
//! `cargo bench --bench cpu` prints both and their ratio, and fails above the ceiling, or if a run is
//! much slower than the others: a fresh pair of daemons either finds the machine's rate or does not. Both sides of
//! either transfer are counted, user and system time; the applications around bentpipe are not.
//!
//! ```text
//!  plain      thread: quinn-proto + GSO ══ UDP ══ thread: quinn-proto + GRO
//!  bentpipe   source ─TCP─► server process ══ UDP ══ client process ─TCP─► reader
//! ```
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

mod daemons;
mod plain;

use std::process::ExitCode;

/// Payload of one run, in bytes.
const BYTES: u64 = 1_500_000_000;

/// Runs of each, in turn; the median counts.
const ROUNDS: usize = 5;

/// The most that bentpipe may take, as a multiple of the plain transfer: besides QUIC it reads and writes
/// every byte through TCP, once at each end.
const CEILING: f64 = 2.5;

/// The least that a run may reach of the median's rate.
const SLOWEST: f64 = 0.5;

/// One transfer of [`BYTES`]: how long it took and what it cost, in seconds.
pub(crate) struct Run {
    seconds: f64,
    cpu: f64,
}

impl Run {
    /// CPU seconds for each gigabyte.
    fn cost(&self) -> f64 {
        self.cpu / (BYTES as f64 / 1e9)
    }

    /// Gbit/s of payload.
    fn rate(&self) -> f64 {
        BYTES as f64 * 8.0 / self.seconds / 1e9
    }
}

fn main() -> ExitCode {
    let (mut plain, mut tunnel) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        let measure = |name: &str, run: &dyn Fn(u64) -> Run| {
            let run = run(BYTES);
            let (cost, rate) = (run.cost(), run.rate());
            println!("round {round}  {name:12} {cost:5.2} CPU-s/GB at {rate:.2} Gbit/s");
            run
        };
        plain.push(measure("quinn-proto", &plain::run));
        tunnel.push(measure("bentpipe", &daemons::run));
    }
    let [own, peer] = [&tunnel, &plain].map(|runs| median(runs.iter().map(Run::cost)));
    let ratio = own / peer;
    println!(
        "median   quinn-proto {peer:.2}, bentpipe {own:.2} CPU-s/GB: ratio {ratio:.2}, ceiling {CEILING}"
    );
    let usual = median(tunnel.iter().map(Run::rate));
    let slowest = tunnel.iter().map(Run::rate).fold(usual, f64::min) / usual;
    println!("slowest  bentpipe {slowest:.2} of its median of {usual:.2} Gbit/s, floor {SLOWEST}");
    if ratio <= CEILING && slowest >= SLOWEST {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

//! CPU seconds per gigabyte through client and server on loopback, beside a plain quinn-proto transfer.
//!
//! `cargo bench --bench cpu` prints both and their ratio, and fails above the ceiling. Both sides of
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
use std::time::Instant;

/// Payload of one run, in bytes.
const BYTES: u64 = 1_500_000_000;

/// Runs of each, in turn; the median counts.
const ROUNDS: usize = 3;

/// The most that bentpipe may take, as a multiple of the plain transfer: besides QUIC it reads and writes
/// every byte through TCP, once at each end.
const CEILING: f64 = 2.5;

fn main() -> ExitCode {
    let mut plain = Vec::new();
    let mut tunnel = Vec::new();
    for round in 1..=ROUNDS {
        let measure = |name: &str, run: &dyn Fn(u64) -> f64| {
            let began = Instant::now();
            let seconds = run(BYTES) / (BYTES as f64 / 1e9);
            let rate = BYTES as f64 * 8.0 / began.elapsed().as_secs_f64() / 1e9;
            println!("round {round}  {name:12} {seconds:5.2} CPU-s/GB  at about {rate:.1} Gbit/s");
            seconds
        };
        plain.push(measure("quinn-proto", &plain::run));
        tunnel.push(measure("bentpipe", &daemons::run));
    }
    let (plain, tunnel) = (median(plain), median(tunnel));
    let ratio = tunnel / plain;
    println!(
        "median   quinn-proto {plain:.2}, bentpipe {tunnel:.2} CPU-s/GB: ratio {ratio:.2}, ceiling {CEILING}"
    );
    if ratio <= CEILING {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

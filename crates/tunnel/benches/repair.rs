//! CPU time that repairs cost: the same bytes with `fec = "auto"` and `"off"`, in turn, on a clean link and at 0.1 and 2 % loss.
//!
//! `cargo bench -p bentpipe-tunnel --bench repair` prints the ratios and fails above their ceilings. Both ends of the tunnel and
//! the simulated link between them are counted; the link takes the same in either run. Each seed counts with the least of its
//! times: whatever else a machine does only adds to them. `-- auto 0.02` makes one run of a kind, for a profiler.

use bentpipe_tunnel::engine::Wishes;
use std::process::ExitCode;
use std::time::Duration;

use bentpipe_link::{LinkConfig, LossModel};
use bentpipe_proto::fec::Fec;
use bentpipe_testbed::world::{Setup, World, preset};
use bentpipe_units::Ratio;
use rustix::time::{ClockId, clock_gettime};

/// A download in a flow of its own, in bytes; the first one warms the tunnel.
const BYTES: u64 = 100_000_000;
const SEEDS: u64 = 7;
const ROUNDS: usize = 4;
/// Share of packets lost both ways, and the most that `auto` may take of the time of `off`.
const CASES: [(f64, f64); 3] = [(0.0, 1.03), (0.001, 1.3), (0.02, 1.3)];

/// 250/3 Mbit/s, 600 ms.
fn link(loss: f64) -> LinkConfig {
    let mut link = preset("g2")
        .expect("a preset")
        .link_config()
        .expect("a link");
    let loss = match loss > 0.0 {
        true => LossModel::Iid(Ratio::new(loss).expect("a ratio")),
        false => LossModel::None,
    };
    (link.forward_link.loss, link.return_link.loss) = (loss, loss);
    link
}

/// CPU seconds of a download.
fn run(fec: Fec, loss: f64, seed: u64) -> f64 {
    let link = link(loss);
    let wishes = Wishes {
        fec,
        ..Wishes::default()
    };
    let mut world = World::with(&Setup {
        wishes,
        ..Setup::new(&link, seed)
    });
    world.run_until(Duration::from_secs(60), "the handshake", World::is_ready);
    world.timed_download(BYTES / 2);
    world.run_for(Duration::from_secs(5));
    let before = cpu_seconds();
    world.timed_download(BYTES);
    cpu_seconds() - before
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).map_or(0.0, |time| time.as_secs_f64())
}

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    if let [fec, loss, ..] = words.as_slice()
        && let Ok(loss) = loss.parse()
    {
        let fec = if fec == "off" { Fec::Off } else { Fec::Auto };
        println!("{:.2} CPU-s", run(fec, loss, 1));
        return ExitCode::SUCCESS;
    }
    let mut failed = false;
    for (loss, ceiling) in CASES {
        let mut sums = [0.0; 2];
        for seed in 1..=SEEDS {
            let mut least = [f64::INFINITY; 2];
            for _ in 0..ROUNDS {
                for (least, fec) in least.iter_mut().zip([Fec::Off, Fec::Auto]) {
                    *least = least.min(run(fec, loss, seed));
                }
            }
            let [off, auto] = least;
            println!("loss {loss}: off {off:.2} CPU-s, auto {auto:.2}");
            sums = [sums[0] + off, sums[1] + auto];
        }
        let ratio = sums[1] / sums[0];
        println!("loss {loss}: auto / off {ratio:.3}, ceiling {ceiling}");
        failed |= ratio > ceiling;
    }
    match failed {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

//! The relay as a whole, in virtual time: two ends that speak plain TCP, two PEPs, LANs that lose,
//! and a long link that may die.

mod tcp;
mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use bentpipe_segments::Bounds;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use tcp::{Script, State};
use world::{Harm, Hop, Report, Setting};

/// Origin of virtual time.
#[expect(
    clippy::disallowed_methods,
    reason = "any instant will do; all else is virtual"
)]
fn origin() -> Instant {
    Instant::now()
}

/// Setting of a run, drawn from `choose`.
fn setting(choose: &mut dyn FnMut(usize) -> usize) -> Setting {
    let zones = choose(2) == 0;
    let waits = choose(4) == 0;
    let mut script = |waits| {
        let mss = [536, 1000, 1344, 1384][choose(4)];
        let total = match choose(8) {
            0 => 0,
            1..=5 => choose(6_000),
            _ => choose(80_000),
        };
        let slow = choose(4) == 0;
        Script {
            total: total as u64,
            writes: (100 + choose(8_000) as u64, choose(200_000) as u64),
            reads: if slow { (200 + choose(2_000) as u64, 200_000) } else { (100_000, 1_000) },
            room: [2_000, 8_000, 30_000, 65_000, 200_000][choose(5)],
            mss,
            scale: [None, Some(0), Some(2), Some(7)][choose(4)],
            waits,
            byte_probes: choose(2) == 0,
            aborts: (choose(20) == 0).then(|| choose(5_000) as u64),
            keeps_alive: false,
            salt: choose(1 << 30) as u64,
            initial: (choose(1 << 16) << 16 | choose(1 << 16)) as u32,
            zones,
        }
    };
    let mut scripts = [script(false), script(waits)];
    // An RST that is lost leaves a plain connection half open, too.
    let aborts = scripts.iter().any(|script| script.aborts.is_some());
    scripts.iter_mut().for_each(|script| script.keeps_alive = aborts);
    let losses = [0, 0, 1, 10, 50, 150][choose(6)];
    let late = [0, 10, 100][choose(3)];
    let twice = [0, 20][choose(2)];
    let hop = |delay| Hop { delay, lost: losses, late, twice };
    let lans = [hop(500), hop(3_000)];
    let long = hop(130_000);
    let at = choose(4_000_000) as u64;
    Setting {
        scripts,
        lans,
        long,
        stream: (choose(30_000) as u64, [3_000, 16_000, 100_000][choose(3)], [500, 20_000][choose(2)]),
        bounds: Bounds {
            known: 4,
            relayed: 4,
            room: [4_000, 20_000, 100_000][choose(3)],
        },
        notices: [(); 2].map(|()| choose(8_000_000) as u64),
        harm: match choose(8) {
            0 => Harm::NoLink,
            1 => Harm::LinkDies(at),
            2 => Harm::Restart(0, at),
            3 => Harm::Restart(1, at),
            _ => Harm::None,
        },
        renews: choose(2) == 0,
    }
}

/// Setting of this seed, and the choices that follow.
fn drawn(seed: u64) -> (Setting, impl FnMut(usize) -> usize) {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut choose = move |bound: usize| random.next_u64() as usize % bound.max(1);
    (setting(&mut choose), choose)
}

fn run(origin: Instant, seed: u64) -> (Setting, Report) {
    let (setting, mut choose) = drawn(seed);
    let report = world::run(origin, &setting, &mut choose);
    (setting, report)
}

/// Runs a range of seeds; each stream is whole or reset.
fn seeds(range: std::ops::Range<u64>) {
    let origin = origin();
    let mut ways: BTreeMap<(String, String), u32> = BTreeMap::new();
    for seed in range {
        let one = catch_unwind(AssertUnwindSafe(|| run(origin, seed)));
        let (setting, report) = one.unwrap_or_else(|_| panic!("seed {seed}: {:#?}", drawn(seed).0));
        let told = setting.scripts.iter().any(|script| script.aborts.is_some());
        let clean = report.states == [State::Open; 2];
        let calm = matches!(setting.harm, Harm::None | Harm::NoLink) && !told;
        assert!(clean || !calm, "seed {seed}: {report:?} {setting:#?}");
        let gave_up = report.states.contains(&State::TimedOut);
        assert!(!gave_up, "seed {seed}: {report:?} {setting:#?}");
        let harm = match setting.harm {
            Harm::Restart(pep, _) => format!("restart {pep}"),
            Harm::LinkDies(_) => "link dies".to_owned(),
            harm => format!("{harm:?}"),
        };
        let relayed = report.counts.iter().any(|counts| counts.relayed > 0);
        *ways.entry((harm, format!("{:?} {:?} relayed {relayed}", report.states, report.fins))).or_default() += 1;
    }
    println!("{ways:#?}");
}

#[test]
fn a_stream_is_whole_or_reset() {
    seeds(0..2_000);
}

#[test]
#[ignore = "a minute"]
fn a_stream_is_whole_or_reset_in_a_hundred_thousand_runs() {
    seeds(0..100_000);
}

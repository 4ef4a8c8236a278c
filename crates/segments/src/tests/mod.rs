//! The relay as a whole, in virtual time: two ends that speak plain TCP, two PEPs, LANs that lose,
//! and a long link that may die.

mod model;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use model::setting::{Harm, Report, Setting, setting};
use model::tcp::State;
use model::world;

/// Origin of virtual time.
#[expect(
    clippy::disallowed_methods,
    reason = "any instant will do; all else is virtual"
)]
fn origin() -> Instant {
    Instant::now()
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
        if let Some(state) = report.hung {
            panic!("seed {seed} hangs: {setting:#?} {state}");
        }
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
        *ways
            .entry((
                harm,
                format!("{:?} {:?} relayed {relayed}", report.states, report.fins),
            ))
            .or_default() += 1;
    }
    // The model goes all ways, or it would show nothing.
    let went = |harm: &str, way: &str| {
        let all = ways.iter().filter(|((it, _), _)| it == harm);
        all.filter(|((_, it), _)| it == way)
            .map(|(_, times)| times)
            .sum::<u32>()
    };
    for harm in ["None", "link dies", "restart 0", "restart 1"] {
        for way in [
            "[Open, Open] [true, true] relayed true",
            "[Reset, Reset] [false, false] relayed true",
        ] {
            assert!(went(harm, way) > 5, "{harm}: {way}: {ways:#?}");
        }
    }
    assert!(
        went("NoLink", "[Open, Open] [true, true] relayed false") > 50,
        "{ways:#?}"
    );
}

#[test]
fn a_stream_is_whole_or_reset() {
    seeds(0..10_000);
}

/// An end that has heard that all its bytes have arrived, and then resets: the other one has them before it hears of that.
#[test]
fn all_that_was_acknowledged_arrives_before_the_reset() {
    let (origin, mut relayed) = (origin(), 0);
    for seed in 0..2000 {
        let (mut setting, mut choose) = drawn(seed);
        let (one, other) = (seed as usize % 2, 1 - seed as usize % 2);
        setting.harm = Harm::None;
        for script in &mut setting.scripts {
            (script.aborts, script.keeps_alive) = (None, true);
        }
        setting.scripts[one].leaves = true;
        setting.scripts[one].waits = false;
        let report = world::run(origin, &setting, &mut choose);
        assert_eq!(report.hung, None, "seed {seed}: {setting:#?}");
        let whole = report.received[other] == setting.scripts[one].total;
        let reset = report.states == [State::Reset; 2];
        assert!(whole && reset, "seed {seed}: {report:?} {setting:#?}");
        relayed += u32::from(report.counts.iter().all(|counts| counts.relayed > 0));
    }
    assert!(relayed > 1000, "{relayed} were relayed");
}

#[test]
#[ignore = "half a minute"]
fn a_stream_is_whole_or_reset_in_a_hundred_thousand_runs() {
    seeds(0..100_000);
}

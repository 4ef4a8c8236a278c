//! SLE as a whole: both ends through a splitter that does what it likes, and hostile connections at
//! the server.

mod halves;
mod hostile;
mod splitter;

use std::collections::BTreeMap;
use std::time::Instant;

use bentpipe_sealed::sle::Outcome;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Origin of virtual time.
#[expect(
    clippy::disallowed_methods,
    reason = "any instant will do; all else is virtual"
)]
pub(crate) fn origin() -> Instant {
    Instant::now()
}

/// A name for each way in which a flow ends.
fn name(outcome: Option<Outcome>) -> &'static str {
    match outcome {
        None => "not accepted",
        Some(Outcome::Closed) => "closed",
        Some(Outcome::Refused) => "refused",
        Some(Outcome::Aborted(_)) => "aborted",
        Some(Outcome::PeerAborted(_)) => "peer aborted",
        Some(Outcome::Broken(_)) => "broken",
    }
}

#[test]
fn flows_are_whole_or_reset_whatever_the_splitter_does() {
    let now = origin();
    let scale = splitter::Scale {
        steps: 600,
        bits: 17,
    };
    let mut ways: BTreeMap<_, u32> = BTreeMap::new();
    for seed in 0..10_000 {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut choose = |bound: usize| random.next_u64() as usize % bound.max(1);
        let run = std::panic::AssertUnwindSafe(|| splitter::run(now, scale, &mut choose));
        let report = std::panic::catch_unwind(run).unwrap_or_else(|_| panic!("seed {seed}"));
        let ends = (name(Some(report.client)), name(report.server));
        *ways
            .entry((format!("{:?}", report.harm), ends))
            .or_default() += 1;
    }
    // The model goes all ways, or it would show nothing.
    let went = |harm: &str, ends| ways.get(&(harm.to_owned(), ends)).copied().unwrap_or(0);
    for ends in [
        ("closed", "closed"),
        ("refused", "refused"),
        ("aborted", "peer aborted"),
    ] {
        assert!(went("None", ends) > 50, "{ends:?}: {ways:#?}");
    }
    for harm in [
        "Kill", "CutTail", "Flip", "Remove", "Insert", "Repeat", "Exchange",
    ] {
        assert!(went(harm, ("broken", "broken")) > 10, "{harm}: {ways:#?}");
    }
}

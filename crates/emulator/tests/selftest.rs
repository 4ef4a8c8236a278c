//! The quick self-test. What runs in virtual time must hold; what runs on the real clock may find a machine that is too
//! busy to say anything (INVALID), and then says nothing. Needs root; without, it says so and checks nothing.
//!
//! A binary of its own: whatever ran beside it would make rows INVALID that a machine at rest can judge.

use bentpipe_emulator::Stop;
use bentpipe_emulator::selftest::{self, Selection};

#[test]
fn the_quick_self_test_passes() {
    if !bentpipe_testbed::privileged("selftest") {
        return;
    }
    let stop = Stop::new().unwrap();
    let mut table = String::new();
    let mut say = |line: &str| {
        println!("{line}");
        table += line;
        table.push('\n');
        Ok(())
    };
    let quick = Selection {
        quick: true,
        only: None,
    };
    let outcome = selftest::run(&quick, &stop, &mut say);
    let failed: Vec<_> = table
        .lines()
        .filter(|line| line.ends_with("FAIL"))
        .collect();
    assert!(failed.is_empty(), "{outcome:?}\n{}", failed.join("\n"));
    for property in [
        "propagation",
        "queue",
        "rate",
        "loss",
        "determinism",
        "MODCODs",
        "PER",
        "ACM edge",
        "DAMA",
        "OpenSAND",
        "CPU",
    ] {
        assert!(table.contains(property), "{property} is missing:\n{table}");
    }
    assert!(
        table.trim_end().ends_with("invalid"),
        "it came to its end: {outcome:?}"
    );
}

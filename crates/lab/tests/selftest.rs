//! The quick self-test. What runs in virtual time must hold; what runs on the real clock may find a machine that is too
//! busy to say anything (INVALID), and then says nothing. Needs root; without, it says so and checks nothing.

use bentpipe_lab::{Stop, selftest};

#[test]
fn the_quick_self_test_passes() {
    if !bentpipe_sys::privilege::has_net_admin() {
        eprintln!("skipped: needs CAP_NET_ADMIN");
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
    let outcome = selftest::run(true, &stop, &mut say);
    // Medians and tails of the real clock are this machine's as much as the emulator's, and it has other work. Nothing
    // may be early, lost or at another rate, and virtual time has no excuse.
    let excused = |line: &str| line.contains("median error") || line.contains("p99 of errors");
    let failed: Vec<_> = table
        .lines()
        .filter(|line| line.ends_with("FAIL") && !excused(line))
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

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
    assert!(outcome.is_ok(), "{:?}\n{table}", outcome.err());
    for property in ["propagation", "queue", "rate", "loss", "determinism", "CPU"] {
        assert!(table.contains(property), "{property} is missing:\n{table}");
    }
}

//! Every target, the same inputs each time: fast enough for every commit.

use bentpipe_fuzz::{TARGETS, driver};

#[test]
fn every_target() {
    for target in TARGETS {
        driver::run(target, 200_000, 1);
    }
}

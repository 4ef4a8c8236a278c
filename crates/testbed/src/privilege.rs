//! What a machine must have for a test to run: privileges and programs.
//!
//! A test that cannot run says why and checks nothing. Where nothing may be skipped, as in CI, it fails instead.

use std::io::{self, Write as _};
use std::process::Command;

use bentpipe_lab::workload::Chromium;
use bentpipe_sys::privilege;

/// With this variable at `1` a suite that cannot run fails instead of being skipped.
const REQUIRE: &str = "BENTPIPE_REQUIRE_ROOT";

/// Tells whether namespaces can be made here. If not, says why `suite` is skipped, or fails if it must not be.
pub fn privileged(suite: &str) -> bool {
    raise_file_limit();
    privilege::has_net_admin()
        || skip(
            suite,
            "needs root, for namespaces, TUN devices and nftables",
        )
}

/// Raises this process's limit of open files: cases open thousands of sockets, and both ends of each are ours.
pub fn raise_file_limit() {
    // A limit that is too low shows as "too many open files".
    let _ = privilege::raise_nofile();
}

/// Tells whether `program` can be run, as [`privileged`] does.
pub fn installed(suite: &str, program: &str) -> bool {
    let found = Command::new(program).arg("--version").output();
    found.is_ok() || skip(suite, &format!("needs `{program}`"))
}

/// Chromium and what drives it, if they are here. If not, says why `suite` is skipped, or fails if it must not be.
pub fn chromium(suite: &str) -> Option<Chromium> {
    let program = std::env::current_exe().expect("this test");
    match Chromium::find(&program) {
        Ok(found) => Some(found),
        Err(reason) => {
            skip(suite, &reason);
            None
        }
    }
}

/// Tells whether nothing may be skipped, as in CI.
pub fn required() -> bool {
    std::env::var_os(REQUIRE).is_some_and(|value| value == "1")
}

fn skip(suite: &str, reason: &str) -> bool {
    assert!(!required(), "{suite}: {reason}, and {REQUIRE} is 1");
    // Not `eprintln!`, which the test harness keeps to itself when a test passes.
    let line = format!("{suite}: skipped: {reason}\n");
    let _ = io::stderr().write_all(line.as_bytes());
    false
}

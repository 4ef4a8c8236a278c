//! The browser that tests need.

use std::io::{self, Write as _};

use bentpipe_lab::workload::Chromium;

/// Where it is 1, nothing may be skipped.
const REQUIRE: &str = "BENTPIPE_REQUIRE_ROOT";

/// Chromium and what drives it. Without, says why `test` is skipped, or fails if it must not be.
pub(crate) fn chromium(test: &str) -> Option<Chromium> {
    let program = std::env::current_exe().unwrap();
    let reason = match Chromium::find(&program) {
        Ok(found) => return Some(found),
        Err(reason) => reason,
    };
    let required = std::env::var_os(REQUIRE).is_some_and(|value| value == "1");
    assert!(!required, "{test}: {reason}, and {REQUIRE} is 1");
    // Not `eprintln!`, which the test harness keeps to itself when a test passes.
    let line = format!("{test}: skipped: {reason}\n");
    let _ = io::stderr().write_all(line.as_bytes());
    None
}

//! Tests that change their process, or leave threads behind in it.

use std::process::Command;
use std::{env, thread};

/// Variable that the process of one test has.
const ALONE: &str = "BENTPIPE_TEST_ALONE";

/// True in a process that runs the calling test alone. Elsewhere runs one and fails unless the test passes there; there is nothing
/// more to do then.
pub fn in_own_process() -> bool {
    if env::var_os(ALONE).is_some() {
        return true;
    }
    let test = thread::current();
    let name = test.name().expect("the harness names a test's thread");
    let mut child = Command::new(env::current_exe().expect("this test"));
    // With one thread the harness runs it on its own, which has another name.
    child
        .args([name, "--exact", "--test-threads=2"])
        .env(ALONE, "1");
    let output = child.output().expect("this test runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("1 passed"), "{said}");
    false
}

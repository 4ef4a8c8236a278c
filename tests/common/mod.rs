//! What the end-to-end suites share: sites in namespaces, TCP peers, captures and snapshots of the kernel's state.
//!
//! Everything is real: sockets, namespaces, the built binary. Only the satellite is a model.
#![allow(dead_code, reason = "every suite uses its own part of this")]

pub(crate) mod datagrams;
pub(crate) mod echo;
pub(crate) mod edit;
pub(crate) mod keys;
pub(crate) mod moving;
pub(crate) mod peer;
pub(crate) mod proxy;
pub(crate) mod reload;
pub(crate) mod route;
pub(crate) mod second;
pub(crate) mod site;
pub(crate) mod snapshot;
pub(crate) mod start;
pub(crate) mod transfer;

use std::io::{self, Write as _};

use anyhow::{Result, ensure};
use bentpipe_lab::capture::Capture;
use bentpipe_sys::privilege;

/// With this variable at `1` a suite that cannot run fails instead of being skipped.
const REQUIRE: &str = "BENTPIPE_REQUIRE_ROOT";

/// Whether namespaces can be made here. If not, says why the caller is skipped, or fails if it must not be.
pub(crate) fn privileged(suite: &str) -> bool {
    raise_file_limit();
    privilege::has_net_admin()
        || skip(
            suite,
            "needs root, for namespaces, TUN devices and nftables",
        )
}

/// Cases open thousands of sockets, and both ends of each are ours.
pub(crate) fn raise_file_limit() {
    // A limit that is too low shows as "too many open files".
    let _ = privilege::raise_nofile();
}

/// Nothing crossed but the tunnel, not even the kernel's word that a daemon is gone.
pub(crate) fn expect_tunnel_alone(capture: Capture) -> Result<()> {
    let crossed = capture.stop()?;
    crossed.expect_only_tunnel()?;
    ensure!(crossed.tunnel_errors == 0, "crossed the link: {crossed}");
    Ok(())
}

/// Whether `program` can be run, as [`privileged`].
pub(crate) fn installed(suite: &str, program: &str) -> bool {
    let found = std::process::Command::new(program)
        .arg("--version")
        .output();
    found.is_ok() || skip(suite, &format!("needs `{program}`"))
}

/// Whether nothing may be skipped, as in CI.
pub(crate) fn required() -> bool {
    std::env::var_os(REQUIRE).is_some_and(|value| value == "1")
}

fn skip(suite: &str, reason: &str) -> bool {
    assert!(!required(), "{suite}: {reason}, and {REQUIRE} is 1");
    // Not `eprintln!`, which the test harness keeps to itself when a test passes.
    let line = format!("{suite}: skipped: {reason}\n");
    let _ = io::stderr().write_all(line.as_bytes());
    false
}

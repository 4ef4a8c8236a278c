//! Shared by the tests that need a real kernel: skips loudly without privilege, and names namespaces.
//!
//! Every namespace made here is a guard: it goes away with the test, also when the test fails.

use std::sync::atomic::{AtomicU32, Ordering};

use bentpipe_sys::netns::{NetNs, NetNsGuard};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A namespace with a name no other test uses.
pub(crate) fn namespace(role: &str) -> NetNsGuard {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    NetNs::temporary(&format!("bpt-{}-{number}-{role}", std::process::id())).unwrap()
}

/// Says on stderr why a test does nothing, and whether it should.
pub(crate) fn unprivileged(test: &str) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let root = status.lines().any(|line| line.starts_with("Uid:\t0\t"));
    if !root {
        eprintln!("SKIPPED {test}: needs root (network namespaces, nftables)");
    }
    !root
}

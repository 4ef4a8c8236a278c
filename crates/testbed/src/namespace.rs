//! Namespaces of one test.

use std::sync::atomic::{AtomicU32, Ordering};

use bentpipe_sys::netns::{NetNs, NetNsGuard};

/// Makes a namespace with a name that no other test uses; it goes away with its guard, also when the test fails.
pub fn namespace(role: &str) -> NetNsGuard {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("bpt-{}-{number}-{role}", std::process::id());
    NetNs::temporary(&name).expect("a namespace")
}

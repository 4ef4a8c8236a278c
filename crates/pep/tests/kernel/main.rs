//! Crate `sys`, interception and the server's table on a real kernel: routers, LAN hosts and uplinks in namespaces.
//!
//! Each test works in namespaces of its own, so that tests run beside each other. Needs root; without, each says so and
//! checks nothing.
#![cfg(target_os = "linux")]

mod capture;
mod intercept;
mod netns_tun;
mod quiet;

//! What interception and the server's table make of a real kernel: routers, LAN hosts and uplinks in namespaces.
//!
//! Each test works in namespaces of its own, so that tests run beside each other. Needs root; without, each says so and
//! checks nothing.
#![cfg(target_os = "linux")]

mod intercept;
mod quiet;

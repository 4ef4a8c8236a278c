//! What this crate makes of a real kernel: namespaces, devices, captures.
//!
//! Each test works in namespaces of its own, so that tests run beside each other. Needs root; without, each says so and
//! checks nothing.

mod capture;
mod netns_tun;

//! What this crate makes of a real kernel: namespaces, devices, captures, tables of packet filters.
//!
//! Each test works in namespaces of its own, so that tests run beside each other. Needs root; without, each says so and
//! checks nothing.

mod capture;
mod intercept;
mod netns_tun;
mod quiet;

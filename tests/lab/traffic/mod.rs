//! Real traffic over a short satellite link: the workload, and what a capture makes of it.
//!
//! Needs root; without, each test says so and checks nothing.

mod capture;
mod chromium;
mod masque;
mod names;
mod workload;
mod world;

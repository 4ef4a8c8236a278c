//! The emulator: on the real clock, between namespaces, and as a topology. What needs root says so without it.

mod clock;
mod join;
mod topology;

//! Namespaces, links and workloads around the bentpipe binary.
//!
//! Everything that is measured is a process of its own, started like any other contender; this crate never
//! links `bentpipe-pep`. It is a shell: it reads clocks, starts threads and talks to the kernel through `sys`.
//!
//! ```text
//!  fetch                                                                      web
//!    │   ┌───────────── topology: one experiment's namespaces ────────────┐    │
//!    ▼   │                                                                │    ▼
//!  user ─veth─ terminal ─ sat0 ══ emulator (TUN, link model) ══ sat0 ─ gateway ─veth─ web
//!                 ▲         ▲                                     ▲       ▲
//!           bentpipe client └────────────── capture ──────────────┘  bentpipe server
//!        (or any other contender)
//!
//!  experiment (which runs, in which order) ──► runner (one topology per run) ──► results (a line per run)
//! ```
#![expect(
    clippy::disallowed_methods,
    reason = "the lab is a shell: it measures with the machine's clock"
)]

mod awake;
pub mod capture;
pub mod contender;
pub mod demo;
pub mod emulator;
pub mod experiment;
#[cfg(test)]
mod hostile;
pub mod leaks;
pub mod machine;
mod page;
pub mod plot;
pub mod report;
pub mod results;
pub mod runner;
pub mod scenario;
pub mod selftest;
mod stop;
pub mod topology;
pub mod usage;
pub mod workload;

pub use bentpipe_units::{Ratio, TimeSpan};
pub use stop::Stop;

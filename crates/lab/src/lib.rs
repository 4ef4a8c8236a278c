//! Experiments around the bentpipe binary: contenders, workloads, results and reports, over the links of `bentpipe-emulator`.
//!
//! Everything that is measured is a process of its own, started like any other contender; this crate never
//! links `bentpipe-pep`. It is a shell: it reads clocks, starts threads and talks to the kernel through `sys`.
//!
//! ```text
//!  fetch                                                                      web
//!    │   ┌─────── topology of the emulator: one run's namespaces ─────────┐    │
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

pub mod capture;
pub mod contender;
pub mod demo;
pub mod experiment;
#[cfg(test)]
mod hostile;
pub mod leaks;
pub mod report;
pub mod results;
pub mod runner;
pub mod workload;

pub use bentpipe_units::{Ratio, TimeSpan};

//! The satellite link on this machine: the model of `bentpipe-link` on the real clock, between devices, namespaces or interfaces.
//!
//! Whoever wants a link and no proxy needs this crate alone. It is a shell: it reads clocks, starts threads and talks to the
//! kernel through `sys`.
//!
//! ```text
//!  scenario ──► topology: one experiment's namespaces
//!                 user ─veth─ terminal ─ sat0 ══ emulator (TUN, link model) ══ sat0 ─ gateway ─veth─ web
//!                                                 │ records
//!               plot ◄────────────────────────────┘          selftest: the model and the emulator against what is known
//! ```
#![expect(
    clippy::disallowed_methods,
    reason = "the emulator is a shell: it sends by the machine's clock"
)]

mod addresses;
mod awake;
mod emulator;
pub mod machine;
pub mod plot;
mod router;
pub mod scenario;
pub mod selftest;
mod stop;
pub mod topology;
pub mod uplink;
pub mod usage;

pub use awake::Awake;
pub use emulator::*;
pub use router::Router;
pub use stop::Stop;

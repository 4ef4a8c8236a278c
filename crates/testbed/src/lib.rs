//! What tests and benches share: sites in namespaces, daemons on loopback, TCP peers, and whole systems in virtual time.
//!
//! On a site everything is real: sockets, namespaces, the built binary. Only the satellite is a model. In a [`world`] nothing
//! is real but the code: clients, a link and a server share one thread and a time that is an argument.
//!
//! ```text
//!  site     user ─ client ══ emulated satellite ══ server ─ web      daemon   client ══ loopback ══ server
//!  world    apps ─ engine ── model of a link ───── engine ─ origins
//! ```
//!
//! A dependency of tests and benches alone. The path of the binary is an argument, for cargo tells it to the tests of the
//! binary's own package and to nobody else.
#![expect(
    clippy::disallowed_methods,
    reason = "sites and daemons are watched by the machine's clock"
)]

mod captured;
pub mod clients;
pub mod daemon;
pub mod datagrams;
pub mod echo;
pub mod edit;
pub mod failing;
pub mod forged;
pub mod key_holder;
pub mod keys;
pub mod limit;
pub mod memory;
pub mod middle_box;
pub mod moving;
pub mod namespace;
mod own_process;
pub mod peer;
mod privilege;
pub mod proxy;
pub mod reload;
pub mod route;
pub mod second;
pub mod site;
pub mod snapshot;
pub mod start;
pub mod status;
pub mod strace;
pub mod tcp;
pub mod transfer;
pub mod world;

pub use captured::expect_tunnel_alone;
pub use own_process::in_own_process;
pub use privilege::{chromium, installed, privileged, raise_file_limit, required};

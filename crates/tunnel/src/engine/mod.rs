//! The engine: quinn-proto driven by our own loop.
//!
//! ```text
//!   UDP socket ─► pep/shard ─► Engine ─► Connection ─► quinn-proto ─► Tunnel ─► relay ─► LAN socket
//!   UDP socket ◄─ pep/shard ◄─ Engine ◄─ pacer, gate ◄─ quinn-proto ◄─ Lane::write ◄─ LAN socket
//! ```
//!
//! [`Engine`] and everything below it take `now` as an argument and own no socket: a client, a link
//! model and a server run in virtual time in one thread. The shard of crate `pep` gives them a real socket.

mod ack_demand;
mod arrival;
mod cid;
mod connection;
mod endpoint;
mod gate;
mod handshake_copies;
mod handshakes;
pub mod identity;
mod ledger;
mod lone_copies;
mod placement;
mod prober;
mod profile;
mod reliable;
mod settings;
mod totals;
mod train;
mod trial;
pub(crate) mod tuning;

pub use arrival::{Arrival, Routed};
pub use cid::{Addressee, SERVER_CID, addressee};
pub use connection::{Connection, ConnectionNotice, FirstWords, Unreachable, UnreachableCause};
pub use endpoint::{ConnectionId, Engine, EngineConfig, Event, Output, ServerSetup, Tracer};
pub(crate) use endpoint::{Timers, is_initial};
pub use gate::LEAST_MTU;
pub use handshakes::{Handshakes, Verdict};
pub use ledger::{Account, Ledger};
pub use placement::Placement;
pub use profile::{AckPolicy, Link, MAX_ACK_PACKETS, Profile};
pub use reliable::{WireUse, is_over_tcp, over_tcp};
pub use settings::{MAX_INITIAL_WINDOW, Wishes, headers};
pub use totals::Totals;
pub use trial::{HandshakeTrial, TrialOutcome};

/// Fills `bytes` from the operating system's random source.
pub fn random(bytes: &mut [u8]) {
    // The only way this fails is a kernel without random numbers; nothing can be encrypted then.
    aws_lc_rs::rand::fill(bytes).expect("the operating system provides random numbers");
}

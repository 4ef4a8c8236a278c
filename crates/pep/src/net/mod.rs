//! Hosts beyond the tunnel: which of them may be reached, under which names, and the sockets that lead there.
//!
//! ```text
//!   destination ─► resolver.rs ─► addresses ─► judge.rs ─► dial.rs ─► socket
//!                  names.rs                    policy.rs
//!                  nat64.rs
//!   listen.rs ─► sockets of hosts that ask ─► strangers.rs
//! ```
//!
//! The server dials what clients ask for; a client dials what goes past the tunnel, and what is published by it.

pub(crate) mod answering;
pub(crate) mod datagrams;
pub(crate) mod dial;
pub(crate) mod judge;
pub(crate) mod listen;
pub(crate) mod lookup;
pub(crate) mod names;
pub(crate) mod nat64;
pub(crate) mod policy;
pub(crate) mod prefix;
mod race;
pub(crate) mod resolver;
pub(crate) mod sockets;
pub(crate) mod strangers;

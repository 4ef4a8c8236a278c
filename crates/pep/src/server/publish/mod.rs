//! Parts of published ports: a session's list of them, their sockets, and the lead of UDP ports in
//! the kernel. `publishing.rs` puts them together.

mod lead;
mod ports;
mod sockets;

pub(super) use lead::Leading;
pub(super) use ports::{Ports, protocol_of};
pub(super) use sockets::{Listeners, claim};

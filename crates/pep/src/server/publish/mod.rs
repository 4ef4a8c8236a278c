//! Published ports of one session: the list, their TCP listeners, and the kernel rules that lead UDP ports to the LAN.
//! `publishing.rs` puts them together.

mod lead;
mod ports;
mod sockets;

pub(super) use lead::Leading;
pub(super) use ports::{Ports, protocol_of};
pub(super) use sockets::{Listeners, claim};

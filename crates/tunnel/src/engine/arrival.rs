//! Datagrams on their way to an engine.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use bytes::BytesMut;
use quinn_proto::EcnCodepoint;
use zeroize::Zeroize as _;

/// A UDP datagram from the network.
#[derive(Debug)]
pub struct Arrival {
    /// Instant at which the kernel had it: earlier than it is read.
    pub at: Instant,
    /// Address that sent it.
    pub remote: SocketAddr,
    /// The address it was sent to, where that is known.
    pub local: Option<IpAddr>,
    /// The ECN field of its IP header.
    pub ecn: Option<EcnCodepoint>,
    /// Payload of the datagram.
    pub data: BytesMut,
}

/// A datagram on its way to the engine that it is for.
#[derive(Debug)]
pub struct Routed {
    /// The datagram.
    pub arrival: Arrival,
    /// The datagram would begin a connection, and its source was judged: not to be judged again.
    pub judged: bool,
}

/// Memory of a datagram that quinn is given. It decrypts in place, and frees what it does not hand on, such as the copies of a
/// client's HELLO, as it is; and random bytes of a key are in that.
pub(super) struct DatagramMemory {
    /// Nothing of the datagram: a hold on its memory.
    hold: BytesMut,
    size: usize,
}

impl DatagramMemory {
    /// Memory of `data`.
    pub(super) fn of(data: &mut BytesMut) -> Self {
        let size = data.len();
        let hold = data.split_off(size);
        Self { hold, size }
    }

    /// Wipes the datagram, unless a part of it is held.
    pub(super) fn wipe(mut self) {
        if self.hold.try_reclaim(self.size) {
            self.hold.resize(self.size, 0);
            self.hold.zeroize();
        }
    }
}

/// Properties of a datagram that came.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    /// "Congestion experienced".
    pub(super) marked: bool,
    /// An Initial packet comes first in it: anybody on the path can make one.
    pub(super) initial: bool,
}

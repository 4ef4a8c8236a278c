//! What crosses the shared link, and the delay between it and a terminal.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use crate::tcp::{self, Ack, Segment};
use bentpipe_units::ByteCount;
use bytes::BytesMut;
use quinn_proto::EcnCodepoint;

/// IPv4 and UDP headers: the link counts IP packets.
const HEADERS: usize = 28;

/// A datagram on the link.
pub struct Datagram {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) ecn: Option<EcnCodepoint>,
    pub(super) data: BytesMut,
}

/// An IP packet on the link.
pub enum Packet {
    /// Datagram of a tunnel.
    Tunnel(Datagram),
    /// Of a competitor, by its number.
    Segment(usize, Segment),
    /// Acknowledgement for a competitor, by its number.
    Ack(usize, Ack),
}

impl Packet {
    /// Size of the packet as the link counts it.
    pub(super) fn size(&self) -> ByteCount {
        match self {
            Self::Tunnel(datagram) => ByteCount::from_usize(datagram.data.len() + HEADERS),
            Self::Segment(..) => tcp::SEGMENT,
            Self::Ack(..) => tcp::ACK,
        }
    }

    /// Sets "congestion experienced"; false if the packet may not carry it.
    pub fn mark(&mut self) -> bool {
        match self {
            Self::Tunnel(datagram) => {
                let able = datagram.ecn.is_some();
                datagram.ecn = datagram.ecn.map(|_| EcnCodepoint::Ce);
                able
            }
            Self::Segment(_, segment) => {
                segment.marked |= segment.ecn;
                segment.ecn
            }
            Self::Ack(..) => false,
        }
    }
}

/// The packets of one batch.
pub(super) fn packets<'a>(
    from: SocketAddr,
    output: &'a quinn_proto::Transmit,
    bytes: &'a [u8],
) -> impl Iterator<Item = Packet> + 'a {
    let segment = output.segment_size.unwrap_or(output.size);
    bytes[..output.size].chunks(segment).map(move |data| {
        Packet::Tunnel(Datagram {
            from,
            to: output.destination,
            ecn: output.ecn,
            data: data.into(),
        })
    })
}

/// Direction of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Towards {
    /// Over the return link.
    Server,
    /// Over the forward link.
    Terminals,
}

/// Packets between the link and the terminals, in the order of their arrival.
#[derive(Default)]
pub(super) struct Access {
    pending: BTreeMap<(Instant, u64), (Towards, Packet)>,
    count: u64,
}

impl Access {
    pub(super) fn push(&mut self, due: Instant, towards: Towards, packet: Packet) {
        self.count += 1;
        self.pending.insert((due, self.count), (towards, packet));
    }

    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(Towards, Packet)> {
        let first = self.pending.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.pending.first_key_value().map(|((due, _), _)| *due)
    }
}

/// Packets that one side offered to the link.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sent {
    /// Number of packets.
    pub packets: u64,
    /// Bytes of them all, with their IP headers.
    pub bytes: u64,
    /// The largest packet.
    pub largest: u64,
    /// Packets that the forward link's queue or policer turned away as they came.
    pub dropped: u64,
}

impl Sent {
    pub(super) fn count(&mut self, size: ByteCount) {
        self.packets += 1;
        self.bytes += size.as_u64();
        self.largest = self.largest.max(size.as_u64());
    }
}

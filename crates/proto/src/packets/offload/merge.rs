//! Packets for the kernel, in as few pieces as it takes.
//!
//! A packet joins an earlier one of its flow if the kernel, which cuts the piece again, makes the same packet of it: the
//! headers differ in nothing but lengths and the number, all but the last have the same size, and their checksums are right
//! (the kernel computes new ones; what was damaged must stay so). Packets of one flow keep their order.

use bytes::Bytes;

use super::{
    DATAGRAMS, LARGEST, NEEDS_CHECKSUM, PREFIX, Prefix, UDP_CHECKSUM, UDP_HEAD, put, set_lengths,
    short,
};
use crate::packets::Header;
use crate::packets::build::{Pair, checksum, is_intact};
use crate::packets::ip::UDP;

/// Packets in one piece: as many as Linux takes from a socket at once, which devices behind it are made for.
const MOST: usize = 64;

/// Pieces that a packet may still join, the newest ones: as many flows may take turns.
const OPEN: usize = 8;

/// Packets of one batch for a device, in the order of their first packets.
#[derive(Debug)]
pub struct Merger {
    merges: bool,
    pieces: Vec<Piece>,
}

impl Merger {
    /// A merger, which leaves every packet alone unless `merges`, for kernels that take no others.
    #[must_use]
    pub const fn new(merges: bool) -> Self {
        let pieces = Vec::new();
        Self { merges, pieces }
    }

    /// The next packet.
    pub fn push(&mut self, packet: Bytes) {
        let datagram = self.merges.then(|| Mergeable::of(&packet)).flatten();
        if let Some(datagram) = &datagram {
            // Nothing passes a packet that cannot be merged: it may be of the same flow.
            let recent = self.pieces.iter_mut().rev().take(OPEN);
            let mut open = recent.take_while(|piece| piece.datagram.is_some());
            let flow = datagram.flow(&packet);
            if let Some(piece) = open.find(|piece| piece.is_of(flow))
                && piece.takes(&packet, datagram)
            {
                piece.length += datagram.content(&packet).len();
                return piece.rest.push(packet);
            }
        }
        self.pieces.push(Piece {
            length: packet.len(),
            first: packet,
            rest: Vec::new(),
            datagram,
            intact: false,
        });
    }

    /// Pieces to write, a write for each.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }
}

/// One packet or several of one flow, for one write.
#[derive(Debug)]
pub struct Piece {
    first: Bytes,
    rest: Vec<Bytes>,
    /// The first packet, if others may join it.
    datagram: Option<Mergeable>,
    /// The first packet's checksums are known to be right.
    intact: bool,
    /// Length of the piece as one packet, in bytes.
    length: usize,
}

impl Piece {
    /// Bytes to write before [`Self::contents`]: the prefix, and the headers that packets of one piece share.
    #[must_use]
    pub fn head(&self) -> Vec<u8> {
        let Some(datagram) = self.datagram.as_ref().filter(|_| !self.rest.is_empty()) else {
            return vec![0; PREFIX];
        };
        let Mergeable { header, pair } = datagram;
        let prefix = Prefix {
            flags: NEEDS_CHECKSUM,
            kind: DATAGRAMS,
            heads: short(datagram.heads()),
            size: short(datagram.content(&self.first).len()),
            start: short(header.offset),
            place: short(UDP_CHECKSUM),
        };
        let mut head = prefix.bytes().to_vec();
        head.extend_from_slice(&self.first[..datagram.heads()]);
        let packet = &mut head[PREFIX..];
        set_lengths(packet, header, self.length, 0);
        let sum = !checksum(pair.sum(UDP, self.length - header.offset), &[]);
        put(packet, header.offset + UDP_CHECKSUM, sum);
        head
    }

    /// Bytes to write behind [`Self::head`], in order.
    pub fn contents(&self) -> impl Iterator<Item = &[u8]> {
        let shared = self.datagram.as_ref().filter(|_| !self.rest.is_empty());
        let from = shared.map_or(0, Mergeable::heads);
        let packets = std::iter::once(&self.first).chain(&self.rest);
        packets.map(move |packet| &packet[from..])
    }

    fn is_of(&self, flow: &[u8]) -> bool {
        let datagram = self.datagram.as_ref();
        datagram.is_some_and(|datagram| datagram.flow(&self.first) == flow)
    }

    /// Whether `packet`, which is of the same flow, may join.
    fn takes(&mut self, packet: &Bytes, datagram: &Mergeable) -> bool {
        let Some(own) = &self.datagram else {
            return false;
        };
        let size = own.content(&self.first).len();
        let last = self.rest.last().unwrap_or(&self.first);
        let content = datagram.content(packet).len();
        let number = 1 + self.rest.len();
        let fits = number < MOST
            && self.length + content <= LARGEST
            && own.content(last).len() == size
            && content <= size
            && own.is_like(&self.first, packet, number);
        if !fits {
            return false;
        }
        self.intact = self.intact || own.is_intact(&self.first);
        self.intact && datagram.is_intact(packet)
    }
}

/// A whole UDP packet without options or extension headers, with content and a checksum.
#[derive(Clone, Copy, Debug)]
struct Mergeable {
    header: Header,
    pair: Pair,
}

impl Mergeable {
    fn of(packet: &[u8]) -> Option<Self> {
        let header = Header::parse(packet)?;
        let plain = if header.source.is_ipv4() { 20 } else { 40 };
        let &[_, _, _, _, a, b, c, d] = packet.get(header.offset..)?.first_chunk::<UDP_HEAD>()?;
        let length = usize::from(u16::from_be_bytes([a, b]));
        let merges = header.protocol == UDP
            && !header.fragment
            && header.offset == plain
            && length == packet.len() - plain
            && length > UDP_HEAD
            && [c, d] != [0, 0];
        let pair = Pair::new(header.source, header.destination)?;
        merges.then_some(Self { header, pair })
    }

    const fn heads(&self) -> usize {
        self.header.offset + UDP_HEAD
    }

    fn content<'a>(&self, packet: &'a [u8]) -> &'a [u8] {
        &packet[self.heads()..]
    }

    /// Addresses and ports, as they stand in the packet.
    fn flow<'a>(&self, packet: &'a [u8]) -> &'a [u8] {
        let from = if self.header.source.is_ipv4() { 12 } else { 8 };
        &packet[from..self.header.offset + 4]
    }

    /// Whether `packet`, of the same flow, has the headers that the kernel gives packet `number` of a piece that begins with `first`.
    fn is_like(&self, first: &[u8], packet: &[u8], number: usize) -> bool {
        if self.header.source.is_ipv6() {
            // Traffic class and flow label; hops.
            return first[..4] == packet[..4] && first[7] == packet[7];
        }
        let id = |packet: &[u8]| u16::from_be_bytes([packet[4], packet[5]]);
        // The number means nothing in a packet that may not be cut (RFC 6864).
        let whole = self.header.is_whole(first);
        let follows = whole || id(first).wrapping_add(short(number)) == id(packet);
        // Traffic class; flags, hops, protocol.
        first[..2] == packet[..2] && first[6..10] == packet[6..10] && follows
    }

    fn is_intact(&self, packet: &[u8]) -> bool {
        is_intact(packet, &self.header, packet.len(), false)
    }
}

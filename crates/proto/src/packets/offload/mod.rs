//! Several UDP packets of one flow in one piece, as Linux hands them to a TUN device's owner and takes them from it.
//!
//! ```text
//!   kernel ─► [prefix][IP, UDP][content of packets 1 to n] ─► split ─► n packets      of one read
//!   kernel ◄─ [prefix][IP, UDP][content of packets 1 to n] ◄─ Merger ◄─ n packets     in one write
//! ```
//!
//! A system call, and the kernel's way through routes and rules, is then paid once for all of them. Queues, limits and
//! filters see single packets all the same. What stands before the packet is Linux' `struct virtio_net_hdr`.

mod merge;
mod split;

use super::Header;
use super::build::checksum;

pub use merge::{Merger, Piece};
pub use split::{Mismatch, split};

/// Length of what stands before a packet.
pub const PREFIX: usize = 10;

/// The largest packet, in one piece with others: lengths in IP and UDP headers have 16 bits.
pub const LARGEST: usize = 65_535;

/// A flag: the transport's checksum is that of the pseudo-header alone, and whoever cuts the packet computes the rest.
const NEEDS_CHECKSUM: u8 = 1;

/// One packet, and not several (`VIRTIO_NET_HDR_GSO_NONE`).
const ONE: u8 = 0;

/// Datagrams, each of which becomes a packet (`VIRTIO_NET_HDR_GSO_UDP_L4`).
const DATAGRAMS: u8 = 5;

/// Length of a UDP header, and where its checksum stands.
const UDP_HEAD: usize = 8;
const UDP_CHECKSUM: usize = 6;

/// `struct virtio_net_hdr`, in the machine's byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Prefix {
    flags: u8,
    kind: u8,
    /// Length of the headers, IP's and the transport's.
    heads: u16,
    /// Bytes of content in each packet but the last.
    size: u16,
    /// First of the bytes that the checksum is of; the checksum stands `place` behind it.
    start: u16,
    place: u16,
}

impl Prefix {
    fn read(bytes: [u8; PREFIX]) -> Self {
        let [flags, kind, words @ ..] = bytes;
        let word = |at: usize| u16::from_ne_bytes([words[at], words[at + 1]]);
        Self {
            flags,
            kind,
            heads: word(0),
            size: word(2),
            start: word(4),
            place: word(6),
        }
    }

    fn bytes(self) -> [u8; PREFIX] {
        let mut bytes = [self.flags, self.kind, 0, 0, 0, 0, 0, 0, 0, 0];
        let words = [self.heads, self.size, self.start, self.place];
        for (place, word) in bytes[2..].chunks_mut(2).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

/// Sets the lengths of a UDP packet's headers, whose number is `number` more than what stands there, to its own.
fn set_lengths(packet: &mut [u8], header: &Header, length: usize, number: usize) {
    if header.source.is_ipv4() {
        put(packet, 2, short(length));
        let id = u16::from_be_bytes([packet[4], packet[5]]);
        // Numbers of packets go round.
        put(packet, 4, id.wrapping_add(short(number)));
        put(packet, 10, 0);
        let sum = checksum(0, &packet[..header.offset]);
        put(packet, 10, sum);
    } else {
        put(packet, 4, short(length - 40));
    }
    put(packet, header.offset + 4, short(length - header.offset));
}

fn put(packet: &mut [u8], at: usize, word: u16) {
    packet[at..at + 2].copy_from_slice(&word.to_be_bytes());
}

/// A length, none of which is larger than [`LARGEST`] here.
fn short(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests;

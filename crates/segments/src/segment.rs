//! Segments as a PEP reads and writes them: the fields of their headers, and payload that stays
//! closed.

use std::ops::{BitAnd, BitOr};

use bytes::Bytes;

/// Flags and reserved bits of a TCP header: its bytes 12 and 13 without the data offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u16);

impl Flags {
    /// The sender has said all.
    pub const FIN: Self = Self(0x001);
    /// The first segment of a direction.
    pub const SYN: Self = Self(0x002);
    /// The connection is aborted.
    pub const RST: Self = Self(0x004);
    /// The receiver is not to wait for more.
    pub const PSH: Self = Self(0x008);
    /// The acknowledgement number counts.
    pub const ACK: Self = Self(0x010);
    /// The urgent pointer counts.
    pub const URG: Self = Self(0x020);
    /// ECE, CWR and AE, with which a SYN-ACK agrees to ECN (RFC 3168, RFC 9768).
    pub const ECN: Self = Self(0x1c0);
    /// Bits that have no meaning yet, and belong to the payload in LES.
    pub const RESERVED: Self = Self(0xe00);
    /// Flags that travel with a blob.
    pub const OF_BLOB: Self = Self(0xe29);

    /// Flags with these 12 bits.
    #[must_use]
    pub const fn new(bits: u16) -> Self {
        Self(bits & 0xfff)
    }

    /// The 12 bits.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Says whether any of these flags is set.
    #[must_use]
    pub const fn has(self, any: Self) -> bool {
        self.0 & any.0 != 0
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Flags {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// Options of a SYN or SYN-ACK, as far as they decide whether a PEP may step in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SynOptions {
    /// Largest segment that its sender takes, bytes (RFC 9293 §3.7.1).
    pub largest: Option<u16>,
    /// Shift of its sender's later windows (RFC 7323 §2).
    pub scale: Option<u8>,
    /// An option that a PEP cannot keep is there: timestamps, MPTCP, authentication, or one that is
    /// unknown.
    pub foreign: bool,
}

/// TCP segment: the fields of its header, and its payload as one closed piece.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Sequence number.
    pub number: u32,
    /// Acknowledgement number; counts if the flag ACK is set.
    pub acknowledgement: u32,
    /// Window as in the header, not scaled.
    pub window: u16,
    /// Flags and reserved bits.
    pub flags: Flags,
    /// Urgent pointer; counts if the flag URG is set.
    pub urgent: u16,
    /// Length of the payload, bytes.
    pub length: u16,
    /// Payload, or the zone of LES that holds it.
    pub zone: Bytes,
    /// Options, if the segment is a SYN.
    pub options: SynOptions,
}

impl Segment {
    /// Sequence numbers that the segment takes: bytes, SYN and FIN.
    #[must_use]
    pub fn span(&self) -> u64 {
        let ends = [Flags::SYN, Flags::FIN].map(|flag| u64::from(self.flags.has(flag)));
        u64::from(self.length) + ends[0] + ends[1]
    }

    /// Part of the segment that a PEP keeps; without bytes and FIN there is none.
    #[must_use]
    pub fn blob(&self) -> Option<Blob> {
        let blob = Blob {
            flags: self.flags & Flags::OF_BLOB,
            urgent: self.urgent,
            length: self.length,
            zone: self.zone.clone(),
        };
        (blob.span() > 0).then_some(blob)
    }
}

/// Payload of one segment as it came, with what belongs to it: never cut, never merged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blob {
    /// FIN, PSH, URG and reserved bits.
    pub flags: Flags,
    /// Urgent pointer.
    pub urgent: u16,
    /// Length of the payload, bytes.
    pub length: u16,
    /// Payload, or the zone of LES that holds it.
    pub zone: Bytes,
}

impl Blob {
    /// Bookkeeping that one held blob costs beside its bytes, in bytes.
    const COST: usize = 160;

    /// Sequence numbers that the blob takes: bytes and FIN.
    #[must_use]
    pub fn span(&self) -> u64 {
        u64::from(self.length) + u64::from(self.ends())
    }

    /// Says whether the blob ends its direction.
    #[must_use]
    pub fn ends(&self) -> bool {
        self.flags.has(Flags::FIN)
    }

    /// Memory that the blob takes, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.zone.len() + Self::COST
    }
}

/// Sequence numbers of one direction, as offsets that do not wrap: its SYN has 0, its first byte 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    initial: u32,
}

impl Numbers {
    /// Numbers of a direction whose SYN had the number `initial`.
    pub(crate) const fn new(initial: u32) -> Self {
        Self { initial }
    }

    /// Number of the SYN.
    pub(crate) const fn initial(self) -> u32 {
        self.initial
    }

    /// Number of the byte at `offset`.
    pub(crate) const fn number(self, offset: u64) -> u32 {
        self.initial.wrapping_add(offset as u32)
    }

    /// Offset of `number`: of all that it may stand for, the one next to `near`. `None`: that is
    /// before the SYN.
    pub(crate) fn offset(self, number: u32, near: u64) -> Option<u64> {
        let distance = number.wrapping_sub(self.number(near)).cast_signed();
        near.checked_add_signed(distance.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_do_not_wrap() {
        let numbers = Numbers::new(0xffff_fff0);
        assert_eq!(numbers.number(0x20), 0x10);
        assert_eq!(numbers.offset(0x10, 1), Some(0x20));
        assert_eq!(numbers.offset(0xffff_ffef, 1), None);
        let far = 5 << 32;
        for offset in [far - 0x7fff_ffff, far, far + 0x7fff_ffff] {
            assert_eq!(numbers.offset(numbers.number(offset), far), Some(offset));
        }
    }

    #[test]
    fn a_blob_has_what_belongs_to_its_payload() {
        let segment = Segment {
            flags: Flags::new(0xfff),
            length: 3,
            zone: Bytes::from_static(b"abc"),
            ..Segment::default()
        };
        assert_eq!(segment.span(), 5);
        let blob = segment.blob().expect("three bytes");
        assert_eq!((blob.span(), blob.flags.bits()), (4, 0xe29));
        let ack = Segment {
            flags: Flags::ACK,
            zone: Bytes::from_static(b"sealed, but empty"),
            ..Segment::default()
        };
        assert_eq!(ack.blob(), None);
    }
}

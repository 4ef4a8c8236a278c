//! What encapsulation adds to packets and takes from frames.
//!
//! Accounting only: packets are cut as an encapsulator would cut them, but no header is written.

use crate::frame::Remaining;
use crate::rcs2::Rle;

/// Way in which packets are put into frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encapsulation {
    Gse(Gse),
    Rle(Rle),
}

impl Encapsulation {
    /// A packet of so many IP bytes, of which nothing has been sent.
    pub(crate) const fn packet(&self, size: u32) -> Remaining {
        match self {
            Self::Gse(gse) => gse.packet(size),
            Self::Rle(rle) => rle.packet(size),
        }
    }

    /// Puts as much of a packet into `space` bytes as one piece can take; says how many bytes it took, and what remains.
    pub(crate) fn fill(&self, space: u32, packet: Remaining) -> (u32, Option<Remaining>) {
        match self {
            Self::Gse(gse) => gse.fill(space, packet),
            Self::Rle(rle) => rle.fill(space, packet),
        }
    }

    /// About how many bytes of frames with this payload so many bytes in so many packets take.
    pub(crate) fn estimate(&self, bytes: u64, packets: u64, payload: u32) -> u64 {
        match self {
            Self::Gse(_) => bytes,
            Self::Rle(rle) => rle.estimate(bytes, packets, payload),
        }
    }
}

/// GSE (TS 102 606-1): one PDU is one GSE packet, or several fragments, of which the last carries a CRC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gse {
    /// Of the receiver: 6, 3 or 0 bytes.
    pub(crate) label: u32,
    /// Of layer 2 carried along: 14 for Ethernet, else 0.
    pub(crate) l2_header: u32,
}

/// Start, end and label-type indicators, and the GSE length.
const FIXED: u32 = 2;
const PROTOCOL_TYPE: u32 = 2;
const FRAGMENT_ID: u32 = 1;
const TOTAL_LENGTH: u32 = 2;
const CRC: u32 = 4;
/// The length field has twelve bits and does not count the two bytes that it ends.
const LONGEST: u32 = 4095 + FIXED;

impl Gse {
    /// A packet of so many IP bytes, of which nothing has been sent.
    pub(crate) const fn packet(&self, size: u32) -> Remaining {
        Remaining {
            bytes: size.saturating_add(self.l2_header),
            begun: false,
        }
    }

    /// Puts as much of a packet into `space` bytes as one GSE packet can take; says how many bytes it took, and what
    /// remains. Takes nothing where not one byte of the packet would fit.
    pub(crate) fn fill(&self, space: u32, packet: Remaining) -> (u32, Option<Remaining>) {
        let space = space.min(LONGEST);
        let (whole, header) = if packet.begun {
            let header = FIXED + FRAGMENT_ID;
            (header + CRC, header)
        } else {
            let header = FIXED + PROTOCOL_TYPE + self.label;
            (header, header + FRAGMENT_ID + TOTAL_LENGTH)
        };
        if packet.bytes.saturating_add(whole) <= space {
            return (packet.bytes + whole, None);
        }
        packet.cut(space, header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GSE: Gse = Gse {
        label: 6,
        l2_header: 0,
    };

    #[test]
    fn headers_are_those_of_the_standard() {
        assert_eq!(GSE.fill(7264, GSE.packet(1400)), (1410, None));
        let short = Gse { label: 3, ..GSE };
        assert_eq!(short.fill(7264, short.packet(1400)), (1407, None));
        let ethernet = Gse {
            l2_header: 14,
            ..GSE
        };
        assert_eq!(ethernet.fill(7264, ethernet.packet(1428)), (1452, None));
        // 13 for the first fragment, 3 for one in the middle, 3 and the CRC for the last.
        let (taken, rest) = GSE.fill(500, GSE.packet(1400));
        let rest = rest.unwrap();
        assert_eq!((taken, rest.bytes), (500, 1400 - 487));
        let (taken, rest) = GSE.fill(500, rest);
        let rest = rest.unwrap();
        assert_eq!((taken, rest.bytes), (500, 913 - 497));
        assert_eq!(GSE.fill(500, rest), (416 + 7, None));
    }

    #[test]
    fn narrow_places() {
        // 13 bytes of header and nothing else would be no fragment.
        assert_eq!(GSE.fill(13, GSE.packet(100)).0, 0);
        assert_eq!(GSE.fill(14, GSE.packet(100)).0, 14);
        assert_eq!(GSE.fill(110, GSE.packet(100)), (110, None));
        let rest = Remaining {
            bytes: 10,
            begun: true,
        };
        assert_eq!(GSE.fill(17, rest), (17, None));
        // The packet would fit but not its CRC: one byte waits for it.
        assert_eq!(GSE.fill(16, rest).1.map(|rest| rest.bytes), Some(1));
        assert_eq!(GSE.fill(3, rest).0, 0);
    }

    #[test]
    fn a_long_packet_is_cut_even_where_there_is_space() {
        let mut rest = Some(GSE.packet(65_535));
        let mut taken = Vec::new();
        while let Some(packet) = rest {
            let (bytes, next) = GSE.fill(1_000_000, packet);
            taken.push(bytes);
            rest = next;
        }
        assert_eq!(taken.len(), 17);
        let overhead = 13 + 15 * 3 + 7;
        assert_eq!(taken.iter().sum::<u32>(), 65_535 + overhead);
        assert!(taken.iter().all(|bytes| *bytes <= 4097));
    }
}

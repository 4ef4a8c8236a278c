//! What the return link encapsulation (RLE, EN 301 545-2 §7.1) adds to packets and takes from bursts.
//!
//! Accounting only: packets are cut into fragments that fill the payloads of bursts, byte by byte as a modem would, but
//! no header is ever written. A burst carries the terminal's label once. A packet that fits whole is one PPDU with a
//! short header; one that does not has a longer header on its first fragment and a sequence number or CRC after its last.

use crate::frame::Remaining;

/// Header of a PPDU that holds a whole packet, or goes on with one.
const SHORT_HEADER: u32 = 2;
/// Header of a packet's first fragment: the packet's length besides.
const START_HEADER: u32 = 4;
/// The protocol type of the packet.
const TYPE: u32 = 2;

/// Way in which packets are put into bursts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rle {
    /// At the beginning of each burst: 3 where the slot does not already say whose it is.
    pub(crate) label: u32,
    /// Behind the last fragment of a packet: 1 for a sequence number, 4 for a CRC.
    pub(crate) protection: u32,
    /// Of layer 2 carried along: 14 for Ethernet, else 0.
    pub(crate) l2_header: u32,
}

impl Rle {
    /// A packet of so many IP bytes that nothing has been sent of.
    pub(crate) const fn packet(&self, size: u32) -> Remaining {
        Remaining {
            bytes: size.saturating_add(TYPE + self.l2_header),
            begun: false,
        }
    }

    /// The bytes that a burst of this payload offers to PPDUs.
    pub(crate) const fn space(&self, payload: u32) -> u32 {
        payload.saturating_sub(self.label)
    }

    /// Puts as much of a packet into `space` bytes as fits, and says how many it took and what remains; `None` when it
    /// is all in. Takes nothing where not even a fragment of one byte fits.
    pub(crate) fn fill(&self, space: u32, packet: Remaining) -> (u32, Option<Remaining>) {
        let whole = SHORT_HEADER + packet.bytes + if packet.begun { self.protection } else { 0 };
        if whole <= space {
            return (whole, None);
        }
        let header = if packet.begun {
            SHORT_HEADER
        } else {
            START_HEADER
        };
        packet.cut(space, header)
    }

    /// About how many bytes of bursts a queue of this many bytes in this many packets will take: what a terminal asks
    /// capacity for.
    pub(crate) fn estimate(&self, bytes: u64, packets: u64, payload: u32) -> u64 {
        let per_packet = SHORT_HEADER + TYPE + self.l2_header + self.protection;
        let bytes = bytes + packets * u64::from(per_packet);
        let useful = u64::from(self.space(payload).saturating_sub(SHORT_HEADER).max(1));
        bytes.div_ceil(useful) * u64::from(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RLE: Rle = Rle {
        label: 3,
        protection: 1,
        l2_header: 0,
    };

    /// Bursts of `payload` bytes that one packet takes, and the bytes that it takes in them.
    fn bursts(rle: Rle, payload: u32, size: u32) -> (u32, u32) {
        let mut packet = Some(rle.packet(size));
        let (mut count, mut bytes) = (0, 0);
        while let Some(rest) = packet {
            let (taken, next) = rle.fill(rle.space(payload), rest);
            assert!(taken > 0);
            (count, bytes, packet) = (count + 1, bytes + taken, next);
        }
        (count, bytes)
    }

    #[test]
    fn overhead_is_headers_type_and_protection() {
        // Whole: header 2, type 2.
        assert_eq!(bursts(RLE, 194, 187), (1, 191));
        // One more byte: first fragment 4, last fragment 2 and 1, type 2.
        assert_eq!(bursts(RLE, 194, 188), (2, 197));
        // 1502 bytes in 187 and then 189s (the last with one less, for the sequence number): 8 bursts.
        assert_eq!(bursts(RLE, 194, 1500), (8, 1502 + 4 + 7 * 2 + 1));
        let crc = Rle {
            protection: 4,
            l2_header: 14,
            ..RLE
        };
        assert_eq!(bursts(crc, 599, 1500), (3, 1516 + 4 + 2 * 2 + 4));
    }

    #[test]
    fn small_space_is_left_alone() {
        let packet = RLE.packet(100);
        assert_eq!(RLE.fill(4, packet), (0, Some(packet)));
        let (taken, rest) = RLE.fill(5, packet);
        assert_eq!(taken, 5);
        // Everything but the protection would fit: one byte stays back for the last fragment.
        let rest = rest.unwrap();
        assert_eq!(
            RLE.fill(2 + 101, rest),
            (
                102,
                Some(Remaining {
                    bytes: 1,
                    begun: true
                })
            )
        );
        assert_eq!(RLE.fill(2 + 101 + 1, rest), (104, None));
    }

    #[test]
    fn the_estimate_is_near_what_it_takes() {
        for (payload, size) in [(38, 1500), (194, 60), (194, 1500), (599, 576)] {
            let mut space = RLE.space(payload);
            let mut used = u64::from(payload);
            for _ in 0..100 {
                let mut packet = Some(RLE.packet(size));
                while let Some(rest) = packet {
                    let (taken, next) = RLE.fill(space, rest);
                    packet = next;
                    space -= taken;
                    if packet.is_some() {
                        space = RLE.space(payload);
                        used += u64::from(payload);
                    }
                }
            }
            let estimate = RLE.estimate(u64::from(size) * 100, 100, payload);
            let ratio = estimate as f64 / used as f64;
            assert!((0.95..1.12).contains(&ratio), "{payload} {size}: {ratio}");
        }
    }
}

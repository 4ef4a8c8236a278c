//! What segmentation offload would leave in one piece: the successive segments of a TCP connection that come at once.
//!
//! The emulator's devices get single packets, so that queues and rates are those of packets. Routers that merge them (GRO), or get
//! them unsegmented (TSO in virtual machines), and lose packets at random, as `netem` does, lose such a piece as a whole. For
//! links that are to lose as those do (`unit = "offload"`), packets know their piece.

use std::time::{Duration, Instant};

use super::packet::Segment;

/// Packets that one system call made are read within less.
const AT_ONCE: Duration = Duration::from_micros(200);
/// The most bytes in one piece (`GSO_LEGACY_MAX_SIZE`).
const MOST: usize = 65_536;

/// The piece that came last.
#[derive(Debug, Default)]
pub(super) struct Trains {
    last: Option<Last>,
}

#[derive(Debug)]
struct Last {
    /// The number of its first packet.
    train: u64,
    segment: Segment,
    at: Instant,
    bytes: usize,
}

impl Trains {
    /// The piece to which packet `number` belongs, which came at `at`; `None` if it is no segment with data.
    pub(super) fn of(&mut self, at: Instant, number: u64, segment: Option<Segment>) -> Option<u64> {
        let last = self.last.take();
        let segment = segment?;
        let continued = last.filter(|last| {
            segment.follows(&last.segment)
                && at.saturating_duration_since(last.at) < AT_ONCE
                && last.bytes + segment.length <= MOST
        });
        let (train, before) = continued.map_or((number, 0), |last| (last.train, last.bytes));
        self.last = Some(Last {
            train,
            segment,
            at,
            bytes: before + segment.length,
        });
        Some(train)
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "one base instant; all else is virtual"
)]
mod tests {
    use super::*;

    const LENGTH: usize = 1448;

    fn segment(flow: u8, sequence: usize) -> Option<Segment> {
        let sequence = u32::try_from(sequence).unwrap();
        Some(Segment::new([flow; 36], sequence, LENGTH))
    }

    #[test]
    fn successive_segments_at_once_are_one_piece() {
        let (mut trains, now) = (Trains::default(), Instant::now());
        let at = |micros| now + Duration::from_micros(micros);
        let (first, second, third) = (segment(1, 0), segment(1, LENGTH), segment(1, 2 * LENGTH));
        assert_eq!(trains.of(at(0), 1, first), Some(1));
        assert_eq!(trains.of(at(5), 2, second), Some(1));
        assert_eq!(trains.of(at(1000), 3, third), Some(3), "later");
        assert_eq!(trains.of(at(1005), 4, third), Some(4), "sent again");
        assert_eq!(trains.of(at(1010), 5, segment(2, 3 * LENGTH)), Some(5));
        assert_eq!(trains.of(at(1015), 6, None), None);
        assert_eq!(trains.of(at(1020), 7, segment(2, 4 * LENGTH)), Some(7));
    }

    #[test]
    fn no_piece_is_longer_than_offload_makes_it() {
        let (mut trains, now) = (Trains::default(), Instant::now());
        let mut pieces = (0..90u64).map(|number| {
            let begins = usize::try_from(number).unwrap() * LENGTH;
            trains.of(now, number, segment(1, begins))
        });
        let second = pieces.find(|piece| *piece != Some(0));
        assert_eq!(second, Some(Some(45)));
    }
}

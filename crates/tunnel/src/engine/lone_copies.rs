//! Sends what stands alone once more, over a path that loses packets by itself.
//!
//! The code of `proto/fec` mends streams that the peer knows. It cannot open one, nor say what control frames, DNS messages and
//! ends of flows say, and of a single packet its repair would be a copy anyway. So a datagram with such things leaves a second
//! time after a moment, the same bytes, of which a receiver drops what it has by packet number; and what is in it is not given to
//! the code as well.
//!
//! It stands between quinn and the socket, on datagrams that are sealed. Copies leave at the pacer's rate and are paid like
//! repairs, from what the path's losses justify. It does not wait for acknowledgements.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use quinn_proto::Transmit;

/// Datagrams kept. quinn's receiver takes whatever is 129 packets behind the newest for a duplicate, so older ones are lost.
const KEPT: usize = 96;
/// A second sending follows the first by this share of a round trip, within bounds: a burst of losses is to be over.
const PAUSE_SHARE: u32 = 32;
const PAUSE: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(25)];

/// A datagram that leaves once more.
struct Kept {
    due: Instant,
    transmit: Transmit,
    data: Vec<u8>,
}

/// The datagrams that wait for that.
#[derive(Default)]
pub(crate) struct LoneCopies {
    kept: VecDeque<Kept>,
    /// Datagrams sent a second time.
    repeated: u64,
}

impl LoneCopies {
    /// A batch left at `now` over a path of this round-trip time; it is in `buf`, and its `first` datagrams are to leave again.
    pub(crate) fn on_sent(
        &mut self,
        now: Instant,
        transmit: &Transmit,
        buf: &[u8],
        first: usize,
        rtt: Duration,
    ) {
        let due = now + (rtt / PAUSE_SHARE).clamp(PAUSE[0], PAUSE[1]);
        let start = buf.len() - transmit.size;
        let segment = transmit.segment_size.unwrap_or(transmit.size).max(1);
        for data in buf[start..].chunks(segment).take(first) {
            // The buffers go round.
            let mut store = Vec::new();
            if self.kept.len() >= KEPT {
                store = self.kept.pop_front().map_or(store, |old| old.data);
                store.clear();
            }
            store.extend_from_slice(data);
            let transmit = Transmit {
                size: data.len(),
                segment_size: None,
                ..*transmit
            };
            self.kept.push_back(Kept {
                due,
                transmit,
                data: store,
            });
        }
    }

    /// The next datagram to be sent again, if it is time and `pay` pays for its bytes; what is not paid, or was held up for
    /// a whole `rtt`, is let go of.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        rtt: Duration,
        mut pay: impl FnMut(usize) -> bool,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        loop {
            let kept = self.kept.pop_front_if(|kept| kept.due <= now)?;
            if now < kept.due + rtt && pay(kept.data.len()) {
                self.repeated += 1;
                buf.extend_from_slice(&kept.data);
                return Some(kept.transmit);
            }
        }
    }

    /// Instant at which a datagram is to be sent again.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.kept.front().map(|kept| kept.due)
    }

    /// Datagrams sent a second time.
    pub(crate) fn repeated(&self) -> u64 {
        self.repeated
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "one base instant; all else is virtual"
)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(600);
    const PAUSE: Duration = Duration::from_micros(18_750);

    /// A batch of `count` datagrams of 100 bytes, each filled with the number of its turn from `first` on.
    fn send(copies: &mut LoneCopies, now: Instant, first: u8, count: u8) {
        let data: Vec<u8> = (first..first + count).flat_map(|n| [n; 100]).collect();
        let transmit = Transmit {
            destination: ([10, 0, 0, 1], 1).into(),
            ecn: None,
            size: data.len(),
            segment_size: (count > 1).then_some(100),
            src_ip: None,
        };
        copies.on_sent(now, &transmit, &data, usize::MAX, RTT);
    }

    /// The numbers of the datagrams that leave again at `now`, if `paid` of them are paid for.
    fn repeated(copies: &mut LoneCopies, now: Instant, mut paid: usize) -> Vec<u8> {
        let mut buf = Vec::new();
        let mut pay = |bytes| {
            assert_eq!(bytes, 100);
            paid = paid.saturating_sub(1);
            paid > 0
        };
        while let Some(transmit) = copies.poll(now, RTT, &mut pay, &mut buf) {
            assert_eq!((transmit.size, transmit.segment_size), (100, None));
        }
        buf.chunks(100).map(|data| data[0]).collect()
    }

    #[test]
    fn each_datagram_leaves_once_more_after_a_pause() {
        let (mut copies, start) = (LoneCopies::default(), Instant::now());
        send(&mut copies, start, 1, 3);
        assert_eq!(copies.poll_timeout(), Some(start + PAUSE));
        assert!(repeated(&mut copies, start + PAUSE / 2, 99).is_empty());
        assert_eq!(repeated(&mut copies, start + PAUSE, 99), [1, 2, 3]);
        assert!(repeated(&mut copies, start + PAUSE * 2, 99).is_empty());
        assert_eq!(copies.poll_timeout(), None);
    }

    #[test]
    fn what_is_too_far_behind_or_not_paid_is_forgotten() {
        let (mut copies, start) = (LoneCopies::default(), Instant::now());
        for n in 0..120 {
            send(&mut copies, start, n, 1);
        }
        assert_eq!(
            repeated(&mut copies, start + PAUSE, 91),
            (24..114).collect::<Vec<_>>(),
            "a receiver takes what is 129 behind for a duplicate"
        );
        assert_eq!(copies.poll_timeout(), None);
    }
}

//! Sends the last datagrams of a busy time once more, over a path that loses packets by itself.
//!
//! A packet that is lost while more is to be sent costs nothing but itself: its content follows a round trip later, among
//! the rest. One that is lost when nothing is left to send costs a round trip in which the link idles; and of the packets
//! that then mend the last flight's losses some are lost as well, which costs another. So whatever left last leaves a
//! second time once nothing else is to be sent: the same bytes, of which a receiver drops what it has by packet number.
//!
//! It stands between quinn and the socket, on datagrams that are sealed. They are few, some percent of what was sent; they
//! leave at the pacer's rate, and only while the controller knows that the path loses packets and is not full. It does
//! not know what a datagram holds, and does not wait for acknowledgements.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use quinn_proto::Transmit;

/// Datagrams kept. quinn's receiver takes whatever is 129 packets behind the newest for a duplicate, so older ones are lost.
const KEPT: usize = 96;
/// A second sending follows the first by this share of a round trip, within bounds: a burst of losses is to be over.
const PAUSE_SHARE: u32 = 32;
const PAUSE: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(25)];
/// One byte is sent again of so many,
const SHARE: u64 = 32;
/// with this much in hand after a long time without.
const MOST_CREDIT: u64 = 256 * 1500;

/// A datagram that may leave once more.
struct Kept {
    sent: Instant,
    transmit: Transmit,
    data: Vec<u8>,
}

/// The datagrams that left last.
#[derive(Default)]
pub(crate) struct Repeater {
    kept: VecDeque<Kept>,
    credit: u64,
    /// Between the two sendings.
    pause: Duration,
    /// Datagrams sent a second time.
    repeated: u64,
}

impl Repeater {
    /// A batch left at `now` over a path of this round-trip time; it is in `buf`.
    pub(crate) fn on_sent(&mut self, now: Instant, transmit: &Transmit, buf: &[u8], rtt: Duration) {
        self.credit = (self.credit + transmit.size as u64 / SHARE).min(MOST_CREDIT);
        self.pause = (rtt / PAUSE_SHARE).clamp(PAUSE[0], PAUSE[1]);
        let start = buf.len() - transmit.size;
        let segment = transmit.segment_size.unwrap_or(transmit.size).max(1);
        for data in buf[start..].chunks(segment) {
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
                sent: now,
                transmit,
                data: store,
            });
        }
    }

    /// Nothing else is to be sent: the next datagram to be sent again, if it is time. An older one than `rtt` is acknowledged
    /// by now, or mended.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        rtt: Duration,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let mended = |kept: &Kept| now.saturating_duration_since(kept.sent) >= rtt;
        while self.kept.front().is_some_and(mended) {
            self.kept.pop_front();
        }
        let due = self.poll_timeout().is_some_and(|due| due <= now);
        let kept = self.kept.pop_front_if(|_| due)?;
        self.credit -= kept.data.len() as u64;
        self.repeated += 1;
        buf.extend_from_slice(&kept.data);
        Some(kept.transmit)
    }

    /// When a datagram is to be sent again, if nothing else is until then.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let first = self.kept.front()?;
        (first.data.len() as u64 <= self.credit).then(|| first.sent + self.pause)
    }

    /// The path is full, or loses nothing: there is nothing to repeat.
    pub(crate) fn clear(&mut self) {
        self.kept.clear();
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
    fn send(repeater: &mut Repeater, now: Instant, first: u8, count: u8) {
        let data: Vec<u8> = (first..first + count).flat_map(|n| [n; 100]).collect();
        let transmit = Transmit {
            destination: ([10, 0, 0, 1], 1).into(),
            ecn: None,
            size: data.len(),
            segment_size: (count > 1).then_some(100),
            src_ip: None,
        };
        repeater.on_sent(now, &transmit, &data, RTT);
    }

    /// The numbers of the datagrams that leave again at `now`.
    fn repeated(repeater: &mut Repeater, now: Instant) -> Vec<u8> {
        let mut buf = Vec::new();
        while let Some(transmit) = repeater.poll(now, RTT, &mut buf) {
            assert_eq!((transmit.size, transmit.segment_size), (100, None));
        }
        buf.chunks(100).map(|data| data[0]).collect()
    }

    /// With all the credit there may be.
    fn rich() -> Repeater {
        Repeater {
            credit: MOST_CREDIT,
            ..Repeater::default()
        }
    }

    #[test]
    fn each_datagram_leaves_once_more_after_a_pause() {
        let (mut repeater, start) = (rich(), Instant::now());
        send(&mut repeater, start, 1, 3);
        assert_eq!(repeater.poll_timeout(), Some(start + PAUSE));
        assert!(repeated(&mut repeater, start + PAUSE / 2).is_empty());
        assert_eq!(repeated(&mut repeater, start + PAUSE), [1, 2, 3]);
        assert!(repeated(&mut repeater, start + PAUSE * 2).is_empty());
        assert_eq!(repeater.poll_timeout(), None);
    }

    #[test]
    fn what_is_acknowledged_by_now_or_too_far_behind_is_forgotten() {
        let (mut repeater, start) = (rich(), Instant::now());
        send(&mut repeater, start, 1, 1);
        assert!(repeated(&mut repeater, start + RTT).is_empty());
        for n in 0..120 {
            send(&mut repeater, start, n, 1);
        }
        assert_eq!(
            repeated(&mut repeater, start + PAUSE),
            (24..120).collect::<Vec<_>>(),
            "a receiver takes what is 129 behind for a duplicate"
        );
    }

    #[test]
    fn a_thirty_second_part_of_what_was_sent_is_repeated() {
        let (mut repeater, start) = (Repeater::default(), Instant::now());
        let mut total = 0;
        for n in 0..100 {
            let now = start + RTT * n;
            send(&mut repeater, now, 0, 64);
            total += repeated(&mut repeater, now + PAUSE).len();
        }
        assert_eq!(total, 200);
    }
}

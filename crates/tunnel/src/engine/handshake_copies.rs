//! Says three times what a connection says first.
//!
//! Each round trip of a handshake needs every packet of both sides: at 5 % loss two of three handshakes would lose at least
//! one, and a lost one costs a timer that has not even seen the path yet. So the first datagrams with TLS or streams, HELLO and the
//! first requests among them, leave again, twice, as they were sealed: a receiver drops what it has by packet number. That
//! is done on clean paths too, because nothing is known of the path then; it is a few packets per connection.
//!
//! ACK_FREQUENCY is said as often wherever it is: quinn sends it when a connection begins and, unlike other frames, never
//! again if that packet is lost. The peer would then acknowledge every second packet for the connection's life, which a slow
//! return link cannot carry.
//!
//! It stands between quinn and the socket and does not know what else a datagram holds. To an address that is not proven it sends
//! nothing beyond the threefold of what came from there (RFC 9000 §8): `connection/validation.rs` keeps that account.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use quinn_proto::{FrameStats, Transmit};

/// Delays until they leave again, each from the time before: far enough apart for a burst of losses, and before 128 newer
/// packets make them too old for quinn.
const AGAIN: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(40)];
/// The first datagrams that are said again: of the client two with its key share, two more to the end of its handshake, and
/// some requests.
const FIRST: usize = 8;

/// First requests leave so soon after HELLO; later ones know their path.
const OPENING: Duration = Duration::from_secs(3);
/// A request is no longer, in bytes.
const REQUEST: usize = 700;

/// Datagrams that are to leave again.
#[derive(Default)]
pub(crate) struct HandshakeCopies {
    /// For the second and for the third time.
    waiting: [VecDeque<Copy>; 2],
    /// Datagrams that were copied.
    count: usize,
    /// Instant after which what leaves is not the first any more.
    until: Option<Instant>,
    /// Frames that made one worth it, so far.
    seen: u64,
    /// ACK_FREQUENCY has left.
    said: bool,
}

/// A datagram, or the batch that held ACK_FREQUENCY.
struct Copy {
    due: Instant,
    transmit: Transmit,
    data: Vec<u8>,
}

impl HandshakeCopies {
    /// Every batch is looked at until this is false: quinn copies all its counters for an answer.
    pub(crate) fn listens(&self) -> bool {
        self.count < FIRST || !self.said
    }

    /// A batch left at `now`, the end of `buf`; `frames` is what quinn has sent so far, and once the tunnel is `ready` a full
    /// datagram is bulk.
    pub(crate) fn on_sent(
        &mut self,
        now: Instant,
        ready: bool,
        frames: &FrameStats,
        transmit: &Transmit,
        buf: &[u8],
    ) {
        let speaks = frames.crypto + frames.stream;
        if ready && now > *self.until.get_or_insert(now + OPENING) {
            self.count = FIRST;
        }
        let bulk = ready && transmit.size > REQUEST;
        let begins = speaks > self.seen && self.count < FIRST && !bulk;
        let asks = frames.ack_frequency > 0 && !self.said;
        self.seen = speaks;
        self.said |= asks;
        if !(begins || asks) {
            return;
        }
        let batch = &buf[buf.len() - transmit.size..];
        let segment = transmit.segment_size.unwrap_or(transmit.size).max(1);
        let left = FIRST.saturating_sub(self.count);
        for data in batch
            .chunks(segment)
            .take(if asks { usize::MAX } else { left })
        {
            self.count += 1;
            self.waiting[0].push_back(Copy {
                due: now + AGAIN[0],
                transmit: Transmit {
                    size: data.len(),
                    segment_size: None,
                    ..*transmit
                },
                data: data.to_vec(),
            });
        }
    }

    /// The connection is over.
    pub(crate) fn end(&mut self) {
        self.waiting = [VecDeque::new(), VecDeque::new()];
    }

    /// Datagram that leaves again now, if it has no more than `room` bytes: one that has more is let go of.
    pub(crate) fn poll(&mut self, now: Instant, room: u64, buf: &mut Vec<u8>) -> Option<Transmit> {
        let [second, third] = &mut self.waiting;
        let due = |copy: &mut Copy| copy.due <= now;
        let (mut copy, last) = match third.pop_front_if(due) {
            Some(copy) => (copy, true),
            None => (second.pop_front_if(due)?, false),
        };
        if copy.data.len() as u64 > room {
            return None;
        }
        buf.extend_from_slice(&copy.data);
        let transmit = Transmit { ..copy.transmit };
        if !last {
            copy.due = now + AGAIN[1];
            third.push_back(copy);
        }
        Some(transmit)
    }

    /// Instant at which that is.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let first = self.waiting.iter().filter_map(|copies| copies.front());
        first.map(|copy| copy.due).min()
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "one base instant; all else is virtual"
)]
mod tests {
    use super::*;

    fn transmit(size: usize, segment_size: Option<usize>) -> Transmit {
        Transmit {
            destination: ([10, 0, 0, 1], 1).into(),
            ecn: None,
            size,
            segment_size,
            src_ip: None,
        }
    }

    fn frames(crypto: u64, stream: u64, ack_frequency: u64) -> FrameStats {
        let mut frames = FrameStats::default();
        (frames.crypto, frames.stream, frames.ack_frequency) = (crypto, stream, ack_frequency);
        frames
    }

    /// Datagrams that leave until nothing is left to say, and their times.
    fn said(copies: &mut HandshakeCopies, start: Instant) -> Vec<(u128, Vec<u8>)> {
        let mut said = Vec::new();
        while let Some(due) = copies.poll_timeout() {
            let mut buf = Vec::new();
            if copies.poll(due, u64::MAX, &mut buf).is_some() {
                said.push(((due - start).as_millis(), buf));
            }
        }
        said
    }

    #[test]
    fn what_is_said_first_leaves_twice_more() {
        let (mut copies, start) = (HandshakeCopies::default(), Instant::now());
        copies.on_sent(
            start,
            false,
            &frames(2, 0, 0),
            &transmit(4, Some(2)),
            b"xaabb",
        );
        copies.on_sent(start, false, &frames(2, 0, 0), &transmit(1, None), b"-");
        let expected = [(20, "aa"), (20, "bb"), (60, "aa"), (60, "bb")];
        let expected = expected.map(|(at, text)| (at, text.as_bytes().to_vec()));
        assert_eq!(said(&mut copies, start), expected);
    }

    #[test]
    fn only_the_first_are_and_those_that_ask_for_acks() {
        let (mut copies, start) = (HandshakeCopies::default(), Instant::now());
        for n in 1..20 {
            let batch = transmit(10, Some(5));
            copies.on_sent(start, false, &frames(0, n, 0), &batch, b"aaaaabbbbb");
        }
        assert!(copies.listens());
        assert_eq!(said(&mut copies, start).len(), 2 * FIRST);
        copies.on_sent(start, false, &frames(0, 19, 1), &transmit(1, None), b"f");
        copies.on_sent(start, false, &frames(0, 20, 2), &transmit(1, None), b"-");
        assert!(!copies.listens());
        let again = said(&mut copies, start);
        assert_eq!(again, [(20, b"f".to_vec()), (60, b"f".to_vec())]);
    }

    #[test]
    fn bulk_is_none_of_the_first_things_said() {
        let (mut copies, start) = (HandshakeCopies::default(), Instant::now());
        copies.on_sent(
            start,
            true,
            &frames(0, 1, 0),
            &transmit(701, None),
            &[1; 701],
        );
        assert_eq!(copies.poll_timeout(), None);
        copies.on_sent(
            start,
            true,
            &frames(0, 2, 0),
            &transmit(700, None),
            &[2; 700],
        );
        assert_eq!(said(&mut copies, start).len(), 2);
        let late = start + OPENING * 2;
        copies.on_sent(late, true, &frames(0, 3, 0), &transmit(9, None), &[3; 9]);
        assert_eq!(copies.poll_timeout(), None);
    }

    #[test]
    fn what_may_not_be_sent_is_let_go_of() {
        let (mut copies, start) = (HandshakeCopies::default(), Instant::now());
        copies.on_sent(start, false, &frames(1, 0, 0), &transmit(9, None), &[1; 9]);
        assert!(copies.poll(start + AGAIN[0], 8, &mut Vec::new()).is_none());
        assert_eq!(copies.poll_timeout(), None);
    }
}

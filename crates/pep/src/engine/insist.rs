//! Says more than once how it wants to be acknowledged.
//!
//! quinn sends ACK_FREQUENCY when a connection begins and, unlike other frames, never again if that packet is lost. The
//! peer would then acknowledge every second packet for the connection's life, which a slow return link cannot carry. So
//! the datagrams that held the frame leave again, twice, as they were sealed: a receiver drops what it has by packet number.
//!
//! It stands between quinn and the socket and does not know what else a datagram holds.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use quinn_proto::Transmit;

/// When they leave again, counted from the end of the handshake (what may be sent to an unproven address is little): far
/// enough apart for a burst of losses, and before 128 newer packets make them too old for quinn.
const AGAIN: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(100)];

/// What is to leave again.
#[derive(Default)]
pub(crate) struct Insistence {
    /// The first batch that held the frame. Later ones only follow the round-trip time.
    copy: Option<(Transmit, Vec<u8>)>,
    due: VecDeque<Instant>,
    said: bool,
    established: bool,
}

impl Insistence {
    /// A batch left at `now`, the end of `buf`; since the connection began `frames` ACK_FREQUENCY frames have (not asked
    /// for once it is known: quinn copies all its counters for an answer).
    pub(crate) fn on_sent(
        &mut self,
        now: Instant,
        frames: impl FnOnce() -> u64,
        transmit: &Transmit,
        buf: &[u8],
    ) {
        if self.said || frames() == 0 {
            return;
        }
        self.said = true;
        let data = buf[buf.len() - transmit.size..].to_vec();
        self.copy = Some((Transmit { ..*transmit }, data));
        self.schedule(now);
    }

    /// The handshake has ended.
    pub(crate) fn on_established(&mut self, now: Instant) {
        self.established = true;
        self.schedule(now);
    }

    /// The connection is over.
    pub(crate) fn end(&mut self) {
        self.due.clear();
    }

    fn schedule(&mut self, now: Instant) {
        if self.established && self.copy.is_some() {
            self.due = AGAIN.map(|later| now + later).into();
        }
    }

    /// What leaves again now.
    pub(crate) fn poll(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.due.pop_front_if(|due| *due <= now)?;
        let (transmit, data) = self.copy.take()?;
        buf.extend_from_slice(&data);
        let again = Transmit { ..transmit };
        if !self.due.is_empty() {
            self.copy = Some((transmit, data));
        }
        Some(again)
    }

    /// When that is.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.due.front().copied()
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "one base instant; all else is virtual"
)]
mod tests {
    use super::*;

    #[test]
    fn what_held_the_frame_leaves_twice_more() {
        let (mut insistence, start) = (Insistence::default(), Instant::now());
        let transmit = |size| Transmit {
            destination: ([10, 0, 0, 1], 1).into(),
            ecn: None,
            size,
            segment_size: None,
            src_ip: None,
        };
        insistence.on_sent(start, || 0, &transmit(3), b"xyz");
        assert_eq!(insistence.poll_timeout(), None);
        insistence.on_sent(start, || 1, &transmit(2), b"xyz");
        insistence.on_sent(start, || 1, &transmit(1), b"w");
        assert_eq!(insistence.poll_timeout(), None);
        insistence.on_established(start);
        let mut buf = Vec::new();
        assert!(insistence.poll(start, &mut buf).is_none());
        for later in AGAIN {
            assert_eq!(insistence.poll_timeout(), Some(start + later));
            let again = insistence.poll(start + later, &mut buf);
            assert_eq!(again.map(|transmit| transmit.size), Some(2));
        }
        assert_eq!(
            (buf.as_slice(), insistence.poll_timeout()),
            (&b"yzyz"[..], None)
        );
    }
}

//! Data that quinn holds and has not sent: it does not say how much that is, so it is estimated from what leaves.
//!
//! Bytes written to a stream are out of reach, so that only as many are to be written as the next batch takes. A batch that is not
//! full shows that quinn has nothing left, or that its next DATAGRAM frame did not fit in.

use std::time::Duration;

use bentpipe_proto::relay::SEND_BUFFER;
use bentpipe_units::BitRate;

/// Bytes of a full datagram that are no payload, about: short header, tag, STREAM header.
const OVERHEAD: usize = 32;

/// Bytes by which a datagram that a DATAGRAM frame fills may be shorter than a full one.
const SHORT: usize = 16;

/// Full datagrams in a row after which nothing is written until quinn has run dry: an estimate that is a few bytes off
/// would leave them in quinn, datagram for datagram, for as long as the bulk goes on.
const UNCHECKED: usize = 512;

/// Bulk alone is written for so long ahead, within bounds: what comes in meanwhile waits for that.
const AHEAD: Duration = Duration::from_millis(2);
const MOST_AHEAD: usize = SEND_BUFFER / 2;
/// Only while so many bytes are under way: quinn searches them piece by piece, and fewer pieces are searched soon.
const MANY: u64 = 1 << 20;

/// Estimate of what quinn holds and has not sent.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Bytes in streams.
    streams: usize,
    /// Full datagrams since that was last known for certain.
    unchecked: usize,
    /// Datagrams of what is said again after a silence.
    repeated: usize,
}

/// A batch of datagrams that quinn has just built.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentBatch {
    /// UDP payload of all datagrams, in bytes.
    pub(super) size: usize,
    /// Bytes that the batch had room for.
    pub(super) room: usize,
    /// UDP payload of a full datagram, in bytes.
    pub(super) mtu: usize,
    /// Bytes that were written into streams for it.
    pub(super) written: usize,
    /// Bytes declared lost since the last batch: quinn sends their content again.
    pub(super) lost: usize,
    /// Bytes of DATAGRAM frames that quinn had before it.
    pub(super) waiting: usize,
    /// Bytes of DATAGRAM frames that quinn has after it.
    pub(super) left: usize,
}

impl Backlog {
    /// Bytes in streams, as far as can be told.
    pub(super) fn streams(&self) -> usize {
        self.streams
    }

    /// Bytes that are to be written so that quinn can fill a batch of `room` bytes, when it has `datagrams` bytes of DATAGRAM frames.
    pub(super) fn wanted(&mut self, room: usize, datagrams: usize) -> usize {
        if self.unchecked >= UNCHECKED {
            self.streams = room;
        }
        room.saturating_sub(self.streams + datagrams)
    }

    /// Notes that quinn, which might send, had nothing.
    pub(super) fn on_dry(&mut self) {
        (self.streams, self.unchecked) = (0, 0);
    }

    /// Takes what `batch` shows.
    pub(super) fn on_sent(&mut self, batch: SentBatch) {
        let datagrams = batch.size.div_ceil(batch.mtu);
        let frames = batch.waiting.saturating_sub(batch.left);
        let short = if frames > 0 { datagrams * SHORT } else { 0 };
        let full = batch.size + 2 * OVERHEAD + short >= batch.room || batch.left > 0;
        if !full {
            return self.on_dry();
        }
        let payload = batch.size.saturating_sub(datagrams * OVERHEAD + frames);
        let held = self.streams + batch.written + batch.lost;
        self.streams = held.saturating_sub(payload);
        self.unchecked += datagrams;
    }

    /// Datagrams of what is said again.
    pub(super) fn repeated(&self) -> usize {
        self.repeated
    }

    /// Notes that quinn was given so many datagrams of what is said again, and has no others.
    pub(super) fn set_repeated(&mut self, datagrams: usize) {
        self.repeated = datagrams;
    }

    /// Notes that so many datagrams left while some of what is said again waited.
    pub(super) fn on_repeated_sent(&mut self, datagrams: usize) {
        self.repeated = self.repeated.saturating_sub(datagrams);
    }
}

/// Bytes that are to be written at once if nothing but bulk waits, while so many are `in_flight` and more leave at `rate`.
pub(super) fn written_ahead(in_flight: u64, rate: BitRate) -> usize {
    if in_flight < MANY {
        return 0;
    }
    let ahead = rate.bytes_in(AHEAD).as_u64();
    usize::try_from(ahead).map_or(MOST_AHEAD, |ahead| ahead.min(MOST_AHEAD))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: usize = 1400;
    const ROOM: usize = 10 * MTU;

    /// A batch of `size` bytes, for which `written` bytes were written.
    fn batch(size: usize, written: usize) -> SentBatch {
        SentBatch {
            size,
            room: ROOM,
            mtu: MTU,
            written,
            lost: 0,
            waiting: 0,
            left: 0,
        }
    }

    #[test]
    fn what_a_full_batch_had_no_room_for_is_not_written_again() {
        let mut backlog = Backlog::default();
        assert_eq!(backlog.wanted(ROOM, 0), ROOM);
        backlog.on_sent(batch(ROOM, ROOM));
        assert_eq!(backlog.streams(), 10 * OVERHEAD);
        assert_eq!(backlog.wanted(ROOM, 100), ROOM - 10 * OVERHEAD - 100);
    }

    #[test]
    fn a_batch_that_is_not_full_shows_that_nothing_is_left() {
        let mut backlog = Backlog::default();
        backlog.on_sent(batch(ROOM, 2 * ROOM));
        assert!(backlog.streams() >= ROOM);
        backlog.on_sent(batch(ROOM - 100, 0));
        assert_eq!(backlog.streams(), 0);
    }

    #[test]
    fn lost_bytes_come_back_and_datagram_frames_are_no_stream_bytes() {
        let mut backlog = Backlog::default();
        let lost = SentBatch {
            lost: 5000,
            ..batch(ROOM, ROOM)
        };
        backlog.on_sent(lost);
        assert_eq!(backlog.streams(), 10 * OVERHEAD + 5000);
        let mut backlog = Backlog::default();
        let frames = SentBatch {
            waiting: 3000,
            ..batch(ROOM - 10 * SHORT, ROOM - 3000)
        };
        backlog.on_sent(frames);
        assert_eq!(backlog.streams(), 10 * (OVERHEAD + SHORT));
    }

    #[test]
    fn a_frame_that_did_not_fit_leaves_a_batch_full() {
        let mut backlog = Backlog::default();
        let frames = SentBatch {
            waiting: 1200,
            left: 1200,
            ..batch(ROOM / 2, ROOM)
        };
        backlog.on_sent(frames);
        assert!(backlog.streams() > ROOM / 2);
    }

    #[test]
    fn an_estimate_is_checked_now_and_then() {
        let mut backlog = Backlog::default();
        let payload = ROOM - 10 * OVERHEAD;
        for _ in 0..=UNCHECKED / 10 {
            assert_eq!(backlog.wanted(ROOM, 0), ROOM);
            backlog.on_sent(batch(ROOM, payload));
        }
        assert_eq!(backlog.wanted(ROOM, 0), 0);
        backlog.on_dry();
        assert_eq!(backlog.wanted(ROOM, 0), ROOM);
    }
}

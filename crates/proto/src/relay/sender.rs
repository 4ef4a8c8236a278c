//! One sending direction of a flow: from the LAN socket to the QUIC stream.
//!
//! Holds what was read from the LAN until the scheduler writes it into the stream ("write late":
//! bytes merely buffered in a stream would take connection credit away from short flows). Bounded:
//! a full buffer stops the reading of the LAN socket, and TCP's own window does the rest.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};

use super::End;
use crate::tunnel::AbortCode;

/// Bytes that one flow may hold before its LAN socket is no longer read. They cover a millisecond
/// of 1 Gbit/s: the LAN side refills it much faster than a satellite drains it.
pub const SEND_BUFFER: usize = 128 * 1024;

/// Bytes up to which pieces are joined: a host that writes byte by byte would otherwise fill memory with places for them.
const JOINED: usize = 1024;

/// Memory that a piece takes beside its bytes, about: its place in the queue and what the allocator adds.
const CHUNK_COST: u64 = 64;

/// One sending direction. Offsets are payload offsets; the header is outside of them.
#[derive(Debug)]
pub struct Sender {
    header: Bytes,
    queue: VecDeque<Bytes>,
    queued: usize,
    written: u64,
    limit: u64,
    end: Option<End>,
}

impl Sender {
    /// A direction that starts with `header` and may then send `credit` bytes of payload.
    pub fn new(header: Bytes, credit: u64) -> Self {
        Self {
            header,
            queue: VecDeque::new(),
            queued: 0,
            written: 0,
            limit: credit,
            end: None,
        }
    }

    /// Bytes that the LAN side may add now.
    pub fn capacity(&self) -> usize {
        if self.end.is_some() {
            0
        } else {
            SEND_BUFFER.saturating_sub(self.queued)
        }
    }

    /// Adds payload read from the LAN.
    pub fn push(&mut self, data: Bytes) {
        if self.end.is_some() || data.is_empty() {
            return;
        }
        self.queued += data.len();
        match self.queue.back_mut() {
            Some(last) if last.len() + data.len() <= JOINED => {
                *last = [&last[..], &data].concat().into();
            }
            _ => self.queue.push_back(data),
        }
    }

    /// Sets the header late (the server's REPLY is known only after its dial).
    pub fn set_header(&mut self, header: Bytes) {
        self.header = header;
    }

    /// The LAN side sent FIN.
    pub fn finish(&mut self) {
        self.end.get_or_insert(End::Fin);
    }

    /// The LAN side was reset. Returns the payload offset after which that happened. FIN that the LAN side had sent before
    /// still ends the direction.
    pub fn abort(&mut self, code: AbortCode) -> u64 {
        self.end.get_or_insert(End::Abort(code));
        self.written + self.queued as u64
    }

    /// Throws away what was not written.
    pub fn discard(&mut self) {
        self.header.clear();
        self.queue.clear();
        self.queued = 0;
    }

    /// The peer allows payload up to `limit`.
    pub fn raise_limit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// End of this direction, if that is known.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// Bytes that could be written into the stream now, header included.
    pub fn sendable(&self) -> usize {
        let credit = usize::try_from(self.limit.saturating_sub(self.written)).unwrap_or(usize::MAX);
        self.header.len() + self.queued.min(credit)
    }

    /// True once all of it, header included, is in the stream.
    pub fn is_drained(&self) -> bool {
        self.header.is_empty() && self.queued == 0
    }

    /// Payload bytes written into the stream so far ("attained service").
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Memory held, in bytes.
    pub fn memory(&self) -> u64 {
        let pieces = self.queue.len() as u64 * CHUNK_COST;
        self.queued as u64 + self.header.len() as u64 + pieces
    }

    /// Takes up to `max` bytes for the stream, header first.
    pub fn take(&mut self, max: usize, out: &mut Vec<Bytes>) -> usize {
        let mut room = max.min(self.sendable());
        let total = room;
        if !self.header.is_empty() && room > 0 {
            let part = self.header.split_to(self.header.len().min(room));
            room -= part.len();
            out.push(part);
        }
        while room > 0
            && let Some(front) = self.queue.front_mut()
        {
            let part = front.split_to(front.len().min(room));
            if !front.has_remaining() {
                self.queue.pop_front();
            }
            room -= part.len();
            self.queued -= part.len();
            self.written += part.len() as u64;
            out.push(part);
        }
        total - room
    }
}

impl Sender {
    /// Returns bytes that [`Self::take`] gave and the stream had no room for, in whatever chunks. The header may be among
    /// them: the peer chooses how small a stream's first window is.
    pub fn put_back(&mut self, chunks: Vec<Bytes>) {
        for mut payload in chunks.into_iter().rev() {
            // The header precedes all payload: what is more than the payload that was taken belongs to it.
            let taken = usize::try_from(self.written).unwrap_or(usize::MAX);
            let header = payload.split_to(payload.len().saturating_sub(taken));
            if !header.is_empty() {
                self.header = [header, std::mem::take(&mut self.header)].concat().into();
            }
            if !payload.is_empty() {
                self.queued += payload.len();
                self.written -= payload.len() as u64;
                self.queue.push_front(payload);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_goes_first_and_credit_bounds_the_payload() {
        let mut s = Sender::new(Bytes::from_static(b"OPEN"), 3);
        s.push(Bytes::from_static(b"abcdef"));
        assert_eq!(s.sendable(), 7);
        let mut out = Vec::new();
        assert_eq!(s.take(100, &mut out), 7);
        assert_eq!(out.concat(), b"OPENabc");
        assert_eq!(s.sendable(), 0);
        s.raise_limit(4);
        out.clear();
        assert_eq!(s.take(100, &mut out), 1);
        assert_eq!(out.concat(), b"d");
        assert_eq!(s.abort(AbortCode::Reset), 6);
        assert!(!s.is_drained());
    }

    #[test]
    fn a_header_that_the_stream_has_no_room_for_is_sent_later() {
        let mut s = Sender::new(Bytes::from_static(b"OPEN"), 3);
        s.push(Bytes::from_static(b"abc"));
        for max in [2, 4, 100] {
            let mut out = Vec::new();
            assert_eq!(s.take(max, &mut out), max.min(7));
            s.put_back(out);
            assert_eq!((s.sendable(), s.written()), (7, 0));
        }
        let mut out = Vec::new();
        s.take(100, &mut out);
        assert_eq!(out.concat(), b"OPENabc");
        s.put_back(out.split_off(1));
        assert_eq!((s.sendable(), s.written()), (3, 0));
    }

    #[test]
    fn header_and_payload_that_were_joined_are_told_apart() {
        for fit in 0..=7 {
            let mut s = Sender::new(Bytes::from_static(b"OPEN"), 3);
            s.push(Bytes::from_static(b"abc"));
            let mut out = Vec::new();
            s.take(100, &mut out);
            let mut joined = Bytes::from(out.concat());
            let went = joined.split_to(fit);
            s.put_back(vec![joined]);
            let payload = fit.saturating_sub(4);
            assert_eq!((s.sendable(), s.written()), (7 - fit, payload as u64));
            let pieces = u64::from(payload < 3) * CHUNK_COST;
            assert_eq!(s.memory(), 7 - fit as u64 + pieces);
            let mut rest = Vec::new();
            s.take(100, &mut rest);
            assert_eq!([went.to_vec(), rest.concat()].concat(), b"OPENabc");
            assert_eq!(s.written(), 3);
        }
    }

    #[test]
    fn bytes_that_come_one_by_one_take_hardly_more_memory_than_their_number() {
        let mut s = Sender::new(Bytes::new(), u64::MAX);
        let byte = |at: usize| (at % 251) as u8;
        for at in 0..SEND_BUFFER {
            s.push(Bytes::copy_from_slice(&[byte(at)]));
        }
        assert_eq!(s.capacity(), 0);
        assert!(s.queue.len() <= 2 * SEND_BUFFER / JOINED);
        assert!(s.memory() <= (SEND_BUFFER + SEND_BUFFER / 8) as u64);
        let mut out = Vec::new();
        s.take(SEND_BUFFER / 2 + 7, &mut out);
        s.put_back(out.split_off(out.len() / 2));
        s.take(SEND_BUFFER, &mut out);
        let all = out.concat();
        assert_eq!(all.len(), SEND_BUFFER);
        assert!(all.iter().enumerate().all(|(at, seen)| *seen == byte(at)));
        assert_eq!(s.memory(), 0);
    }

    #[test]
    fn a_full_buffer_asks_for_nothing_more() {
        let mut s = Sender::new(Bytes::new(), 0);
        s.push(Bytes::from(vec![0; SEND_BUFFER]));
        assert_eq!(s.capacity(), 0);
        s.raise_limit(10);
        s.take(10, &mut Vec::new());
        assert_eq!(s.capacity(), 10);
        s.finish();
        assert_eq!(s.capacity(), 0);
    }
}

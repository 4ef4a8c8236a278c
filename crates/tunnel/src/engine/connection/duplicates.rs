//! Datagrams that leave more than once: of the handshake, and those that stand alone.

use std::time::{Duration, Instant};

use quinn_proto::{FrameStats, Transmit};

use super::super::handshake_copies::HandshakeCopies;
use super::super::lone_copies::LoneCopies;

/// Datagrams kept to leave once more.
#[derive(Default)]
pub(super) struct Duplicates {
    handshake: HandshakeCopies,
    alone: LoneCopies,
}

impl Duplicates {
    /// True while datagrams of the handshake are wanted.
    pub(super) fn wants_handshake(&self) -> bool {
        self.handshake.listens()
    }

    /// Keeps a datagram of the handshake that is about to leave, if it is one; quinn has sent these `frames` so far.
    pub(super) fn on_handshake(
        &mut self,
        now: Instant,
        ready: bool,
        frames: &FrameStats,
        transmit: &Transmit,
        buf: &[u8],
    ) {
        self.handshake.on_sent(now, ready, frames, transmit, buf);
    }

    /// Keeps the `first` datagrams of a batch, in which something stands alone.
    pub(super) fn on_alone(
        &mut self,
        now: Instant,
        batch: &Transmit,
        buf: &[u8],
        first: usize,
        rtt: Duration,
    ) {
        self.alone.on_sent(now, batch, buf, first, rtt);
    }

    /// Next duplicate of the handshake, of at most `room` bytes.
    pub(super) fn poll_handshake(
        &mut self,
        now: Instant,
        room: u64,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.handshake.poll(now, room, buf)
    }

    /// Next duplicate of what stands alone, if `pay` takes its bytes.
    pub(super) fn poll_alone(
        &mut self,
        now: Instant,
        rtt: Duration,
        pay: impl FnMut(usize) -> bool,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.alone.poll(now, rtt, pay, buf)
    }

    /// Instant at which a duplicate is due; those that stand alone wait while sending is `shut`.
    pub(super) fn poll_timeout(&self, shut: bool) -> Option<Instant> {
        let alone = self.alone.poll_timeout().filter(|_| !shut);
        [alone, self.handshake.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Drops those of the handshake.
    pub(super) fn end_handshake(&mut self) {
        self.handshake.end();
    }

    /// Datagrams that stood alone and left a second time.
    pub(super) fn repeated(&self) -> u64 {
        self.alone.repeated()
    }
}

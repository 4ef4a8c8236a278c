//! After a silence, at both ends of a tunnel: says where flows wait, and again what the peer waits for (`PROTOCOL.md` §5.6).
//!
//! When, is the engine's business: its probes carry the one, and what comes of an answer leaves before other data.

use std::time::{Duration, Instant};

use bentpipe_proto::fec::Mended;
use bentpipe_proto::relay::Outstanding;
use bentpipe_proto::tunnel::{AGAIN_HEAD, Again, Awaited, Place};
use bytes::Bytes;

use super::super::key::FlowKey;

/// In a round trip so many lists of places are looked up while there is nothing to say: that is work.
const LOOKS: u32 = 16;

/// And no two are nearer to each other than this: the peer chooses the round trip.
const LOOK: Duration = Duration::from_millis(4);

/// Both halves.
#[derive(Debug, Default)]
pub(super) struct Resumption {
    outstanding: Outstanding,
    /// Places at which the peer waits and has not been answered.
    asked: Option<Awaited>,
    /// Instant before which the peer is not answered again.
    next: Option<Instant>,
    /// Pieces that came again.
    came: Vec<Mended>,
    /// The next list of flows begins behind this one.
    listed: Option<FlowKey>,
}

impl Resumption {
    /// The stream of `key` was given `bytes` at `offset`.
    pub(super) fn on_written(&mut self, key: FlowKey, offset: u64, bytes: Bytes) {
        let stream = key.0;
        self.outstanding.on_written(Place { stream, offset }, bytes);
    }

    /// Next piece that came again.
    pub(super) fn poll(&mut self) -> Option<Mended> {
        self.came.pop()
    }

    /// The last flow of the last list of places.
    pub(super) fn listed(&mut self) -> &mut Option<FlowKey> {
        &mut self.listed
    }

    /// A DATAGRAM frame came. True if it is counted as a repair.
    pub(super) fn on_datagram(&mut self, content: &Bytes) -> bool {
        if let Some(awaited) = Awaited::decode(content) {
            self.asked = Some(awaited);
        } else if let Some(Again { place, bytes }) = Again::decode(content) {
            self.came.push(Mended::Bytes {
                stream: place.stream,
                offset: place.offset,
                bytes,
            });
            return true;
        }
        false
    }

    /// No more than so many bytes of streams are not acknowledged.
    pub(super) fn on_in_flight(&mut self, bytes: u64) {
        self.outstanding.trim(bytes);
    }

    /// Places at which the peer has just said that it waits.
    pub(super) fn take_asked(&mut self) -> Option<Awaited> {
        self.asked.take()
    }

    /// Bytes that the peer waits for, as DATAGRAM frames of at most `size` bytes, `most` together.
    pub(super) fn say_again(
        &mut self,
        (now, rtt): (Instant, Duration),
        awaited: &Awaited,
        size: usize,
        most: usize,
    ) -> Vec<Bytes> {
        if self.next.is_some_and(|next| now < next) {
            return Vec::new();
        }
        let size = size.saturating_sub(AGAIN_HEAD);
        let pieces = self.outstanding.at(&awaited.places, size, most);
        let pause = if pieces.is_empty() {
            (rtt / LOOKS).max(LOOK)
        } else {
            rtt
        };
        self.next = Some(now + pause);
        pieces.iter().map(|piece| piece.encode().into()).collect()
    }
}

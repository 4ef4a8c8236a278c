//! After a silence, at both ends of a tunnel: says where flows wait, and again what the peer waits for (`PROTOCOL.md` §5.6).
//!
//! When, is the engine's business: its probes carry the one, and what comes of an answer leaves before other data.

use std::time::{Duration, Instant};

use bentpipe_proto::fec::Mended;
use bentpipe_proto::relay::Outstanding;
use bentpipe_proto::tunnel::{AGAIN_HEAD, Again, Awaited, MAX_AWAITED, Place};
use bytes::Bytes;

use super::flow::FlowKey;
use super::tunnel::Tunnel;

/// In a round trip so many lists of places are looked up while there is nothing to say: that is work.
const LOOKS: u32 = 16;

/// And no two are nearer to each other than this: the peer chooses the round trip.
const LOOK: Duration = Duration::from_millis(4);

/// Flows of which one list of places is made, at most.
const LISTED: usize = 4096;

/// Both halves.
#[derive(Debug, Default)]
pub(super) struct Resumption {
    outstanding: Outstanding,
    /// Where the peer waits, and has not been answered.
    asked: Option<Awaited>,
    /// It is not answered again before this.
    next: Option<Instant>,
    /// What came again.
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

    /// What came again.
    pub(super) fn poll(&mut self) -> Option<Mended> {
        self.came.pop()
    }
}

impl Tunnel {
    /// Where flows wait, as the content of a DATAGRAM frame of `size` bytes or more: of many flows some, and others the next
    /// time. `None`: nowhere.
    pub(crate) fn awaited(&mut self, size: usize) -> Option<Bytes> {
        let listed = self.resumption.listed;
        let behind = listed.map_or(FlowKey(0), |listed| FlowKey(listed.0 + 1));
        let keys = self.order.range(behind..).chain(self.order.range(..behind));
        let mut awaited = Awaited::default();
        for &key in keys.take(LISTED) {
            let flow = self.flows.get(&key).filter(|flow| !flow.recv_done);
            if let Some(offset) = flow.and_then(|flow| flow.receiver.awaits()) {
                let stream = key.0;
                awaited.places.push(Place { stream, offset });
                self.resumption.listed = Some(key);
            }
            if awaited.places.len() == MAX_AWAITED {
                break;
            }
        }
        (!awaited.places.is_empty()).then(|| awaited.encode(size).into())
    }

    /// A DATAGRAM frame came.
    pub(super) fn on_resumption(&mut self, content: &Bytes) {
        if let Some(awaited) = Awaited::decode(content) {
            self.resumption.asked = Some(awaited);
        } else if let Some(Again { place, bytes }) = Again::decode(content) {
            self.stats.received.repairs += content.len() as u64;
            self.resumption.came.push(Mended::Bytes {
                stream: place.stream,
                offset: place.offset,
                bytes,
            });
        }
    }

    /// No more than so many bytes of streams are not acknowledged.
    pub(crate) fn on_in_flight(&mut self, bytes: u64) {
        self.resumption.outstanding.trim(bytes);
    }

    /// Where the peer has just said that it waits.
    pub(crate) fn take_asked(&mut self) -> Option<Awaited> {
        self.resumption.asked.take()
    }

    /// What the peer waits for, as DATAGRAM frames of at most `size` bytes, `most` together: once in a round trip, for an
    /// answer is under way for half of one.
    pub(crate) fn say_again(
        &mut self,
        (now, rtt): (Instant, Duration),
        awaited: &Awaited,
        size: usize,
        most: usize,
    ) -> Vec<Bytes> {
        let resumption = &mut self.resumption;
        if resumption.next.is_some_and(|next| now < next) {
            return Vec::new();
        }
        let size = size.saturating_sub(AGAIN_HEAD);
        let pieces = resumption.outstanding.at(&awaited.places, size, most);
        let pause = if pieces.is_empty() {
            (rtt / LOOKS).max(LOOK)
        } else {
            rtt
        };
        resumption.next = Some(now + pause);
        let frames: Vec<Bytes> = pieces.iter().map(|piece| piece.encode().into()).collect();
        self.stats.sent.repairs += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
        frames
    }
}

//! IP packets of one tunnel: those that wait for the link, and those that came over it (`PROTOCOL.md` §14).
//!
//! Devices push and take packets; `lane/writer.rs` lets them and the flows take turns and fills quinn's queue of DATAGRAM frames
//! just before a datagram is built, for what waits there passes everything else. Which packets may cross is decided by
//! whoever holds the device.

use std::collections::VecDeque;
use std::ops::AddAssign;
use std::time::{Duration, Instant};

use bentpipe_proto::packets::{Dropped, Header, Joiner, MIN_FRAME, Packer, Queue, QueueConfig};
use bentpipe_units::{ByteCount, Seed};
use bytes::Bytes;
use quinn_proto::Connection;

/// A packet that has waited longer is not sent: voice is of no use then, and transports have sent it again.
const OLDEST: Duration = Duration::from_secs(1);

/// The part of a tunnel's memory that packets may take while they wait.
const SHARE: u64 = 16;

/// Packets that wait for a device; the shell takes them after each batch that it has read.
const MOST_RECEIVED: usize = 4096;

/// A copy of voice leaves with the next packet of voice that follows after this time, or alone after that. Most codecs have a
/// packet every 20 ms; a burst of losses is over by then, and nobody hears the delay.
const COPY: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(25)];

/// Bytes of voice that are copied in a second: two or three calls. What has more in this class is something else.
const MOST_COPIED: usize = 32_000;

/// A frame that ends a packet which began in the one before, and holds no more than this, is copied as well, in bytes: either may
/// be lost, and a transport inside would see twice the losses of the path. It is a full packet's end in the smallest datagrams.
const SHORT_END: usize = 400;

/// For how long after the last packet somebody is taken to wait for more.
const ACTIVE: Duration = Duration::from_secs(10);

/// Counters for `status`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PacketStats {
    /// Packets that left, or are about to.
    pub sent: u64,
    /// Bytes of the sent packets.
    pub sent_bytes: u64,
    /// Packets that came.
    pub received: u64,
    /// Bytes of the received packets.
    pub received_bytes: u64,
    /// Packets that were not sent, by cause.
    pub dropped: Dropped,
    /// Marked instead of dropped.
    pub marked: u64,
    /// Packets and frames that are none.
    pub malformed: u64,
    /// Pieces whose other pieces were lost.
    pub incomplete: u64,
    /// Came faster than the device took them.
    pub overrun: u64,
}

impl AddAssign for PacketStats {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.received += other.received;
        self.received_bytes += other.received_bytes;
        self.dropped.age += other.dropped.age;
        self.dropped.codel += other.dropped.codel;
        self.dropped.overflow += other.dropped.overflow;
        self.marked += other.marked;
        self.malformed += other.malformed;
        self.incomplete += other.incomplete;
        self.overrun += other.overrun;
    }
}

/// Packets that leave twice, because the path loses some.
#[derive(Debug, Clone, Copy)]
pub(in crate::transport) struct Twice {
    pub(in crate::transport) voice: bool,
    /// Short ends of packets.
    pub(in crate::transport) ends: bool,
}

/// Kind of a frame that came.
#[derive(Debug, Clone, Copy)]
pub(super) struct PacketArrival {
    /// The frame had come before.
    pub(super) copy: bool,
    /// Packets wait of which nobody was told.
    pub(super) news: bool,
}

/// Both directions' packets.
#[derive(Debug)]
pub(super) struct Packets {
    queue: Queue,
    packer: Packer,
    joiner: Joiner,
    received: VecDeque<Bytes>,
    /// An event for the shell is queued and not yet taken.
    notified: bool,
    last: Option<Instant>,
    copies: Copies,
    stats: PacketStats,
}

impl Packets {
    pub(super) fn new(ceiling: u64, seed: Seed) -> Self {
        let config = QueueConfig {
            limit: ByteCount::new(ceiling / SHARE),
            age: OLDEST,
            seed: seed.stream("packets"),
        };
        Self {
            queue: Queue::new(config),
            packer: Packer::default(),
            joiner: Joiner::default(),
            received: VecDeque::new(),
            notified: false,
            last: None,
            copies: Copies::default(),
            stats: PacketStats::default(),
        }
    }

    /// Memory of packets that wait for the link, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.queue.memory()
    }

    pub(super) fn has_output(&self) -> bool {
        !self.queue.is_empty() || self.packer.has_left()
    }

    pub(super) fn is_urgent(&self) -> bool {
        self.queue.is_urgent()
    }

    /// Flows were served `bytes`.
    pub(super) fn on_others(&mut self, bytes: usize) {
        self.queue.on_others(bytes);
    }

    /// Hands the next frame to quinn; returns its size, 0 if nothing was left to send. What leaves twice is in frames of its
    /// own.
    pub(super) fn fill(&mut self, now: Instant, quic: &mut Connection, twice: Twice) -> usize {
        self.queue.set_rtt(quic.rtt());
        let mut datagrams = quic.datagrams();
        let max = datagrams.max_size().unwrap_or(0);
        let Self {
            queue,
            packer,
            copies,
            stats,
            ..
        } = self;
        let voice = twice.voice && queue.is_voice();
        let begun = packer.has_left();
        let next = || {
            let packet = match voice {
                // What has begun is ended first, and alone.
                true if begun => None,
                true => queue.pop_voice(now),
                false => queue.pop(now),
            }?;
            stats.sent += 1;
            stats.sent_bytes += packet.len() as u64;
            Some(packet)
        };
        match packer.frame(max, next) {
            Some(frame) => {
                let mut size = frame.len();
                // Refused only beyond what quinn may hold, which is far more than is ever handed to it.
                let _ = datagrams.send(frame.clone(), false);
                if voice && !begun {
                    copies.push(now, frame);
                } else if twice.ends && begun && size <= SHORT_END {
                    // The end before fits in beside this one.
                    if let Some(copy) = copies.replace_end(now, frame) {
                        size += copy.len();
                        let _ = datagrams.send(copy, false);
                    }
                }
                size
            }
            // A peer that takes no datagrams, although it said that it takes packets.
            None if max < MIN_FRAME => {
                self.queue.clear();
                self.packer = Packer::default();
                0
            }
            None => 0,
        }
    }

    /// Hands quinn the copies that are due; returns their bytes.
    pub(super) fn write_copies(&mut self, now: Instant, quic: &mut Connection) -> usize {
        let wait = if self.queue.is_voice() {
            COPY[0]
        } else {
            COPY[1]
        };
        let mut written = 0;
        let Copies { frames, end, .. } = &mut self.copies;
        let due = || {
            frames
                .pop_front_if(|(at, _)| *at + wait <= now)
                .or_else(|| end.take_if(|(at, _)| *at + COPY[1] <= now))
        };
        for (_, frame) in std::iter::from_fn(due) {
            written += frame.len();
            let _ = quic.datagrams().send(frame, false);
        }
        written
    }

    /// Instant at which a copy leaves if nothing comes before that it could leave with.
    pub(super) fn copy_timeout(&self) -> Option<Instant> {
        let oldest = self.copies.frames.front().into_iter();
        let first = oldest.chain(&self.copies.end).map(|(at, _)| *at).min();
        first.map(|at| at + COPY[1])
    }

    /// Queues a packet for the link; what is no IP packet is counted and dropped.
    pub(super) fn push(&mut self, now: Instant, packet: Bytes) {
        match Header::parse(&packet) {
            Some(header) => {
                self.last = Some(now);
                self.queue.push(now, &header, packet);
            }
            None => self.stats.malformed += 1,
        }
    }

    /// True if a packet has come.
    pub(super) fn has_received(&self) -> bool {
        !self.received.is_empty()
    }

    /// The next packet that has come.
    pub(super) fn pop_received(&mut self) -> Option<Bytes> {
        self.notified = false;
        self.received.pop_front()
    }

    /// A frame came, in an IP packet that was `marked` "congestion experienced" or not.
    pub(super) fn on_frame(
        &mut self,
        now: Instant,
        content: &Bytes,
        marked: bool,
    ) -> PacketArrival {
        let copies = self.joiner.copies();
        let Self {
            joiner,
            received,
            stats,
            ..
        } = self;
        self.last = Some(now);
        let deliver = |packet: Bytes| {
            if received.len() < MOST_RECEIVED {
                stats.received += 1;
                stats.received_bytes += packet.len() as u64;
                received.push_back(packet);
            } else {
                stats.overrun += 1;
            }
        };
        let malformed = joiner.on_frame(content, marked, deliver).is_err();
        stats.malformed += u64::from(malformed);
        let copy = joiner.copies() != copies;
        let news = !self.received.is_empty() && !std::mem::replace(&mut self.notified, true);
        PacketArrival { copy, news }
    }

    /// Until when somebody is taken to wait for packets.
    pub(super) fn active_until(&self) -> Option<Instant> {
        self.last.map(|last| last + ACTIVE)
    }

    /// Counters.
    pub(super) fn stats(&self) -> PacketStats {
        PacketStats {
            dropped: self.queue.dropped(),
            marked: self.queue.marked(),
            incomplete: self.joiner.discarded(),
            ..self.stats
        }
    }
}

/// Frames of voice, and the last packet's end, that leave once more: with the next one, or alone if that does not come soon.
#[derive(Debug, Default)]
pub(super) struct Copies {
    frames: VecDeque<(Instant, Bytes)>,
    end: Option<(Instant, Bytes)>,
    /// Bytes that may be copied now, and since when.
    room: usize,
    since: Option<Instant>,
}

impl Copies {
    fn push(&mut self, now: Instant, frame: Bytes) {
        if self.takes(now, frame.len()) {
            self.frames.push_back((now, frame));
        }
    }

    /// Keeps the end of a packet; returns that of the one before.
    fn replace_end(&mut self, now: Instant, frame: Bytes) -> Option<Bytes> {
        let end = self.takes(now, frame.len()).then_some((now, frame));
        std::mem::replace(&mut self.end, end).map(|(_, frame)| frame)
    }

    /// True if so many bytes more are to be copied.
    fn takes(&mut self, now: Instant, bytes: usize) -> bool {
        let since = self.since.replace(now).map(|since| now - since);
        let earned = since.map_or(MOST_COPIED, |span| {
            (span.as_secs_f64() * MOST_COPIED as f64) as usize
        });
        self.room = self.room.saturating_add(earned).min(MOST_COPIED);
        let left = self.room.checked_sub(bytes);
        self.room = left.unwrap_or(self.room);
        left.is_some()
    }
}

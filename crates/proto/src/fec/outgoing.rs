//! The sender's half: remembers what streams were given lately, and makes repairs when they have run dry.
//!
//! A stream has run dry when its sender has nothing more for it now. Some milliseconds after the last of all was given anything,
//! because a burst of losses is to be over and because an origin that delivers in small pieces has not ended, everything that
//! such streams carried within the horizon becomes a block, and its repairs leave. What was in a block once is not in another.

mod encode;
mod recent;
mod sizes;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::block::{MAX_RANGES, Range};
use super::policy::{Credit, Fec, Loss, Path};
use recent::Recent;
use sizes::Sizes;

/// A second sending follows the first by this share of a round trip, within bounds.
const PAUSE_SHARE: u32 = 32;
const PAUSE: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(25)];
/// Shortest round trip over which repairs are worth their cost. Below, what was lost is there again about when a repair would be, for
/// it leaves after a pause of 4 ms; and at the rates of near paths the receiver spends a third of its CPU time on what it keeps.
const SHORTEST_ROUND_TRIP: Duration = Duration::from_millis(10);
/// While other streams go on, repairs of those that are dry wait for them for this share of a round trip at most. One block of many
/// packets needs far fewer repairs than many blocks of a few, and what is lost comes after that share and not after a round trip.
const LONGEST_PAUSE_SHARE: u32 = 2;
/// A block of so many bytes has little to gain from more.
const ENOUGH: u64 = 256 << 10;
/// In so many round trips quinn sees a loss, and what was lost has left again.
const AGAIN: f32 = 1.125;
/// Generations of retransmissions that are tracked; older bytes are taken to have come.
const GENERATIONS: i32 = 3;
/// Bytes of a packet, about.
const PACKET: f64 = 1400.0;
/// Share of packets lost from which a call is worth twice its bytes: fewer lost frames are not heard.
const AUDIBLE: f64 = 0.002;
/// Losses, as a share, of which a transport inside a tunnel would suffer if it had twice as many.
const MATTERS: f64 = 0.005;
/// Blocks that wait for being encoded.
const MOST_WAITING: usize = 256;

/// Counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairStats {
    /// Repairs that left, in packets.
    pub packets: u64,
    /// Length of the repairs, in bytes.
    pub bytes: u64,
}

/// Streams as their sender remembers them.
#[derive(Debug, Default)]
pub struct Outgoing {
    fec: Fec,
    loss: Option<Loss>,
    /// Bytes that may be remembered.
    limit: u64,
    rtt: Duration,
    recent: Recent,
    /// Instant at which a stream was given something last.
    written: Option<Instant>,
    /// Streams that have run dry, and when.
    dry: BTreeMap<u64, Instant>,
    blocks: VecDeque<Block>,
    next_block: u64,
    repairs: VecDeque<Bytes>,
    /// Since when blocks or repairs wait, if any do.
    waiting: Option<Instant>,
    credit: Credit,
    stats: RepairStats,
}

#[derive(Debug, Default)]
struct Block {
    ranges: Vec<Range>,
    content: Vec<Bytes>,
    /// Bytes of the content.
    total: usize,
    /// Bytes that left once and may be lost; what has left twice counts for the share that is lost, and so on.
    at_risk: f64,
}

impl Outgoing {
    /// Sets how to repair; `limit` is the number of bytes that both ends remember.
    pub fn configure(&mut self, fec: Fec, limit: u64) {
        (self.fec, self.limit) = (fec, limit);
    }

    /// Takes what is known of the path now; without a loss, or on a near path, nothing is repaired unless a fixed rate was asked for.
    pub fn on_path(&mut self, path: &Path) {
        (self.loss, self.rtt) = (path.loss, path.rtt);
        self.credit.on_path(path);
        if !self.is_active() && self.recent.has_begun() {
            self.forget();
        }
    }

    /// True while repairs are to be made: only then is anything remembered.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.limit > 0
            && match self.fec {
                Fec::Off => false,
                Fec::Auto => self.loss.is_some() && self.rtt >= SHORTEST_ROUND_TRIP,
                Fec::Fixed { .. } => true,
            }
    }

    /// `bytes` left for the path.
    pub fn on_sent(&mut self, bytes: u64) {
        self.credit.on_sent(bytes);
    }

    /// `stream` was given `bytes` at `offset`.
    pub fn on_written(&mut self, now: Instant, stream: u64, offset: u64, bytes: Bytes) {
        self.dry.remove(&stream);
        if bytes.is_empty() || !self.is_active() {
            return;
        }
        self.written = Some(now);
        self.recent.push(now, stream, offset, bytes);
        self.trim(now);
    }

    /// `stream` has nothing more to be given now, or ever (`fin`); it was given `offset` bytes in all.
    pub fn on_dry(&mut self, now: Instant, stream: u64, offset: u64, fin: bool) {
        if !self.is_active() {
            return;
        }
        self.recent.on_dry(stream, offset, fin);
        self.dry.entry(stream).or_insert(now);
    }

    /// `stream` was reset: what it carried is not wanted.
    pub fn on_reset(&mut self, stream: u64) {
        self.dry.remove(&stream);
        self.recent.take(stream);
    }

    /// Instant at which repairs are due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let due = self.dry.values().min().map(|since| {
            let written = self.written.map_or(*since, |at| at.max(*since));
            (written + self.pause()).min(*since + self.longest_pause())
        });
        [due, self.waiting].into_iter().flatten().min()
    }

    /// The next repair, as the content of a DATAGRAM frame of at most `size` bytes.
    pub fn poll(&mut self, now: Instant, size: usize) -> Option<Bytes> {
        if self.poll_timeout().is_none_or(|due| now < due) {
            return None;
        }
        if self.waiting.is_none() {
            self.gather(now, size);
        }
        while self.repairs.is_empty() {
            let Some(block) = self.blocks.pop_front() else {
                self.waiting = None;
                return None;
            };
            self.encode(&block, size);
        }
        let repair = self.repairs.pop_front()?;
        if self.repairs.is_empty() && self.blocks.is_empty() {
            self.waiting = None;
        }
        self.stats.packets += 1;
        self.stats.bytes += repair.len() as u64;
        Some(repair)
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> RepairStats {
        self.stats
    }

    /// Memory held, in bytes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.recent.held()
    }

    /// While other streams are given something, one that is dry waits for them for so long at most; not if enough is dry.
    fn longest_pause(&self) -> Duration {
        let held = self.dry.keys().map(|stream| self.recent.held_of(*stream));
        if held.sum::<u64>() >= ENOUGH {
            return self.pause();
        }
        (self.rtt / LONGEST_PAUSE_SHARE).max(self.pause())
    }

    fn pause(&self) -> Duration {
        (self.rtt / PAUSE_SHARE).clamp(PAUSE[0], PAUSE[1])
    }

    fn forget(&mut self) {
        self.recent.clear();
        self.dry.clear();
    }

    /// Forgets what is too old or too much.
    fn trim(&mut self, now: Instant) {
        let horizon = self.rtt.mul_f32(AGAIN) * GENERATIONS.unsigned_abs() + PAUSE[1];
        let dry = &self.dry;
        self.recent
            .trim(now, horizon, self.limit, |stream| dry.contains_key(&stream));
    }

    /// Loss that decides on the repairs; absent if as much is repaired whatever is lost.
    fn loss_heeded(&self) -> Option<Loss> {
        self.loss.filter(|_| self.fec == Fec::Auto)
    }

    /// The share of bytes written so long ago that is at risk as much as new ones: all but what is lost has come by now.
    fn at_risk(&self, age: Duration) -> f64 {
        let again = self.rtt.mul_f32(AGAIN) + PAUSE[1];
        let left = age.as_secs_f64() / again.as_secs_f64();
        let share = self.loss_heeded().map_or(1.0, |loss| loss.share);
        #[expect(clippy::cast_possible_truncation, reason = "few generations")]
        share.powi(left as i32)
    }

    /// Makes blocks of what the streams carried that have been dry for half the pause, for packets of `size` bytes.
    fn gather(&mut self, now: Instant, size: usize) {
        self.trim(now);
        let sizes = Sizes::new(self, size);
        let pause = self.pause() / 2;
        let mut block = Block::default();
        let ripe = |(_, since): &(&u64, &Instant)| **since + pause <= now;
        let streams: Vec<_> = self.dry.iter().filter(ripe).map(|(s, _)| *s).collect();
        for stream in streams {
            self.dry.remove(&stream);
            let Some(run) = self.recent.take(stream) else {
                continue;
            };
            let mut start = run.start;
            let mut open = false;
            for chunk in &run.chunks {
                if sizes.end(&block, chunk.bytes.len()) || !open && block.ranges.len() == MAX_RANGES
                {
                    self.enqueue(std::mem::take(&mut block));
                    open = false;
                }
                if !open {
                    block.ranges.push(Range {
                        stream,
                        start,
                        end: start,
                        fin: false,
                    });
                    open = true;
                }
                start += chunk.bytes.len() as u64;
                block.total += chunk.bytes.len();
                block.content.push(chunk.bytes.clone());
                let age = now.saturating_duration_since(chunk.sent);
                block.at_risk += self.at_risk(age) * chunk.bytes.len() as f64;
                if let Some(range) = block.ranges.last_mut() {
                    range.end = start;
                }
            }
            if run.fin {
                if !open && block.ranges.len() == MAX_RANGES {
                    self.enqueue(std::mem::take(&mut block));
                }
                if !open {
                    block.ranges.push(Range {
                        stream,
                        start,
                        end: start,
                        fin: true,
                    });
                } else if let Some(range) = block.ranges.last_mut() {
                    range.fin = true;
                }
            }
        }
        self.enqueue(block);
        self.waiting = (!self.blocks.is_empty()).then_some(now);
    }

    fn enqueue(&mut self, block: Block) {
        if !block.ranges.is_empty() && self.blocks.len() < MOST_WAITING {
            self.blocks.push_back(block);
        }
    }

    fn pay(&mut self, bytes: usize) -> bool {
        match (self.fec, self.loss) {
            (Fec::Fixed { .. }, _) => true,
            (_, loss) => loss.is_some_and(|loss| self.credit.spend(bytes, loss)),
        }
    }

    /// True if packets that stand alone are to leave twice, which the code can do nothing for: the peer cannot know what they
    /// begin.
    #[must_use]
    pub fn wants_copies(&self) -> bool {
        self.fec != Fec::Off && self.loss.is_some()
    }

    /// True if frames of voice are to leave twice.
    #[must_use]
    pub fn wants_voice(&self) -> bool {
        self.wants_copies_from(AUDIBLE)
    }

    fn wants_copies_from(&self, share: f64) -> bool {
        self.wants_copies() && self.loss.is_some_and(|loss| loss.share >= share)
    }

    /// True if what ends a packet that began in another datagram is to leave twice as well.
    #[must_use]
    pub fn wants_ends(&self) -> bool {
        self.wants_copies_from(MATTERS)
    }

    /// A copy of so many bytes is about to leave; false if the session has not earned it.
    pub fn pay_copy(&mut self, bytes: usize) -> bool {
        self.pay(bytes)
    }

    /// `bytes` came from the peer.
    pub fn on_received(&mut self, bytes: u64) {
        self.credit.on_received(bytes);
    }
}

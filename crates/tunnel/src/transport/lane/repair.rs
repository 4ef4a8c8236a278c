//! Losses mended without a round trip, at both ends of a tunnel: what streams are given and bring goes through here, what
//! repairs mend goes to the flows. The code and its rate are `proto/fec`'s business.

use std::time::{Duration, Instant};

use bentpipe_proto::fec::{Fec, Incoming, MendStats, Outgoing, Path, RepairStats};
use bentpipe_proto::tunnel::{Hello, capability};
use quinn_proto::Connection;

/// The share of a tunnel's memory that is kept, beside what its LAN sides may take, to mend what is missing.
const SHARE: u64 = 4;
/// The peer keeps this at least,
const LEAST_KEPT: u64 = 1 << 20;
/// or this many times what is remembered here: that grows until the peer hears of it.
const AHEAD: u64 = 2;
/// After so long without a need for repairs the peer keeps nothing any more.
const RELEASED: Duration = Duration::from_secs(30);

/// Both halves, and what was agreed.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    pub(super) outgoing: Outgoing,
    pub(super) incoming: Incoming,
    /// Bytes that the peer was asked to keep.
    asked: u64,
    /// Bytes that the peer asks to be kept, as far as this side would keep them if no other tunnel needed memory.
    agreed: u64,
    /// Instant at which repairs were last wanted.
    wanted: Option<Instant>,
    /// The peer was seen to repair.
    warned: bool,
}

/// Repairs made, and what the peer's have mended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FecStats {
    /// Repairs that left.
    pub sent: RepairStats,
    /// Repairs that came.
    pub received: MendStats,
}

impl Repairs {
    /// Writes into `hello` what it says of repairs, of a tunnel that may hold `ceiling` bytes.
    pub(super) fn announce(hello: &mut Hello, ceiling: u64) {
        hello.capabilities |= capability::REPAIR;
        hello.repair_window = ceiling / SHARE;
    }

    /// Has what is sent repaired as `fec` says; the peer can keep `window` bytes for that.
    pub(super) fn configure(&mut self, fec: Fec, window: u64, ceiling: u64) {
        self.outgoing.configure(fec, window.min(ceiling / SHARE));
    }

    /// `bytes` leave over a path of which so much is known. Returns what the peer is to keep from now on, in bytes, if that is
    /// something else than before.
    pub(super) fn on_path(&mut self, now: Instant, bytes: usize, path: &Path) -> Option<u64> {
        let Self {
            outgoing,
            asked,
            wanted,
            ..
        } = self;
        outgoing.on_path(path);
        outgoing.on_sent(bytes as u64);
        if !outgoing.is_active() {
            let released = wanted.is_some_and(|wanted| now >= wanted + RELEASED);
            return released.then(|| {
                (*wanted, *asked) = (None, 0);
                0
            });
        }
        *wanted = Some(now);
        let needed = (outgoing.memory() * AHEAD).max(LEAST_KEPT);
        (needed > *asked).then(|| {
            *asked = needed + needed / 2;
            *asked
        })
    }

    /// `bytes` came over the path. True if the peer has begun to repair.
    pub(super) fn on_received(&mut self, bytes: usize) -> bool {
        self.outgoing.on_received(bytes as u64);
        let repairs = self.incoming.stats().repairs > 0;
        repairs && !std::mem::replace(&mut self.warned, true)
    }

    /// Hands quinn repairs of about `max` bytes that are due. Returns how many bytes they take.
    pub(super) fn write(&mut self, now: Instant, quic: &mut Connection, max: usize) -> usize {
        let due = self.outgoing.poll_timeout();
        if due.is_none_or(|due| now < due) {
            return 0;
        }
        let mut datagrams = quic.datagrams();
        // Without room for any what is due is given up: it would be due for ever.
        let size = datagrams.max_size().unwrap_or(0);
        let mut written = 0;
        while written < max
            && let Some(repair) = self.outgoing.poll(now, size)
        {
            let length = repair.len();
            // There is room for it: no more than a batch is ever waiting. One that was made while the path took larger datagrams
            // is dropped: what it would repair is said again by QUIC.
            if datagrams.send(repair, false).is_ok() {
                written += length;
            }
        }
        written
    }

    /// The peer wants so much kept, of a tunnel that may hold `ceiling` bytes.
    pub(super) fn on_keep(&mut self, bytes: u64, ceiling: u64) {
        self.agreed = bytes.min(ceiling / SHARE);
        self.incoming.keep(self.agreed);
    }

    /// Keeps no more than `bytes` until [`Self::keep_more`]: other tunnels need memory.
    pub(super) fn keep_less(&mut self, bytes: u64) {
        let limit = self.incoming.limit();
        if bytes < limit.max(self.incoming.memory()) {
            self.incoming.keep(bytes.min(limit));
        }
    }

    /// Keeps up to `bytes` again, as far as the peer asks for that.
    pub(super) fn keep_more(&mut self, bytes: u64) {
        let bytes = bytes.min(self.agreed);
        if bytes > self.incoming.limit() {
            self.incoming.keep(bytes);
        }
    }

    /// Counters.
    pub(super) fn stats(&self) -> FecStats {
        FecStats {
            sent: self.outgoing.stats(),
            received: self.incoming.stats(),
        }
    }
}

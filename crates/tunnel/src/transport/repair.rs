//! Losses mended without a round trip, at both ends of a tunnel: what streams are given and bring goes through here, what
//! repairs mend goes to the flows. The code and its rate are `proto/fec`'s business.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bentpipe_proto::fec::{Fec, Incoming, MendStats, Mended, Outgoing, Path, RepairStats};
use bentpipe_proto::tunnel::{Control, Hello, capability};
use bytes::Bytes;
use quinn_proto::Connection;

use super::event::Fault;
use super::flow::FlowKey;
use super::tunnel::Tunnel;

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
    /// What the peer was asked to keep.
    asked: u64,
    /// When repairs were last wanted.
    wanted: Option<Instant>,
    /// The peer was seen to repair.
    warned: bool,
}

/// Repairs made, and what the peer's have mended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FecStats {
    /// What left.
    pub sent: RepairStats,
    /// What came.
    pub received: MendStats,
}

impl Tunnel {
    /// What HELLO says of repairs.
    pub(super) fn announce_repairs(&self, hello: &mut Hello) {
        hello.capabilities |= capability::REPAIR;
        hello.repair_window = self.ceiling / SHARE;
    }

    /// What this side sends is to be repaired as `fec` says, if the peer can make use of that.
    pub(crate) fn set_fec(&mut self, fec: Fec) {
        let window = match &self.remote {
            Some(hello) if hello.capabilities & capability::REPAIR != 0 => hello.repair_window,
            _ => 0,
        };
        let limit = window.min(self.ceiling / SHARE);
        self.repairs.outgoing.configure(fec, limit);
    }

    /// `bytes` leave over a path of which so much is known.
    pub(crate) fn on_path(&mut self, now: Instant, bytes: usize, path: &Path) {
        let Repairs {
            outgoing,
            asked,
            wanted,
            ..
        } = &mut self.repairs;
        outgoing.on_path(path);
        outgoing.on_sent(bytes as u64);
        if !outgoing.is_active() {
            if wanted.is_some_and(|wanted| now >= wanted + RELEASED) {
                (*wanted, *asked) = (None, 0);
                self.send_control(&Control::Keep { bytes: 0 });
            }
            return;
        }
        *wanted = Some(now);
        let needed = (outgoing.memory() * AHEAD).max(LEAST_KEPT);
        if needed > *asked {
            *asked = needed + needed / 2;
            let bytes = *asked;
            self.send_control(&Control::Keep { bytes });
        }
    }

    /// Datagrams in which something stands alone are to leave twice.
    pub(crate) fn wants_copies(&self) -> bool {
        self.repairs.outgoing.wants_copies()
    }

    /// Short ends of packets are to leave twice.
    pub(super) fn wants_ends(&self) -> bool {
        self.repairs.outgoing.wants_ends()
    }

    /// A copy of so many bytes is about to leave; false if that is too much.
    pub(crate) fn pay_copy(&mut self, bytes: usize) -> bool {
        self.repairs.outgoing.pay_copy(bytes)
    }

    /// `bytes` came over the path. True if the peer has begun to repair.
    pub(crate) fn on_path_received(&mut self, bytes: usize) -> bool {
        self.repairs.outgoing.on_received(bytes as u64);
        let repairs = self.repairs.incoming.stats().repairs > 0;
        repairs && !std::mem::replace(&mut self.repairs.warned, true)
    }

    /// When [`Self::write`] has repairs to write.
    pub(crate) fn repair_timeout(&self) -> Option<Instant> {
        let copies = self.packets.copy_timeout();
        let repairs = self.repairs.outgoing.poll_timeout();
        [copies, repairs].into_iter().flatten().min()
    }

    /// Hands quinn repairs of about `max` bytes that are due. Returns how many bytes they take.
    pub(super) fn write_repairs(
        &mut self,
        now: Instant,
        quic: &mut Connection,
        max: usize,
    ) -> usize {
        let mut written = self.packets.write_copies(now, quic);
        let due = self.repairs.outgoing.poll_timeout();
        if due.is_none_or(|due| now < due) {
            return written;
        }
        let mut datagrams = quic.datagrams();
        let Some(size) = datagrams.max_size() else {
            return written;
        };
        while written < max
            && let Some(repair) = self.repairs.outgoing.poll(now, size)
        {
            written += repair.len();
            // There is room for it: no more than a batch is ever waiting.
            let _ = datagrams.send(repair, false);
        }
        written
    }

    /// The peer wants so much kept.
    pub(super) fn on_keep(&mut self, bytes: u64) {
        self.repairs.incoming.keep(bytes.min(self.ceiling / SHARE));
    }

    /// A DATAGRAM frame came. What streams brought before it has to be read before [`Self::mend`].
    pub(super) fn on_repair(&mut self, content: &Bytes) {
        if self.repairs.incoming.on_datagram(content) {
            self.stats.received.repairs += content.len() as u64;
        }
    }

    /// Repairs wait to be decoded.
    pub(crate) fn has_repairs(&self) -> bool {
        self.repairs.incoming.has_work()
    }

    /// Decodes some of them, which [`Self::mend`] then gives to the flows. True if there are more.
    pub(crate) fn decode_repairs(&mut self, now: Instant) -> bool {
        self.repairs.incoming.work(now)
    }

    fn next_mended(&mut self) -> Option<Mended> {
        let again = self.resumption.poll();
        again.or_else(|| self.repairs.incoming.poll())
    }

    /// Gives flows what repairs have mended, or was said again.
    pub(crate) fn mend(&mut self, now: Instant, quic: &mut Connection) -> Result<(), Fault> {
        let mut flows = BTreeSet::new();
        while let Some(mended) = self.next_mended() {
            let (Mended::Bytes { stream, .. } | Mended::End { stream, .. }) = mended;
            let key = FlowKey(stream);
            let flow = self.flows.get_mut(&key).filter(|flow| !flow.recv_done);
            if let Some(flow) = flow {
                let (before, had) = (flow.receiver.memory(), flow.receiver.taken());
                match mended {
                    Mended::Bytes { offset, bytes, .. } => flow.receiver.insert(offset, bytes)?,
                    Mended::End { offset, .. } => flow.receiver.finish_at(offset),
                }
                self.stats.received.flows += flow.receiver.taken() - had;
                self.held = (self.held + flow.receiver.memory()).saturating_sub(before);
                flows.insert(key);
            }
        }
        for key in flows {
            if let Some(flow) = self.flows.get_mut(&key) {
                flow.stop_if_whole(quic, key.stream());
            }
            self.on_bytes(now, quic, key)?;
        }
        Ok(())
    }

    /// `stream` took `written` bytes of `chunks` behind `offset`, which are to be `repaired` or not.
    pub(super) fn remember(
        &mut self,
        now: Instant,
        key: FlowKey,
        (mut offset, written): (u64, usize),
        chunks: Vec<Bytes>,
        repaired: bool,
    ) {
        let mut left = written;
        for mut chunk in chunks {
            chunk.truncate(left);
            left -= chunk.len();
            let length = chunk.len() as u64;
            self.resumption.on_written(key, offset, chunk.clone());
            if repaired {
                self.repairs.outgoing.on_written(now, key.0, offset, chunk);
            }
            offset += length;
        }
    }

    /// Bytes kept of what streams brought, and of the peer's repairs.
    pub fn kept(&self) -> u64 {
        self.repairs.incoming.memory()
    }

    /// Counters of repairs.
    pub fn fec(&self) -> FecStats {
        FecStats {
            sent: self.repairs.outgoing.stats(),
            received: self.repairs.incoming.stats(),
        }
    }
}

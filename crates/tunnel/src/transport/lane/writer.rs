//! From flows to streams and from packets to DATAGRAM frames: fills quinn just before a datagram is built.

use std::time::Instant;

use bytes::Bytes;

use super::super::key::FlowKey;
use super::super::streams::Streams;
use super::super::tunnel::{Piece, Rivals, Tunnel, Turn, Twice};
use super::Lane;
use super::control::ControlStream;

/// Among others that have been served much, a flow takes one part in so many of a batch that is written ahead.
const BULK_TURNS: usize = 4;

/// Bounds of what is to be written into quinn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batch {
    /// Bytes, about.
    pub(crate) max: usize,
    /// As many, if that is more, while nothing but bulk waits, which is then in fewer pieces.
    pub(crate) bulk: usize,
    /// Payload of a packet.
    pub(crate) mtu: usize,
}

impl Batch {
    /// Bytes of the batch for one flow among its rivals: alone, it fills the batch; among others it fills one packet, or some
    /// among bulk.
    fn share(self, rivals: Rivals) -> usize {
        let packet = self.mtu.min(self.max);
        if rivals.packets {
            packet
        } else if !rivals.flows {
            self.max.max(self.bulk)
        } else if rivals.bulk {
            packet.max(self.bulk / BULK_TURNS)
        } else {
            packet
        }
    }

    /// Rest of the batch after `done` bytes.
    fn rest(self, done: usize) -> Self {
        Self {
            max: self.max.saturating_sub(done),
            bulk: self.bulk.saturating_sub(done),
            ..self
        }
    }
}

/// Bytes that were handed to quinn.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Written {
    /// In streams.
    pub(crate) streams: usize,
    /// In DATAGRAM frames.
    pub(crate) datagrams: usize,
    /// Of those in streams, the bytes that no repair can bring back (`engine/lone_copies.rs`).
    pub(crate) alone: usize,
}

impl Written {
    pub(crate) fn total(self) -> usize {
        self.streams + self.datagrams
    }
}

impl Lane {
    /// Hands quinn a batch: control frames, repairs that are due, then packets and flows in turn.
    pub(crate) fn write(
        &mut self,
        now: Instant,
        tunnel: &mut Tunnel,
        quic: &mut Streams,
        batch: Batch,
    ) -> Written {
        let mut written = Written::default();
        if let Some(control) = &mut self.control {
            let (bytes, pressing) = control.flush(quic, tunnel.outbox());
            written.streams = bytes;
            written.alone = if pressing { bytes } else { 0 };
            tunnel.stats_mut().sent.control += bytes as u64;
        }
        let queries = self
            .queries
            .write(quic, batch.max.saturating_sub(written.total()));
        tunnel.stats_mut().sent.dns += queries.bytes as u64;
        written.alone += queries.weight;
        written.streams += queries.weight;
        let repairs = self.write_repairs(now, tunnel, quic, batch.rest(written.total()).max);
        written.datagrams += repairs;
        let twice = Twice {
            voice: self.repairs.outgoing.wants_voice(),
            ends: self.repairs.outgoing.wants_ends(),
        };
        while written.total() < batch.max
            && let Some(turn) = tunnel.turn()
        {
            match turn {
                Turn::Packets => written.datagrams += tunnel.write_packets(now, quic, twice),
                Turn::Flows => {
                    let rest = batch.rest(written.total());
                    let share = |rivals| rest.share(rivals);
                    if let Some((key, piece)) = tunnel.write_flow(quic, share) {
                        let weight = piece.weight();
                        if piece.opens {
                            written.alone += weight.min(batch.mtu);
                        }
                        self.remember(now, key, piece);
                        written.streams += weight;
                    }
                }
            }
        }
        written
    }

    /// Hands quinn copies of packets and repairs of about `max` bytes that are due. Returns how many bytes they take.
    fn write_repairs(
        &mut self,
        now: Instant,
        tunnel: &mut Tunnel,
        quic: &mut Streams,
        max: usize,
    ) -> usize {
        let mut written = tunnel.write_copies(now, quic);
        written += self.repairs.write(now, quic, max.saturating_sub(written));
        tunnel.stats_mut().sent.repairs += written as u64;
        written
    }

    /// Instant at which [`Self::write`] has repairs to write.
    pub(crate) fn repair_timeout(&self, tunnel: &Tunnel) -> Option<Instant> {
        let repairs = self.repairs.outgoing.poll_timeout();
        [tunnel.copy_timeout(), repairs].into_iter().flatten().min()
    }

    /// A stream took a piece: it may have to be repaired, or said again.
    fn remember(&mut self, now: Instant, key: FlowKey, piece: Piece) {
        let outgoing = &mut self.repairs.outgoing;
        // A request that leaves twice needs no repair.
        let copied = piece.opens && piece.dry && !piece.fin && outgoing.wants_copies();
        let (mut offset, mut left) = (piece.offset, piece.written);
        for mut chunk in piece.chunks {
            chunk.truncate(left);
            left -= chunk.len();
            let length = chunk.len() as u64;
            self.resumption
                .on_written(key, offset, Bytes::clone(&chunk));
            if !copied {
                outgoing.on_written(now, key.0, offset, chunk);
            }
            offset += length;
        }
        if piece.dry && !copied {
            let sent = piece.offset + piece.written as u64;
            outgoing.on_dry(now, key.0, sent, piece.fin);
        }
    }

    /// True if [`Self::write`] would write something.
    pub(crate) fn has_output(&self, tunnel: &Tunnel) -> bool {
        tunnel.has_output()
            || self.queries.has_output()
            || self.control.as_ref().is_some_and(ControlStream::has_output)
    }
}

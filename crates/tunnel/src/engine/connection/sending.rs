//! What a connection sends now: proofs and probes, a train, data as far as window and pacer permit, what must not wait.
//!
//! Every datagram comes from quinn's `poll_transmit`, with the gate open or shut; `lone_copies.rs` and `handshake_copies.rs` send some of
//! them again. Whose bytes are in them is the tunnel's business.

use std::time::Instant;

use bentpipe_congestion::{LARGEST_BATCH, MAX_BATCH as PACED_BATCH};
use bentpipe_proto::fec::Path;
use bentpipe_proto::tunnel::{Awaited, MAX_TRAIN};
use quinn_proto::Transmit;

use super::super::tuning::DATAGRAM_BUFFER;
use super::acknowledgements::ack_eliciting;
use super::backlog::{SentBatch, written_ahead};
use super::{Connection, LEAST_ROOM, Shut};
use crate::transport::{Batch, Written};

/// Most datagrams built in one go, of data that the pacer permits, and of everything else.
const MOST: usize = LARGEST_BATCH as usize;
const MAX_BATCH: usize = PACED_BATCH as usize;

/// Share of a round trip's bytes that may be said again.
const OF_ROUND: u64 = 4;

impl Connection {
    /// The next datagrams to send, if any may leave now.
    pub(in crate::engine) fn poll_transmit(
        &mut self,
        now: Instant,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if self.validation.is_muted() {
            return None;
        }
        let transmit = self.next_transmit(now, buf)?;
        let count = transmit.size.div_ceil(size_of_each(&transmit).max(1)) as u64;
        self.validation.on_sent(transmit.size, count);
        let frames = self.quic.stats().frame_tx;
        self.acks.on_frames_sent(&frames);
        let headers = self.control.headers();
        let handshake = !self.stage.is_established();
        self.books
            .on_sent(frames, transmit.size as u64, count, headers, handshake);
        Some(transmit)
    }

    fn next_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        if self.stage.take_greeting() {
            self.greet(now);
        }
        // The new address is asked to prove itself (RFC 9000 §8.2) before quinn spends on a probe of its packet size what
        // may be sent there unproven. The first datagram still goes to the old address.
        if self.validation.is_moved()
            && let Some((transmit, _)) = self.transmit_through_gate(now, 1, buf)
        {
            if transmit.destination == self.quic.remote_address() {
                self.validation.end_move();
            }
            return Some(transmit);
        }
        self.validation.end_move();
        let room = self.validation.room();
        if let Some(transmit) = self.duplicates.poll_handshake(now, room, buf) {
            return Some(transmit);
        }
        self.report_train();
        self.update_prober(now);
        if self.liveness.poll_probe(now, &mut self.quic) {
            self.probe(now);
            // How fast probes are acknowledged is not how fast the path is.
            self.control.gate.flight().set_app_limited();
            return self.transmit_one(now, buf);
        }
        self.demand_acks(now);
        let transmit = self
            .transmit_due_ack(now, buf)
            .or_else(|| self.transmit_again(now, buf))
            .or_else(|| self.transmit_train(now, buf))
            .or_else(|| self.transmit_data(now, buf))
            .or_else(|| self.transmit_exempt(now, buf));
        if transmit.is_some() {
            self.acks.on_sent();
        }
        transmit
    }

    /// Tells the peer when to acknowledge, where the window is too small to wait for what QUIC has
    /// asked for; until the peer knows, and as long as it may hold ACKs back, the window is larger.
    fn demand_acks(&mut self, now: Instant) {
        if !self.tunnel.agreement().heeds_ack_wishes() {
            return;
        }
        let rtt = self.quic.rtt();
        let mut flight = self.control.gate.flight();
        flight.set_ack_delay(self.acks.allowance(now, rtt));
        let packets = flight.window() / u64::from(self.quic.current_mtu());
        drop(flight);
        if let Some(acks) = self.acks.poll_wish(now, packets, rtt) {
            self.lane.wish_acks(acks);
        }
    }

    /// An ACK that QUIC would hold back: it rides on a PING, which passes window and pacer.
    fn transmit_due_ack(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        if !self.acks.take_due(now) {
            return None;
        }
        self.quic.ping();
        // How fast it is acknowledged is not how fast the path is.
        self.control.gate.flight().keep_app_limited();
        let transmit = self.transmit_one(now, buf);
        if transmit.is_none() {
            self.acks.on_unsendable();
        }
        transmit
    }

    /// Sends what the peer waits for after a silence, whatever the window says: what fills that is in flight no more.
    fn transmit_again(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        let asked = self.lane.take_asked();
        let rtt = self.quic.rtt();
        if let Some(awaited) = asked.filter(|_| self.liveness.has_returned(now, rtt)) {
            self.load_again(now, &awaited);
        }
        let permits = self.backlog.repeated().min(MAX_BATCH);
        if permits == 0 {
            return None;
        }
        let transmit = self.transmit_through_gate(now, permits, buf);
        let Some((transmit, _)) = transmit else {
            self.backlog.set_repeated(0);
            return None;
        };
        let mtu = usize::from(self.quic.current_mtu());
        self.backlog.on_repeated_sent(transmit.size.div_ceil(mtu));
        let rate = self.control.gate.flight().controller().pacing_rate();
        self.permit.on_sent(now, transmit.size, rate);
        Some(transmit)
    }

    /// Hands quinn what the peer waits for, no more than a share of what a round trip carries.
    fn load_again(&mut self, now: Instant, awaited: &Awaited) {
        let rtt = self.quic.rtt();
        let mut flight = self.control.gate.flight();
        // How fast this is acknowledged is not how fast the path is.
        flight.set_app_limited();
        let round = flight.controller().pacing_rate().bytes_in(rtt).as_u64() / OF_ROUND;
        drop(flight);
        let mut datagrams = self.quic.datagrams();
        let Some(size) = datagrams.max_size() else {
            return;
        };
        let most = usize::try_from(round).unwrap_or(usize::MAX);
        let most = most.clamp(size, MAX_BATCH * size);
        let frames = self
            .lane
            .say_again(&mut self.tunnel, (now, rtt), awaited, (size, most));
        let count = frames
            .into_iter()
            .map_while(|frame| datagrams.send(frame, false).ok())
            .count();
        self.backlog.set_repeated(count);
    }

    /// A train, back to back and not paced: its packets are charged. The window bounds the first one, and what follows a later one
    /// is paced as if that had been.
    fn transmit_train(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        let mtu = usize::from(self.quic.current_mtu());
        self.load_train(now, mtu);
        let permits = self.train.left().min(MAX_BATCH);
        if permits == 0 {
            return None;
        }
        let transmit = self.transmit_through_gate(now, permits, buf);
        let size = transmit.as_ref().map_or(0, |(transmit, _)| transmit.size);
        self.train.on_sent(size.div_ceil(mtu));
        if self.train.is_repeated() {
            let rate = self.control.gate.flight().controller().pacing_rate();
            self.permit.on_sent(now, size, rate);
        }
        transmit.map(|(transmit, _)| transmit)
    }

    /// Hands quinn a train: the first one while nothing else is to be sent, later ones in the midst of bulk.
    fn load_train(&mut self, now: Instant, mtu: usize) {
        let mut flight = self.control.gate.flight();
        if !self.control.is_reliable()
            && flight.controller().wants_train(now)
            && self.train.repeat()
        {
            flight.controller_mut().on_train(now);
            drop(flight);
            return self.train.load(&mut self.quic, MAX_TRAIN as usize);
        }
        if !self.train.is_due() || self.backlog.streams() > 0 || self.lane.has_output(&self.tunnel)
        {
            return;
        }
        // How fast these few are acknowledged is not how fast the path is.
        flight.set_app_limited();
        let room = usize::try_from(flight.room() / mtu as u64).unwrap_or(usize::MAX);
        drop(flight);
        self.train.load(&mut self.quic, room);
    }

    /// Data, as far as window and pacer allow. Writes into streams at the last moment.
    fn transmit_data(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        loop {
            let mtu = usize::from(self.quic.current_mtu());
            let permits = match self.permits(now, mtu) {
                Ok(permits) => permits,
                Err(shut) => {
                    self.permit.set(Some(shut));
                    return None;
                }
            };
            self.permit.set(None);
            if let Some(transmit) = self.repeat(now, buf) {
                return Some(transmit);
            }
            let waiting = self.waiting_datagrams();
            let had = self.backlog.streams();
            let written = self.write(now, permits * mtu, waiting, mtu);
            let Some((transmit, lost)) = self.transmit_through_gate(now, permits, buf) else {
                self.backlog.on_dry();
                if written.total() > 0 {
                    return None;
                }
                if had == 0 {
                    self.on_nothing_left(waiting);
                    return None;
                }
                // quinn had less left than thought: write and ask once more.
                continue;
            };
            self.copy_alone(now, &transmit, buf, (had, written.alone), mtu);
            let left = self.waiting_datagrams();
            self.backlog.on_sent(SentBatch {
                size: transmit.size,
                room: permits * mtu,
                mtu,
                written: written.streams,
                lost,
                waiting: waiting + written.datagrams,
                left,
            });
            let mut flight = self.control.gate.flight();
            flight.clear_app_limited();
            let rate = flight.controller().pacing_rate();
            drop(flight);
            self.permit.on_sent(now, transmit.size, rate);
            return Some(transmit);
        }
    }

    /// Writes into streams what fits into `room` bytes beside what quinn still has, and `waiting` bytes of DATAGRAM frames.
    fn write(&mut self, now: Instant, room: usize, waiting: usize, mtu: usize) -> Written {
        let max = self.backlog.wanted(room, waiting);
        if max == 0 {
            return Written::default();
        }
        let flight = self.control.gate.flight();
        let bulk = written_ahead(flight.in_flight(), flight.controller().pacing_rate());
        drop(flight);
        let batch = Batch { max, bulk, mtu };
        self.lane
            .write(now, &mut self.tunnel, &mut self.quic, batch)
    }

    /// Notes that nothing was written and quinn has nothing: either the peer has yet to prove its address, or there is no more to send.
    fn on_nothing_left(&mut self, waiting: usize) {
        if waiting > 0 {
            self.permit.set(Some(Shut::Unproven));
        } else {
            self.control.gate.flight().set_app_limited();
        }
    }

    /// Keeps a copy of what stands `alone` in a batch that has just left, behind the bytes that quinn `had` from before.
    fn copy_alone(
        &mut self,
        now: Instant,
        batch: &Transmit,
        buf: &[u8],
        (had, alone): (usize, usize),
        mtu: usize,
    ) {
        if alone > 0 && !self.control.is_reliable() && self.lane.wants_copies() {
            // Behind what was left from before it may be anywhere in the batch; else it comes first.
            let first = if had > 0 { MOST } else { 1 + alone / mtu };
            self.duplicates
                .on_alone(now, batch, buf, first, self.quic.rtt());
        }
    }

    /// Bytes of DATAGRAM frames that quinn still has, each with about its packet's overhead.
    fn waiting_datagrams(&mut self) -> usize {
        DATAGRAM_BUFFER.saturating_sub(self.quic.datagrams().send_buffer_space())
    }

    /// Datagrams that may leave now; at least one, or what forbids it.
    fn permits(&mut self, now: Instant, mtu: usize) -> Result<usize, Shut> {
        if !self.stage.is_established() {
            // The handshake is a few datagrams, and anti-amplification limits bind it.
            let most = self.validation.room() / LEAST_ROOM;
            return Ok(usize::try_from(most).map_or(MAX_BATCH, |most| most.min(MAX_BATCH)));
        }
        let flight = self.control.gate.flight();
        let room = usize::try_from(flight.room() / mtu as u64).unwrap_or(usize::MAX);
        let rate = flight.controller().pacing_rate();
        drop(flight);
        let (mtu, min_rtt) = (self.quic.current_mtu(), self.quic.min_rtt());
        self.permit.datagrams(now, room, rate, mtu, min_rtt)
    }

    /// Sends what must not wait for window or pacer: pure ACKs and probes; and one datagram if the peer
    /// has been owed an answer for longer than it was promised (its ACK is stuck behind data).
    fn transmit_exempt(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        if !self.permit.is_shut() {
            return None;
        }
        if self.acks.take_overdue(now, self.quic.rtt()) {
            // With the gate open quinn says everything it has to say; if that is nothing, so be it.
            return self.transmit_one(now, buf);
        }
        let transmit = self.quic.poll_transmit(now, 1, buf)?;
        self.copy_handshake(now, &transmit, buf);
        Some(transmit)
    }

    /// Asks quinn for one datagram, with the gate open.
    fn transmit_one(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        let (transmit, _) = self.transmit_through_gate(now, 1, buf)?;
        Some(transmit)
    }

    /// Asks quinn with the gate open; also returns the bytes declared lost since the last time.
    fn transmit_through_gate(
        &mut self,
        now: Instant,
        permits: usize,
        buf: &mut Vec<u8>,
    ) -> Option<(Transmit, usize)> {
        self.control.gate.set_open(true);
        let before = ack_eliciting(&self.quic.stats().frame_tx);
        let transmit = self.quic.poll_transmit(now, permits, buf);
        let stats = self.quic.stats();
        let sent = stats.frame_tx;
        let elicits = ack_eliciting(&sent) != before;
        let sent_size = transmit
            .as_ref()
            .filter(|_| elicits)
            .map_or(0, size_of_each);
        let mut flight = self.control.gate.flight();
        flight.close_gate(now, elicits);
        // A probe for a larger MTU is no sign of the present one.
        if sent_size <= usize::from(stats.path.current_mtu) {
            flight.on_datagrams(now, sent_size);
        }
        let lost = usize::try_from(flight.take_lost()).unwrap_or(usize::MAX);
        let (loss, in_flight) = (flight.loss(), flight.in_flight());
        drop(flight);
        let transmit = transmit?;
        if elicits {
            let path = Path {
                loss,
                rtt: self.quic.rtt(),
                lost: stats.path.lost_bytes,
                in_flight,
            };
            self.lane.on_path(now, transmit.size, &path);
        }
        self.copy_handshake(now, &transmit, buf);
        Some((transmit, lost))
    }

    /// Keeps a copy of what has just left if that is a part of the handshake, which may have to leave again.
    fn copy_handshake(&mut self, now: Instant, transmit: &Transmit, buf: &[u8]) {
        let copies = !self.control.is_reliable()
            && self.duplicates.wants_handshake()
            && self.validation.permits_copies();
        if copies {
            let ready = self.tunnel.agreement().remote().is_some();
            let sent = self.quic.stats().frame_tx;
            self.duplicates
                .on_handshake(now, ready, &sent, transmit, buf);
        }
    }

    /// Sends once more what stands alone.
    fn repeat(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        let rtt = self.quic.rtt();
        let pay = |bytes| self.lane.pay_copy(bytes);
        let transmit = self.duplicates.poll_alone(now, rtt, pay, buf)?;
        let rate = self.control.gate.flight().controller().pacing_rate();
        self.permit.on_sent(now, transmit.size, rate);
        Some(transmit)
    }
}

/// Length of each datagram of a batch but the last, in bytes.
fn size_of_each(transmit: &Transmit) -> usize {
    transmit.segment_size.unwrap_or(transmit.size)
}

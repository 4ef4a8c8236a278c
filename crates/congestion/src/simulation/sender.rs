//! A paced sender with its controller, and the packets that it and its receiver have in hand.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{BYTES, MTU};
use crate::{AckSample, Controller, LossSample, Pacer, RateSampler};

pub(crate) struct Sender {
    pub(crate) controller: Controller,
    pub(crate) delivered: u64,
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    pub(crate) last_rate: u64,
    pub(crate) busy: bool,
    pub(crate) drop_next: bool,
    pacer: Pacer,
    sampler: RateSampler,
    in_flight: u64,
    next_packet: u64,
    outstanding: BTreeMap<u64, Instant>,
    pub(super) receiver: Receiver,
    send_due: Option<Instant>,
}

/// The other end of a sender: what it still has to acknowledge.
#[derive(Default)]
pub(super) struct Receiver {
    pub(super) unacked: Vec<u64>,
    /// One of them was marked.
    pub(super) marked: bool,
    pub(super) ack_due: bool,
}

impl Sender {
    pub(super) fn new(controller: Controller, now: Instant) -> Self {
        Self {
            controller,
            delivered: 0,
            sent: 0,
            lost: 0,
            last_rate: 0,
            busy: true,
            drop_next: false,
            pacer: Pacer::new(now),
            sampler: RateSampler::new(now),
            in_flight: 0,
            next_packet: 0,
            outstanding: BTreeMap::new(),
            receiver: Receiver::default(),
            send_due: None,
        }
    }

    /// Acts on the timer, which has fired.
    pub(super) fn on_timer(&mut self) {
        self.send_due = None;
    }

    /// Packets that may leave now, or when its timer is to fire; `rtt` is that of the empty link.
    pub(super) fn allowance(&mut self, now: Instant, rtt: Duration) -> Result<u64, Instant> {
        let rate = self.controller.pacing_rate();
        let budget = self.pacer.budget(now, rate, MTU, rtt);
        let due = self.pacer.poll_timeout();
        if let Some(due) = due.filter(|_| self.send_due.is_none()) {
            self.send_due = Some(due);
            return Err(due);
        }
        if !self.busy {
            self.sampler.set_app_limited(self.in_flight);
            return Ok(0);
        }
        let room = self.controller.window().saturating_sub(self.in_flight) / BYTES;
        Ok(u64::from(budget).min(room))
    }

    /// Sends a packet; its number, and whether it is lost at once.
    pub(super) fn send(&mut self, now: Instant) -> (u64, bool) {
        let packet = self.next_packet;
        self.next_packet += 1;
        self.sent += BYTES;
        self.in_flight += BYTES;
        self.pacer
            .on_sent(now, BYTES, self.controller.pacing_rate());
        self.sampler.on_sent(now, BYTES, self.in_flight);
        self.controller.on_sent(now, BYTES, self.in_flight);
        self.outstanding.insert(packet, now);
        (packet, std::mem::take(&mut self.drop_next))
    }

    /// The link keeps order, so a packet three behind an acknowledged one is lost.
    pub(super) fn acked(&mut self, now: Instant, packets: &[u64], marked: bool) {
        let newest = packets.last().copied().unwrap_or_default();
        let (mut newest_sent, mut newest_lost, mut lost) = (None, None, 0);
        let mut newly_acked = 0;
        for packet in packets {
            if let Some(sent) = self.outstanding.remove(packet) {
                newest_sent = newest_sent.max(Some(sent));
                newly_acked += BYTES;
                self.in_flight -= BYTES;
                self.sampler.on_ack(sent, BYTES);
            }
        }
        // All of them may have been taken for lost before, where a path became shorter.
        let Some(newest_sent) = newest_sent else {
            return;
        };
        while let Some(first) = self
            .outstanding
            .first_entry()
            .filter(|first| first.key() + 3 <= newest)
        {
            newest_lost = Some(first.remove());
            self.in_flight -= BYTES;
            lost += BYTES;
        }
        let rate = self.sampler.end_acks(now);
        self.last_rate = rate.map_or(0, |sample| sample.rate.as_u64());
        let in_flight = self.in_flight + lost;
        let app_limited = rate.is_some_and(|sample| sample.app_limited);
        let rtt = Some(now - newest_sent);
        self.controller.on_ack(&AckSample {
            now,
            newly_acked,
            rtt,
            newest_sent,
            in_flight,
            app_limited,
            rate,
        });
        if let Some(newest_sent) = newest_lost {
            self.lost += lost;
            self.report(now, newest_sent, lost);
        }
        if marked {
            self.report(now, newest_sent, 0);
        }
    }

    /// Tells the controller of lost packets, or of marks.
    fn report(&mut self, now: Instant, newest_sent: Instant, lost: u64) {
        let at_send = self.sampler.on_loss(newest_sent, lost);
        self.controller.on_loss(&LossSample {
            now,
            lost,
            newest_sent,
            in_flight: self.in_flight,
            persistent: false,
            ecn: lost == 0,
            at_send,
        });
    }
}

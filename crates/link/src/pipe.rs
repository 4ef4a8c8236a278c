//! One direction of the link, and the two together.
//!
//! A packet passes policer, queue, serialiser, outage and loss, delay line; between calls nothing moves, and each call
//! first catches up with `now`, so results do not depend on how often a pipe is polled. `now` must not run backwards.
//! Planned changes (`schedule.rs`) take effect at their own instants. Access delays and adaptive coding are not here.

use std::time::{Duration, Instant};

use bentpipe_aqm::{CoDel, Control, Taken};
use bentpipe_units::{BitRate, ByteCount, Seed};
use serde::Serialize;

use crate::delay::DelayLine;
use crate::loss::{LossModel, LossProcess, Outage};
use crate::policer::{Bucket, Policer};
use crate::queue::{DropTail, QueueLimit};
use crate::rate::Serialiser;
use crate::schedule::{Change, Schedule, Upcoming};
use crate::sim::next_wakeup;

/// Settings of one direction.
#[derive(Debug, Clone, PartialEq)]
pub struct PipeConfig {
    /// Rate of IP packets, headers included. Zero counts as 1 bit/s.
    pub rate: BitRate,
    /// Propagation, from the last bit sent to the packet received.
    pub one_way_delay: Duration,
    /// Limit of what may wait before the serialiser.
    pub queue: QueueLimit,
    /// Losses after the serialiser.
    pub loss: LossModel,
    /// Planned outages.
    pub outages: Vec<Outage>,
    /// Planned changes of rate, delay and loss.
    pub schedule: Schedule,
    /// Drops what is sent too fast, before the queue.
    pub policer: Option<Policer>,
}

/// Law that says which packets have waited too long.
#[derive(Debug, Clone, Copy)]
pub enum Law {
    /// Packets that waited longer than this.
    Threshold(Duration),
    /// Packets that CoDel picks (RFC 8289).
    CoDel(CoDel),
}

/// Marks packets that have waited too long as they leave the queue, instead of letting the queue grow (RFC 3168).
#[derive(Debug)]
pub struct Marking<P> {
    /// Law that says which ones.
    pub law: Law,
    /// Sets "congestion experienced"; false if the packet cannot carry the mark and has to be dropped instead.
    pub mark: fn(&mut P) -> bool,
}

/// Counts of the packets of one direction, as of the pipe's last call.
///
/// `offered` = `dropped_policer` + `dropped_queue` + `dropped_loss` + `dropped_outage` + `delivered` + those still inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct PipeStats {
    /// Packets given to `handle_packet`.
    pub offered: u64,
    /// Packets that the policer took.
    pub dropped_policer: u64,
    /// Packets that found the queue full, or that it had to mark and could not.
    pub dropped_queue: u64,
    /// Packets marked "congestion experienced".
    pub marked: u64,
    /// Packets the loss model took.
    pub dropped_loss: u64,
    /// Packets an outage took.
    pub dropped_outage: u64,
    /// Packets that `poll_output` returned.
    pub delivered: u64,
    /// Bytes that `poll_output` returned.
    pub delivered_bytes: ByteCount,
    /// Bytes waiting now.
    pub queue_bytes: ByteCount,
    /// The most bytes that ever waited.
    pub queue_bytes_max: ByteCount,
}

/// One direction of the link.
#[derive(Debug)]
pub struct Pipe<P> {
    start: Instant,
    queue: DropTail<P>,
    marking: Option<(Marking<P>, Control)>,
    policer: Option<Bucket>,
    serialiser: Serialiser,
    in_service: Option<(ByteCount, P)>,
    upcoming: Upcoming,
    outages: Vec<Outage>,
    outage: bool,
    loss: LossProcess,
    delay: DelayLine<P>,
    stats: PipeStats,
}

impl<P> Pipe<P> {
    /// An empty pipe at the instant `start`, from which its outages count.
    pub fn new(config: &PipeConfig, seed: Seed, start: Instant) -> Self {
        Self {
            start,
            queue: DropTail::new(config.queue),
            marking: None,
            policer: config.policer.map(|policer| Bucket::new(policer, start)),
            serialiser: Serialiser::new(config.rate, start),
            in_service: None,
            upcoming: Upcoming::new(&config.schedule, start),
            outages: config.outages.clone(),
            outage: false,
            loss: LossProcess::new(config.loss, seed.stream("loss")),
            delay: DelayLine::new(config.one_way_delay, start),
            stats: PipeStats::default(),
        }
    }

    /// Offers a packet of `size` IP-layer bytes to the link.
    pub fn handle_packet(&mut self, now: Instant, size: ByteCount, packet: P) {
        self.advance(now);
        self.stats.offered += 1;
        let admitted = |bucket: &mut Bucket| bucket.admit(now, size);
        if !self.policer.as_mut().is_none_or(admitted) {
            self.stats.dropped_policer += 1;
        } else if self.in_service.is_none() {
            self.serialiser.send(now, size);
            self.in_service = Some((size, packet));
        } else if !self.queue.push(now, size, packet) {
            self.stats.dropped_queue += 1;
        }
        self.stats.queue_bytes_max = self.stats.queue_bytes_max.max(self.queue.bytes());
    }

    /// The next packet that has arrived by `now`, with the instant of its arrival. Call until `None`.
    pub fn poll_output(&mut self, now: Instant) -> Option<(Instant, P)> {
        self.advance(now);
        let (arrival, size, packet) = self.delay.pop_due(now)?;
        self.stats.delivered += 1;
        self.stats.delivered_bytes += size;
        Some((arrival, packet))
    }

    /// The earliest instant at which `poll_output` may return a packet; `None` when the pipe is empty.
    ///
    /// If the channel loses that packet, or a planned change comes first, `poll_output` returns nothing then, and this
    /// answers a later instant.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let serving = || {
            self.in_service.as_ref()?;
            let departure = self.serialiser.idle_at();
            let arrival = self.delay.arrival(departure);
            let change = self.upcoming.at().filter(|at| *at <= departure);
            Some(change.map_or(arrival, |at| at.min(arrival)))
        };
        self.delay.next_arrival().or_else(serving)
    }

    /// The counters.
    pub fn stats(&self) -> PipeStats {
        PipeStats {
            queue_bytes: self.queue.bytes(),
            ..self.stats
        }
    }

    /// Marks packets instead of letting them wait, from now on.
    pub fn set_marking(&mut self, marking: Option<Marking<P>>) {
        self.marking = marking.map(|marking| (marking, Control::new()));
    }

    /// Changes the rate from the next packet on; zero counts as 1 bit/s.
    pub fn set_rate(&mut self, now: Instant, rate: BitRate) {
        self.advance(now);
        self.serialiser.set_rate(rate);
    }

    /// Changes the one-way delay of packets that have not left yet. Order is kept.
    pub fn set_one_way_delay(&mut self, now: Instant, one_way_delay: Duration) {
        self.advance(now);
        self.delay.set_one_way_delay(one_way_delay);
    }

    /// Changes the loss model for packets that have not left yet.
    pub fn set_loss(&mut self, now: Instant, loss: LossModel) {
        self.advance(now);
        self.loss.set_model(loss);
    }

    /// Replaces all planned changes and outages; the new ones count from `now`.
    pub fn plan(&mut self, now: Instant, schedule: &Schedule, outages: Vec<Outage>) {
        self.advance(now);
        self.start = now;
        self.upcoming = Upcoming::new(schedule, now);
        self.outages = outages;
    }

    /// Starts or ends an outage by hand, besides the planned ones. Packets in flight are not affected.
    pub fn set_outage(&mut self, now: Instant, outage: bool) {
        self.advance(now);
        self.outage = outage;
    }

    /// Lets every packet depart whose last bit has left by `now`, and applies every change due by then, each at its own
    /// instant.
    fn advance(&mut self, now: Instant) {
        loop {
            let departure = self.in_service.is_some().then(|| self.serialiser.idle_at());
            let change = self.upcoming.at();
            if let Some(at) = change.filter(|at| *at <= now)
                && departure.is_none_or(|departure| at <= departure)
            {
                self.change();
            } else if let Some(departure) = departure.filter(|departure| *departure <= now) {
                if let Some((size, packet)) = self.in_service.take() {
                    self.depart(departure, size, packet);
                }
                self.serve(departure);
            } else {
                return;
            }
        }
    }

    fn change(&mut self) {
        match self.upcoming.pop() {
            Some(Change::Rate(rate)) => self.serialiser.set_rate(rate),
            Some(Change::OneWayDelay(delay)) => self.delay.set_one_way_delay(delay),
            Some(Change::Loss(model)) => self.loss.set_model(model),
            None => {}
        }
    }

    /// Begins to send the next packet that waits.
    fn serve(&mut self, now: Instant) {
        self.in_service = self.take(now);
        if let Some((size, _)) = self.in_service {
            self.serialiser.send(now, size);
        }
    }

    /// The next packet to send, marked if it has waited too long and can be; those that cannot are dropped.
    fn take(&mut self, now: Instant) -> Option<(ByteCount, P)> {
        let queue = &mut self.queue;
        let mut next = || {
            let (since, size, packet) = queue.pop()?;
            Some(Taken {
                since,
                behind: queue.bytes(),
                packet: (size, packet),
            })
        };
        let Some((Marking { law, mark }, control)) = &mut self.marking else {
            return next().map(|taken| taken.packet);
        };
        let (mut marked, mut dropped) = (0, 0);
        let mut tell = |(_, packet): &mut (ByteCount, P)| {
            let able = mark(packet);
            marked += u64::from(able);
            able
        };
        let packet = match *law {
            Law::CoDel(config) => control.pop(now, config, next, tell, |_| dropped += 1),
            Law::Threshold(threshold) => loop {
                let Some(mut taken) = next() else {
                    break None;
                };
                let late = now.saturating_duration_since(taken.since) > threshold;
                if !late || tell(&mut taken.packet) {
                    break Some(taken.packet);
                }
                dropped += 1;
            },
        };
        self.stats.marked += marked;
        self.stats.dropped_queue += dropped;
        packet
    }

    fn depart(&mut self, departure: Instant, size: ByteCount, packet: P) {
        let lost = self.loss.step(departure, size);
        let since_start = departure.saturating_duration_since(self.start);
        if self.outage || self.outages.iter().any(|outage| outage.covers(since_start)) {
            self.stats.dropped_outage += 1;
        } else if lost {
            self.stats.dropped_loss += 1;
        } else {
            self.delay.push(departure, size, packet);
        }
    }
}

/// Settings of both directions.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkConfig {
    /// Gateway to terminal.
    pub forward_link: PipeConfig,
    /// Terminal to gateway.
    pub return_link: PipeConfig,
}

/// Both directions of the link. They share nothing but a seed, of which each has its own stream.
#[derive(Debug)]
pub struct Duplex<P> {
    /// Gateway to terminal.
    pub forward_link: Pipe<P>,
    /// Terminal to gateway.
    pub return_link: Pipe<P>,
}

impl<P> Duplex<P> {
    /// Two empty pipes at the instant `start`.
    pub fn new(config: &LinkConfig, seed: Seed, start: Instant) -> Self {
        Self {
            forward_link: Pipe::new(&config.forward_link, seed.stream("forward"), start),
            return_link: Pipe::new(&config.return_link, seed.stream("return"), start),
        }
    }

    /// The earlier of both pipes' [`Pipe::poll_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        next_wakeup([
            self.forward_link.poll_timeout(),
            self.return_link.poll_timeout(),
        ])
    }
}

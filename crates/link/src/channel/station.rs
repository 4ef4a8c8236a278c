//! One terminal's part of a direction: its FIFOs before the carrier, its share of the errors, its delay line after it.

use std::time::{Duration, Instant};

use bentpipe_units::{ByteCount, Seed};

use super::{ChannelModel, ClassConfig};
use crate::codel::Control;
use crate::delay::DelayLine;
use crate::event::DropCause;
use crate::link::PacketHeader;
use crate::loss::LossProcess;
use crate::probe::{Counters, QueueProbe};
use crate::queue::DropTail;

#[derive(Debug)]
struct Class<P> {
    config: ClassConfig,
    fifo: DropTail<P>,
    codel: Option<Control>,
}

#[derive(Debug)]
pub(crate) struct Station<P> {
    /// In the order of their priority; at least one.
    classes: Vec<Class<P>>,
    errors: LossProcess,
    delay: DelayLine<P>,
    counters: Counters,
    /// Bytes served, for a fair share.
    served: u64,
}

impl<P> Station<P> {
    pub(crate) fn new(model: &ChannelModel, index: usize, seed: Seed, start: Instant) -> Self {
        let class = |config: &ClassConfig| Class {
            config: config.clone(),
            fifo: DropTail::new(config.limit),
            codel: config.codel.map(Control::new),
        };
        // The first terminal's stream is that of a pipe, so that a link of one terminal loses what a pipe would.
        let losses = match index {
            0 => seed.stream("loss"),
            _ => seed.stream("loss").stream(&format!("terminal {index}")),
        };
        Self {
            classes: model.classes.iter().map(class).collect(),
            errors: LossProcess::new(model.errors, losses),
            delay: DelayLine::new(Duration::ZERO, start).allow_reordering(model.allow_reordering),
            counters: Counters::default(),
            served: 0,
        }
    }

    /// Appends the packet to the FIFO of its class; false if that is full. What is sent `at_once` does not wait.
    pub(crate) fn push(
        &mut self,
        now: Instant,
        header: PacketHeader,
        packet: P,
        at_once: bool,
    ) -> bool {
        self.counters.offered += 1;
        self.counters.offered_bytes += header.size;
        let named = |class: &Class<P>| class.config.dscp.contains(&header.dscp);
        let last = self.classes.len() - 1;
        let index = self.classes.iter().position(named).unwrap_or(last);
        let fifo = &mut self.classes[index].fifo;
        if at_once {
            fifo.push_over_limit(now, header.size, packet);
            return true;
        }
        let fits = fifo.push(now, header.size, packet);
        self.counters.dropped_queue += u64::from(!fits);
        fits
    }

    /// The next packet to send at `now`; the sizes of those that CoDel drops go to `dropped`.
    pub(crate) fn pop(
        &mut self,
        now: Instant,
        mut dropped: impl FnMut(ByteCount),
    ) -> Option<(ByteCount, P)> {
        let counters = &mut self.counters;
        let mut note = |size| {
            counters.dropped_codel += 1;
            dropped(size);
        };
        let popped = self.classes.iter_mut().find_map(|class| {
            let fifo = &mut class.fifo;
            match &mut class.codel {
                Some(codel) => codel.pop(now, fifo, |(_, size, _)| note(size)),
                None => fifo.pop(),
            }
        });
        popped.map(|(_, size, packet)| (size, packet))
    }

    /// The class of the next packet; lower is more urgent.
    pub(crate) fn urgency(&self) -> Option<usize> {
        let waits = |class: &Class<P>| class.fifo.packets() > 0;
        self.classes.iter().position(waits)
    }

    pub(crate) fn backlogged(&self) -> bool {
        self.urgency().is_some()
    }

    pub(crate) const fn served(&self) -> u64 {
        self.served
    }

    /// Counts `size` as served and says what had been served before.
    pub(crate) const fn serve(&mut self, size: ByteCount) -> u64 {
        let before = self.served;
        self.served = before.saturating_add(size.as_u64());
        before
    }

    /// Forfeits what was not used during a pause.
    pub(crate) fn catch_up(&mut self, virtual_time: u64) {
        self.served = self.served.max(virtual_time);
    }

    /// Steps the errors by one packet whose last bit leaves at `end`; true if it is lost.
    pub(crate) fn lost(&mut self, end: Instant) -> bool {
        self.errors.step(end)
    }

    /// Counts a packet that was sent and will not arrive.
    pub(crate) const fn count_drop(&mut self, cause: DropCause) {
        match cause {
            DropCause::Outage => self.counters.dropped_outage += 1,
            _ => self.counters.dropped_channel += 1,
        }
    }

    /// Puts a packet on its way.
    pub(crate) fn send(&mut self, end: Instant, delay: Duration, size: ByteCount, packet: P) {
        self.delay.set_one_way_delay(delay);
        self.delay.push(end, size, packet);
    }

    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        self.delay.next_arrival()
    }

    pub(crate) fn deliver(&mut self, now: Instant) -> Option<(Instant, ByteCount, P)> {
        let (at, size, packet) = self.delay.pop_due(now)?;
        self.counters.delivered += 1;
        self.counters.delivered_bytes += size;
        Some((at, size, packet))
    }

    pub(crate) const fn counters(&self) -> Counters {
        self.counters
    }

    pub(crate) fn queues(&self, now: Instant) -> Vec<QueueProbe> {
        let probe = |class: &Class<P>| QueueProbe {
            name: class.config.name.clone(),
            bytes: class.fifo.bytes(),
            packets: class.fifo.packets(),
            sojourn: class
                .fifo
                .waiting_since()
                .map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
                .into(),
        };
        self.classes.iter().map(probe).collect()
    }
}

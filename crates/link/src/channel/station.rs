//! One terminal's part of a direction: its FIFOs before the carrier, its share of the errors, its delay line after it.

use std::time::{Duration, Instant};

use bentpipe_aqm::{CoDel, Control, Taken};
use bentpipe_units::{ByteCount, Seed};

use super::encapsulation::Encapsulation;
use super::errors::ErrorProcess;
use super::{ChannelModel, ClassConfig};
use crate::delay::DelayLine;
use crate::frame::Remaining;
use crate::ids::{DropCause, PacketHeader};
use crate::probe::{Counters, QueueProbe};
use crate::queue::DropTail;

/// A packet and its train, or one of the background load, which nobody receives.
pub(crate) type Load<P> = Option<(Option<u64>, P)>;

#[derive(Debug)]
struct Class<P> {
    config: ClassConfig,
    fifo: DropTail<Load<P>>,
    codel: Option<(CoDel, Control)>,
    partial: Option<Partial<P>>,
}

/// A packet of which a part has been sent.
#[derive(Debug)]
struct Partial<P> {
    size: ByteCount,
    load: Load<P>,
    rest: Remaining,
    damaged: bool,
}

impl<P> Class<P> {
    fn pop(
        &mut self,
        now: Instant,
        mut dropped: impl FnMut(ByteCount),
    ) -> Option<(ByteCount, Load<P>)> {
        let Self { fifo, codel, .. } = self;
        let Some((config, control)) = codel else {
            let (_, size, load) = fifo.pop()?;
            return Some((size, load));
        };
        let next = || {
            let (since, size, load) = fifo.pop()?;
            let (behind, packet) = (fifo.bytes(), (size, load));
            Some(Taken {
                since,
                behind,
                packet,
            })
        };
        control.pop(now, *config, next, |_| false, |(size, _)| dropped(size))
    }
}

impl<P> Partial<P> {
    fn new(size: ByteCount, load: Load<P>, encapsulation: Encapsulation) -> Self {
        let bytes = u32::try_from(size.as_u64()).unwrap_or(u32::MAX);
        Self {
            size,
            load,
            rest: encapsulation.packet(bytes),
            damaged: false,
        }
    }
}

/// A part of a packet in a frame.
#[derive(Debug)]
pub(crate) struct Piece<P> {
    pub(crate) class: usize,
    /// Bytes of the frame that it takes.
    pub(crate) taken: u32,
    /// The packet, if this is its end.
    pub(crate) complete: Option<Complete<P>>,
}

/// A packet that has been sent to its end.
#[derive(Debug)]
pub(crate) struct Complete<P> {
    pub(crate) size: ByteCount,
    pub(crate) load: Load<P>,
    /// A part of it in an earlier frame was lost.
    pub(crate) damaged: bool,
}

#[derive(Debug)]
pub(crate) struct StationChannel<P> {
    /// In the order of their priority; at least one.
    classes: Vec<Class<P>>,
    pub(crate) errors: ErrorProcess,
    delay: DelayLine<P>,
    pub(crate) counters: Counters,
    /// Bytes served per weight, for a fair share.
    served: u64,
    weight: u16,
}

/// Fractions of a byte that [`StationChannel::served`] counts.
const SCALE: u64 = 1 << 16;

impl<P> StationChannel<P> {
    pub(crate) fn new(
        model: &ChannelModel,
        index: usize,
        weight: u16,
        seed: Seed,
        start: Instant,
    ) -> Self {
        let class = |config: &ClassConfig| Class {
            config: config.clone(),
            fifo: DropTail::new(config.limit),
            codel: config.codel.map(|codel| (codel, Control::new())),
            partial: None,
        };
        Self {
            classes: model.classes.iter().map(class).collect(),
            errors: ErrorProcess::new(&model.errors, index, seed),
            delay: DelayLine::new(Duration::ZERO, start).allow_reordering(model.allow_reordering),
            counters: Counters::default(),
            served: 0,
            weight: weight.max(1),
        }
    }

    /// Appends the packet to the FIFO of its class; false if that is full. What is sent `at_once` does not wait.
    pub(crate) fn push(
        &mut self,
        now: Instant,
        header: PacketHeader,
        load: Load<P>,
        at_once: bool,
    ) -> bool {
        self.counters.offered += 1;
        self.counters.offered_bytes += header.size;
        let named = |class: &Class<P>| class.config.dscp.contains(&header.dscp);
        let last = self.classes.len() - 1;
        let index = self.classes.iter().position(named).unwrap_or(last);
        let fifo = &mut self.classes[index].fifo;
        if at_once {
            fifo.push_over_limit(now, header.size, load);
            return true;
        }
        let fits = fifo.push(now, header.size, load);
        self.counters.dropped_queue += u64::from(!fits);
        fits
    }

    /// The next whole packet to send at `now`; the sizes of those that CoDel drops go to `dropped`.
    pub(crate) fn pop(
        &mut self,
        now: Instant,
        mut dropped: impl FnMut(ByteCount),
    ) -> Option<(ByteCount, Load<P>)> {
        let counters = &mut self.counters;
        let mut note = |size| {
            counters.dropped_codel += 1;
            dropped(size);
        };
        let mut classes = self.classes.iter_mut();
        classes.find_map(|class| class.pop(now, &mut note))
    }

    /// The next piece for a frame with `space` bytes left; `None` if nothing waits or not a byte of it fits.
    pub(crate) fn fill(
        &mut self,
        now: Instant,
        encapsulation: Encapsulation,
        space: u32,
        mut dropped: impl FnMut(ByteCount),
    ) -> Option<Piece<P>> {
        let counters = &mut self.counters;
        let mut note = |size| {
            counters.dropped_codel += 1;
            dropped(size);
        };
        let classes = self.classes.iter_mut().enumerate();
        let mut begun = classes.filter_map(|(index, class)| {
            let partial = class.partial.take();
            let partial = partial.or_else(|| {
                let (size, load) = class.pop(now, &mut note)?;
                Some(Partial::new(size, load, encapsulation))
            });
            Some((index, partial?))
        });
        let (class, begun) = begun.next()?;
        let (taken, rest) = encapsulation.fill(space, begun.rest);
        let complete = match rest {
            None => Some(Complete {
                size: begun.size,
                load: begun.load,
                damaged: begun.damaged,
            }),
            Some(rest) => {
                self.classes[class].partial = Some(Partial { rest, ..begun });
                None
            }
        };
        (taken > 0).then_some(Piece {
            class,
            taken,
            complete,
        })
    }

    /// Bytes and packets that wait, those that have begun to be sent included.
    pub(crate) fn waiting(&self) -> (u64, u64) {
        let classes = self.classes.iter().map(|class| {
            let partial = class.partial.as_ref();
            let rest = partial.map_or(0, |partial| partial.rest.bytes);
            let bytes = class.fifo.bytes().as_u64() + u64::from(rest);
            let packets = class.fifo.packets() + usize::from(partial.is_some());
            (bytes, u64::try_from(packets).unwrap_or(u64::MAX))
        });
        classes.fold((0, 0), |sum, class| (sum.0 + class.0, sum.1 + class.1))
    }

    /// A part of the packet that is being sent in this class was lost.
    pub(crate) fn damage(&mut self, class: usize) {
        if let Some(partial) = &mut self.classes[class].partial {
            partial.damaged = true;
        }
    }

    /// The class of the next packet; lower is more urgent.
    pub(crate) fn urgency(&self) -> Option<usize> {
        let waits = |class: &Class<P>| class.partial.is_some() || class.fifo.packets() > 0;
        self.classes.iter().position(waits)
    }

    pub(crate) fn backlogged(&self) -> bool {
        self.urgency().is_some()
    }

    pub(crate) const fn served(&self) -> u64 {
        self.served
    }

    /// Counts `bytes` as served and says what had been served before.
    pub(crate) const fn serve(&mut self, bytes: u64) -> u64 {
        let before = self.served;
        let share = bytes.saturating_mul(SCALE) / self.weight as u64;
        self.served = before.saturating_add(share);
        before
    }

    /// Forfeits what was not used during a pause.
    pub(crate) fn catch_up(&mut self, virtual_time: u64) {
        self.served = self.served.max(virtual_time);
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

//! One direction of the general link, with all its terminals.
//!
//! ```text
//!                    station (one per terminal)                carrier                 station
//!  handle_packet ─► classify ─► FIFOs, drop-tail or CoDel ─► constant bit rate ─► errors ─► delay line ─► poll_output
//!                    (DSCP)     strict priority              PLFRAMEs, bursts
//!                               │ full, codel                                       │ channel
//!                               ▼ dropped                                           ▼ dropped
//! ```
//!
//! A carrier decides when the next frame begins, for whom and how long it is. The frame is filled at that instant, and
//! its fate decided: what the channel does then is a function of time and of the seed. Between calls nothing moves,
//! and each call first catches up with `now`, so results do not depend on how often a channel is polled.

mod carrier;
mod station;

use std::time::{Duration, Instant};

use bentpipe_units::{BitRate, ByteCount, Decibel, Seed};
use serde::{Deserialize, Serialize};

use crate::codel::CoDel;
use crate::event::{DropCause, EventKind, EventLog};
use crate::link::{PacketHeader, TerminalId};
use crate::loss::LossModel;
use crate::orbit::PathState;
use crate::probe::ChannelProbe;
use crate::propagation::Propagation;
use crate::queue::QueueLimit;

pub(crate) use self::carrier::Carriage;
use self::carrier::Carrier;
use self::station::Station;

/// A direction of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Gateway to terminal.
    Forward,
    /// Terminal to gateway.
    Return,
}

impl Way {
    /// The name of its table in a scenario.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Return => "return",
        }
    }
}

/// A class of packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClassConfig {
    pub(crate) name: String,
    pub(crate) dscp: Vec<u8>,
    pub(crate) limit: QueueLimit,
    pub(crate) codel: Option<CoDel>,
}

/// What a direction is like.
#[derive(Debug, Clone)]
pub(crate) struct ChannelModel {
    pub(crate) carriage: Carriage,
    /// In the order of their priority.
    pub(crate) classes: Vec<ClassConfig>,
    pub(crate) errors: LossModel,
    /// Packets may overtake each other when the delay shrinks.
    pub(crate) allow_reordering: bool,
}

/// What is between the two ends, with the instant from which its changes count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Space<'a> {
    pub(crate) start: Instant,
    pub(crate) propagation: &'a Propagation,
}

impl Space<'_> {
    pub(crate) fn one_way_delay(self, at: Instant, terminal: usize, way: Way) -> Duration {
        let at = at.saturating_duration_since(self.start);
        self.propagation.one_way_delay(at, terminal, way)
    }

    /// The first instant from `at` on at which no handover holds back what `terminal` sends or receives.
    pub(crate) fn not_held(self, at: Instant, terminal: usize) -> Instant {
        let since_start = at.saturating_duration_since(self.start);
        let state = self.propagation.state(since_start, terminal);
        state.held_until.map_or(at, |until| self.start + until)
    }

    /// A delay that is never less.
    fn shortest_delay(self, terminal: usize) -> Duration {
        self.propagation.paths[terminal].shortest_delay()
    }

    /// All about the way of a terminal.
    pub(crate) fn state(self, at: Instant, terminal: usize) -> PathState {
        let since_start = at.saturating_duration_since(self.start);
        self.propagation.state(since_start, terminal)
    }

    pub(crate) fn cn_total(self, at: Instant, terminal: usize, way: Way) -> Option<Decibel> {
        let at = at.saturating_duration_since(self.start);
        self.propagation.cn_total(at, terminal, way)
    }
}

/// One direction.
#[derive(Debug)]
pub(crate) struct Channel<P> {
    way: Way,
    carrier: Carrier,
    stations: Vec<Station<P>>,
    /// What the station served last had been served by then; who comes back after a pause starts from here.
    virtual_time: u64,
    /// Since when something waits.
    ready: Instant,
}

impl<P> Channel<P> {
    /// An empty channel with `terminals` stations.
    pub(crate) fn new(
        model: &ChannelModel,
        way: Way,
        terminals: usize,
        seed: Seed,
        start: Instant,
    ) -> Self {
        let seed = seed.stream(way.name());
        let station = |index| Station::new(model, index, seed, start);
        Self {
            way,
            carrier: Carrier::new(&model.carriage, start),
            stations: (0..terminals).map(station).collect(),
            virtual_time: 0,
            ready: start,
        }
    }

    /// Offers a packet. A terminal that does not exist takes it to nowhere; callers number them from 0.
    pub(crate) fn handle_packet(
        &mut self,
        now: Instant,
        terminal: TerminalId,
        header: PacketHeader,
        packet: P,
        space: Space<'_>,
        log: &mut EventLog,
    ) {
        self.advance(now, space, log);
        let idle = !self.backlogged();
        let at_once = idle && self.next_start(now, space) <= now;
        let virtual_time = self.virtual_time;
        let Some(station) = self.stations.get_mut(terminal.index()) else {
            return;
        };
        if !station.backlogged() {
            station.catch_up(virtual_time);
        }
        if idle {
            self.ready = now;
        }
        if !station.push(now, header, packet, at_once) {
            let kind = EventKind::dropped(DropCause::QueueFull, header.size);
            log.add(now, self.way, terminal, kind);
        }
        self.advance(now, space, log);
    }

    /// The earliest packet that has arrived by `now`.
    pub(crate) fn poll_output(
        &mut self,
        now: Instant,
    ) -> Option<(Instant, TerminalId, ByteCount, P)> {
        let stations = self.stations.iter_mut().enumerate();
        let due = stations.filter_map(|(index, station)| {
            let at = station.next_arrival().filter(|at| *at <= now)?;
            Some((at, index, station))
        });
        let (_, index, station) = due.min_by_key(|(at, index, _)| (*at, *index))?;
        let (at, size, packet) = station.deliver(now)?;
        Some((at, TerminalId::new(index), size, packet))
    }

    /// When the earliest packet in flight arrives.
    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        self.stations.iter().filter_map(Station::next_arrival).min()
    }

    /// The earliest instant at which `poll_output` may return a packet after `advance`; `None` when nothing waits.
    pub(crate) fn poll_timeout(&self, space: Space<'_>) -> Option<Instant> {
        let upcoming = || {
            let start = self.next_start(self.ready, space);
            let terminals = 0..self.stations.len();
            let delays = terminals.map(|terminal| space.shortest_delay(terminal));
            Some(start + delays.min()?)
        };
        let upcoming = self.backlogged().then(upcoming).flatten();
        self.next_arrival().into_iter().chain(upcoming).min()
    }

    /// Begins every frame that is due by `now`.
    pub(crate) fn advance(&mut self, now: Instant, space: Space<'_>, log: &mut EventLog) {
        while self.backlogged() {
            let start = self.next_start(self.ready, space);
            if start > now {
                return;
            }
            self.transmit(start, space, log);
        }
    }

    /// When the next frame begins, if something waits since `ready`. Handovers hold back all terminals at once.
    fn next_start(&self, ready: Instant, space: Space<'_>) -> Instant {
        space.not_held(self.carrier.next_start(ready), 0)
    }

    /// Sends what is due at `start`.
    fn transmit(&mut self, start: Instant, space: Space<'_>, log: &mut EventLog) {
        match &self.carrier {
            Carrier::Constant(_) => self.transmit_packet(start, space, log),
        }
    }

    /// Sends one packet as it is.
    fn transmit_packet(&mut self, start: Instant, space: Space<'_>, log: &mut EventLog) {
        let Some(index) = self.pick(|_| true) else {
            return;
        };
        let (way, terminal) = (self.way, TerminalId::new(index));
        let station = &mut self.stations[index];
        let packet = station.pop(start, |size| {
            let kind = EventKind::dropped(DropCause::Codel, size);
            log.add(start, way, terminal, kind);
        });
        let Some((size, packet)) = packet else {
            return;
        };
        self.virtual_time = station.serve(size);
        let Carrier::Constant(clock) = &mut self.carrier;
        clock.send_at(space.state(start, index).capacity, start, size);
        let end = clock.idle_at();
        let state = space.state(end, index);
        let lost = station.lost(end);
        let cause = match (state.outage, lost) {
            (true, _) => Some(DropCause::Outage),
            (false, true) => Some(DropCause::Channel),
            (false, false) => None,
        };
        if let Some(cause) = cause {
            station.count_drop(cause);
            log.add(end, way, terminal, EventKind::dropped(cause, size));
        } else {
            station.send(end, state.one_way_delay, size, packet);
        }
    }

    /// Whose turn it is: of those with the most urgent packets, who has been served least.
    fn pick(&self, eligible: impl Fn(usize) -> bool) -> Option<usize> {
        let stations = self.stations.iter().enumerate();
        let waiting = stations.filter_map(|(index, station)| {
            let urgency = station.urgency()?;
            eligible(index).then_some((urgency, station.served(), index))
        });
        waiting.min().map(|(_, _, index)| index)
    }

    fn backlogged(&self) -> bool {
        self.stations.iter().any(Station::backlogged)
    }

    /// A snapshot of one terminal's part.
    pub(crate) fn probe(&self, now: Instant, terminal: usize, space: Space<'_>) -> ChannelProbe {
        let station = &self.stations[terminal];
        ChannelProbe {
            cn: space.cn_total(now, terminal, self.way),
            modcod: None,
            capacity: self.capacity(),
            one_way_delay: space.one_way_delay(now, terminal, self.way).into(),
            queues: station.queues(now),
            counters: station.counters(),
        }
    }

    fn capacity(&self) -> BitRate {
        match &self.carrier {
            Carrier::Constant(clock) => BitRate::bits_per_second(clock.rate()),
        }
    }
}

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

mod background;
mod bursts;
mod carrier;
mod encapsulation;
mod errors;
mod sending;
mod station;

use std::time::Instant;

use bentpipe_aqm::CoDel;
use bentpipe_units::{ByteCount, Seed};

use crate::event::{EventKind, EventLog};
use crate::ids::{DropCause, PacketHeader, TerminalId, Way};
use crate::probe::ChannelProbe;
use crate::queue::QueueLimit;
use crate::schedule::{Change, Schedule, Upcoming};
use crate::space::Space;

pub(crate) use self::background::BackgroundModel;
use self::background::BackgroundSource;
use self::bursts::Bursts;
pub(crate) use self::carrier::Carriage;
use self::carrier::Carrier;
pub(crate) use self::encapsulation::{Encapsulation, Gse};
pub(crate) use self::errors::{Chance, Curve, ErrorModel, Unit};
use self::station::{Load, StationChannel};

/// A class of packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClassConfig {
    pub(crate) name: String,
    pub(crate) dscp: Vec<u8>,
    pub(crate) limit: QueueLimit,
    pub(crate) codel: Option<CoDel>,
}

/// Model of a direction.
#[derive(Debug, Clone)]
pub(crate) struct ChannelModel {
    pub(crate) carriage: Carriage,
    /// In the order of their priority.
    pub(crate) classes: Vec<ClassConfig>,
    pub(crate) encapsulation: Encapsulation,
    pub(crate) errors: ErrorModel,
    pub(crate) background: Option<BackgroundModel>,
    /// Packets may overtake each other when the delay shrinks.
    pub(crate) allow_reordering: bool,
    /// Planned changes of rate and loss.
    pub(crate) schedule: Schedule,
}

/// One direction.
#[derive(Debug)]
pub(crate) struct Channel<P> {
    way: Way,
    carrier: Carrier,
    encapsulation: Encapsulation,
    /// One per terminal, and then that of the background load.
    stations: Vec<StationChannel<P>>,
    terminals: usize,
    background: Option<BackgroundSource>,
    /// Service that the station served last had got by then; one that comes back after a pause starts from here.
    virtual_time: u64,
    /// Since when something waits.
    ready: Instant,
    upcoming: Upcoming,
}

impl<P> Channel<P> {
    /// An empty channel with `terminals` stations.
    pub(crate) fn new(
        model: &ChannelModel,
        way: Way,
        terminals: usize,
        seed: Seed,
        space: Space<'_>,
    ) -> Self {
        let start = space.start;
        let seed = seed.stream(way.name());
        let station = |index, weight| StationChannel::new(model, index, weight, seed, start);
        let mut stations: Vec<_> = (0..terminals).map(|index| station(index, 1)).collect();
        let background = model.background;
        stations.extend(background.map(|model| station(terminals, model.terminals)));
        Self {
            way,
            carrier: Carrier::new(&model.carriage, way, terminals, seed, space),
            encapsulation: model.encapsulation,
            stations,
            terminals,
            background: background.map(|model| BackgroundSource::new(model, seed, start)),
            virtual_time: 0,
            ready: start,
            upcoming: Upcoming::new(&model.schedule, start),
        }
    }

    /// Offers a packet. One for a terminal that does not exist vanishes.
    pub(crate) fn handle_packet(
        &mut self,
        now: Instant,
        terminal: TerminalId,
        header: PacketHeader,
        packet: P,
        space: Space<'_>,
        log: &mut EventLog,
    ) {
        if terminal.index() >= self.terminals {
            return;
        }
        self.advance(now, space, log);
        if let Some(background) = self.background.as_mut()
            && !self.stations[..self.terminals]
                .iter()
                .any(StationChannel::backlogged)
        {
            background.skip_to(now);
            self.run(now, space, log, |_| false);
        }
        self.enqueue(
            now,
            terminal.index(),
            header,
            Some((header.train, packet)),
            space,
            log,
        );
        self.advance(now, space, log);
    }

    fn enqueue(
        &mut self,
        now: Instant,
        index: usize,
        header: PacketHeader,
        load: Load<P>,
        space: Space<'_>,
        log: &mut EventLog,
    ) {
        let idle = !self.stations.iter().any(StationChannel::backlogged);
        if idle {
            self.ready = now;
        }
        let at_once = idle
            && !matches!(self.carrier, Carrier::Bursts(_))
            && self.next_start(now, space) <= now;
        let station = &mut self.stations[index];
        let first = !station.backlogged();
        if first {
            station.catch_up(self.virtual_time);
        }
        if station.push(now, header, load, at_once) {
            self.count(now, index, header, first, space);
        } else if index < self.terminals {
            let kind = EventKind::dropped(DropCause::QueueFull, header.size);
            log.add(now, self.way, TerminalId::new(index), kind);
        }
    }

    /// Lets a carrier of which terminals ask for capacity know what came, as the `first` packet that waits or not.
    fn count(
        &mut self,
        now: Instant,
        index: usize,
        header: PacketHeader,
        first: bool,
        space: Space<'_>,
    ) {
        if let Carrier::Bursts(bursts) = &mut self.carrier {
            let (size, payload) = (header.size.as_u64(), bursts.payload(index));
            let bytes = self.encapsulation.estimate(size, 1, payload);
            let since_start = now.saturating_duration_since(space.start);
            bursts.arrived(index, bytes, first.then_some(since_start));
        }
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

    /// Instant at which the earliest packet in flight arrives.
    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        self.stations
            .iter()
            .filter_map(StationChannel::next_arrival)
            .min()
    }

    /// The earliest instant at which `poll_output` may return a packet after `advance`; `None` when nothing waits.
    pub(crate) fn poll_timeout(&self, space: Space<'_>) -> Option<Instant> {
        let upcoming = || {
            if let Carrier::Bursts(bursts) = &self.carrier {
                return self.next_burst(bursts, space);
            }
            let start = self.next_start(self.ready, space);
            let terminals = 0..self.terminals;
            let delays = terminals.map(|terminal| space.shortest_delay(terminal));
            Some(start + delays.min()?)
        };
        let upcoming = self.backlogged().then(upcoming).flatten();
        self.next_arrival().into_iter().chain(upcoming).min()
    }

    /// Instant at which a packet may arrive in a burst, if all that waits is known.
    fn next_burst(&self, bursts: &Bursts, space: Space<'_>) -> Option<Instant> {
        let stations = self.stations.iter().enumerate();
        let waiting = stations.filter(|(_, station)| station.backlogged());
        let arrivals = waiting.map(|(index, _)| {
            bursts.next_end(index, space.propagation) + space.shortest_delay(index)
        });
        arrivals.min().map(|at| space.start + at)
    }

    /// Begins every frame that is due by `now`, as long as somebody waits for one.
    pub(crate) fn advance(&mut self, now: Instant, space: Space<'_>, log: &mut EventLog) {
        if matches!(self.carrier, Carrier::Bursts(_)) {
            return self.advance_bursts(now, space, log);
        }
        self.run(now, space, log, |channel| !channel.backlogged());
        self.change(now);
        self.learn(now, space, log);
    }

    /// Lets time pass until `now`, or until `enough`: background load comes, frames begin.
    fn run(
        &mut self,
        now: Instant,
        space: Space<'_>,
        log: &mut EventLog,
        enough: impl Fn(&Self) -> bool,
    ) {
        while !enough(self) {
            let waits = self.stations.iter().any(StationChannel::backlogged);
            let start = waits.then(|| self.next_start(self.ready, space));
            let load = self.background.as_ref().map(BackgroundSource::next);
            if let Some(at) = load.filter(|at| *at <= now)
                && start.is_none_or(|start| at <= start)
            {
                self.load(at, space, log);
            } else if let Some(start) = start.filter(|start| *start <= now) {
                self.transmit(start, space, log);
            } else {
                return;
            }
        }
    }

    /// A packet of the background load comes.
    fn load(&mut self, at: Instant, space: Space<'_>, log: &mut EventLog) {
        let Some(background) = &mut self.background else {
            return;
        };
        background.draw();
        let header = PacketHeader {
            size: background.packet(),
            dscp: u8::MAX,
            train: None,
        };
        self.enqueue(at, self.terminals, header, None, space, log);
    }

    /// Instant at which the next frame begins, if something waits since `ready`. Handovers hold back all terminals at once.
    fn next_start(&self, ready: Instant, space: Space<'_>) -> Instant {
        space.not_held(self.carrier.next_start(ready), 0)
    }

    /// Applies the changes that are planned until `now`.
    fn change(&mut self, now: Instant) {
        while self.upcoming.at().is_some_and(|at| at <= now) {
            match (self.upcoming.pop(), &mut self.carrier) {
                (Some(Change::Rate(rate)), Carrier::Constant(clock)) => clock.set_rate(rate),
                (Some(Change::Loss(loss)), _) => {
                    for station in &mut self.stations {
                        station.errors.set_chance(loss);
                    }
                }
                _ => {}
            }
        }
    }

    /// Sends what is due at `start`.
    fn transmit(&mut self, start: Instant, space: Space<'_>, log: &mut EventLog) {
        self.change(start);
        match &self.carrier {
            Carrier::Constant(_) | Carrier::Opportunities(_) => {
                self.transmit_packet(start, space, log);
            }
            Carrier::PlFrames(_) => self.transmit_frames(start, space, log),
            Carrier::Bursts(_) => self.advance_bursts(start, space, log),
        }
    }

    /// Chooses whose turn it is: of those with the most urgent packets, the one that was served least.
    fn pick(&self, eligible: impl Fn(usize) -> bool) -> Option<usize> {
        let stations = self.stations.iter().enumerate();
        let waiting = stations.filter_map(|(index, station)| {
            let urgency = station.urgency()?;
            eligible(index).then_some((urgency, station.served(), index))
        });
        waiting.min().map(|(_, _, index)| index)
    }

    /// True if a terminal's packets wait.
    fn backlogged(&self) -> bool {
        let mut terminals = self.stations[..self.terminals].iter();
        terminals.any(StationChannel::backlogged)
    }

    /// A snapshot of one terminal's part.
    pub(crate) fn probe(&self, now: Instant, terminal: usize, space: Space<'_>) -> ChannelProbe {
        let station = &self.stations[terminal];
        ChannelProbe {
            cn: space.cn_total(now, terminal, self.way),
            modcod: self.carrier.modcod(terminal),
            modcod_name: self.carrier.modcod_name(terminal),
            capacity: self
                .carrier
                .capacity(terminal, space.state(now, terminal).capacity),
            one_way_delay: space.one_way_delay(now, terminal, self.way).into(),
            queues: station.queues(now),
            counters: station.counters,
        }
    }
}

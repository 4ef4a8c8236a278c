//! Bursts: a carrier that terminals fill in turn, each in its timeslots.
//!
//! Who may send when is `rcs2`'s business; here packets are cut into bursts. A burst is filled at its beginning and its
//! fate decided then; a packet is as late as its last burst, and lost with any of them.

use std::time::{Duration, Instant};

use bentpipe_units::{BitRate, Seed};

use super::carrier::Carrier;
use super::{Channel, Encapsulation, Way};
use crate::event::{EventKind, EventLog};
use crate::frame::Frame;
use crate::ids::{DropCause, TerminalId};
use crate::propagation::Propagation;
use crate::rcs2::{Access, AccessModel, Note, Slot};
use crate::space::Space;

/// The carrier at work.
#[derive(Debug)]
pub(crate) struct Bursts {
    access: Access,
    terminals: Vec<Waiting>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Waiting {
    /// Slots that begin earlier are past.
    from: Duration,
    /// The next slot, for those that have something to send and one that is known.
    upcoming: Option<Slot>,
}

/// Thing that comes next.
enum Next {
    Slot(usize, Slot),
    Control(Duration),
}

impl Bursts {
    pub(super) fn new(model: &AccessModel, propagation: &Propagation, seed: Seed) -> Self {
        Self {
            access: Access::new(model, propagation, seed),
            terminals: vec![Waiting::default(); model.contracts.len()],
        }
    }

    /// The waveform and the capacity that a terminal was granted last.
    pub(super) fn latest(&self, terminal: usize) -> (Option<u8>, BitRate) {
        let (waveform, rate) = self.access.latest(terminal);
        (waveform.map(|waveform| waveform.id), rate)
    }

    /// Name of the waveform that the terminal was granted last.
    pub(super) fn waveform_name(&self, terminal: usize) -> Option<String> {
        let (waveform, _) = self.access.latest(terminal);
        waveform.map(|waveform| waveform.name())
    }

    /// A packet came that takes so many bytes of bursts; it is the first that waits since `at`.
    pub(super) fn arrived(&mut self, terminal: usize, bytes: u64, at: Option<Duration>) {
        self.access.arrived(terminal, bytes);
        let waiting = &mut self.terminals[terminal];
        waiting.from = at.unwrap_or(waiting.from).max(waiting.from);
    }

    pub(super) fn payload(&self, terminal: usize) -> u32 {
        self.access.payload(terminal)
    }

    fn next(&self, propagation: &Propagation) -> Next {
        let control = self.access.next_control(propagation);
        let terminals = self.terminals.iter().enumerate();
        let slots = terminals.filter_map(|(index, waiting)| Some((index, waiting.upcoming?)));
        match slots.min_by_key(|(index, slot)| (slot.start, *index)) {
            Some((index, slot)) if slot.start < control => Next::Slot(index, slot),
            _ => Next::Control(control),
        }
    }

    /// Finds the next slot of a terminal, if it has something to send.
    fn look_ahead(&mut self, terminal: usize, backlogged: bool, propagation: &Propagation) {
        let waiting = &mut self.terminals[terminal];
        if !backlogged {
            waiting.upcoming = None;
        } else if waiting.upcoming.is_none() {
            waiting.upcoming = self.access.next_slot(terminal, waiting.from, propagation);
        }
    }

    fn take(&mut self, terminal: usize, slot: Slot) {
        self.access.use_slot(terminal);
        self.terminals[terminal] = Waiting {
            from: slot.start,
            upcoming: None,
        };
    }

    /// The earliest instant at which a packet of a terminal that waits may have left.
    pub(super) fn next_end(&self, terminal: usize, propagation: &Propagation) -> Duration {
        let slot = self.terminals[terminal].upcoming;
        slot.map_or_else(|| self.access.next_control(propagation), |slot| slot.end)
    }
}

impl<P> Channel<P> {
    /// Does all that is due by `now`: requests, grants, bursts.
    pub(super) fn advance_bursts(&mut self, now: Instant, space: Space<'_>, log: &mut EventLog) {
        let until = now.saturating_duration_since(space.start);
        let mut notes: Vec<Note> = Vec::new();
        loop {
            let Carrier::Bursts(bursts) = &mut self.carrier else {
                return;
            };
            for (index, station) in self.stations.iter().enumerate() {
                bursts.look_ahead(index, station.backlogged(), space.propagation);
            }
            match bursts.next(space.propagation) {
                Next::Slot(index, slot) if slot.start <= until => {
                    bursts.take(index, slot);
                    self.transmit_burst(index, slot, space, log);
                }
                Next::Control(at) if at <= until => {
                    let encapsulation = self.encapsulation;
                    let stations = &self.stations;
                    let payloads: Vec<_> = (0..stations.len())
                        .map(|index| bursts.payload(index))
                        .collect();
                    let backlog = |index: usize| {
                        let (bytes, packets) = stations[index].waiting();
                        encapsulation.estimate(bytes, packets, payloads[index])
                    };
                    bursts
                        .access
                        .control(space.propagation, backlog, &mut notes);
                }
                _ => break,
            }
        }
        for (at, terminal, kind) in notes {
            log.add(
                space.start + at,
                Way::Return,
                TerminalId::new(terminal),
                kind,
            );
        }
    }

    /// Fills one burst and sends it.
    fn transmit_burst(&mut self, index: usize, slot: Slot, space: Space<'_>, log: &mut EventLog) {
        self.change(space.start + slot.start);
        let (way, terminal) = (self.way, TerminalId::new(index));
        let [start, end] = [slot.start, slot.end].map(|at| space.start + at);
        let Carrier::Bursts(bursts) = &self.carrier else {
            return;
        };
        let payload = bursts.access.payload_of(slot.waveform);
        let single = bursts.access.in_ticks();
        let mut room = match self.encapsulation {
            Encapsulation::Gse(_) => payload,
            Encapsulation::Rle(rle) => rle.space(payload),
        };
        let station = &mut self.stations[index];
        let mut cargo = Vec::new();
        while let Some(piece) = station.fill(start, self.encapsulation, room, |size| {
            let kind = EventKind::dropped(DropCause::Codel, size);
            log.add(start, way, terminal, kind);
        }) {
            // OpenSAND begins each packet with a burst of its own.
            room = if single && piece.complete.is_some() {
                0
            } else {
                room - piece.taken
            };
            cargo.push((index, piece));
        }
        if !cargo.is_empty() {
            let code = slot.waveform.code();
            self.arrive(Frame { end, code }, cargo, space, log);
        }
    }
}

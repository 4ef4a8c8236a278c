//! Flows of one PEP: learnt from SYN and SYN-ACK that pass end to end, offered to the other PEP,
//! relayed if that has seen them too.
//!
//! ```text
//!  SYN ──► watched ──SYN-ACK from the LAN──► offered ──OPEN of the other PEP──────────────╮
//!             │                                                                           ▼
//!             ╰─OPEN of the other PEP──► invited ──initiator acknowledges the SYN-ACK──► relayed ──► forgotten
//!  else: untouched, what comes is forwarded
//! ```
//!
//! The PEP beside the responder begins, with the SYN-ACK, so its OPEN costs no round trip. Until both
//! agree all segments pass untouched: a PEP that is alone, or has no room, does no harm.

mod streams;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Instant;

use bytes::Bytes;

use crate::flow::{Flow, FlowName, Step, is_first};
use crate::relay::Relay;
use crate::reset::Side;
use crate::segment::{Flags, Segment};
use crate::wire::{Cause, Form, Opening, Parser};
use crate::words::{Bounds, Counts, Event, FlowId, Verdict};

/// Flow, and what the table notes about it.
#[derive(Debug)]
struct Entry {
    flow: Flow,
    /// Timer of the flow, and whether that is among those of relays.
    timer: (Instant, bool),
    /// The shell has been told to look.
    told: bool,
    /// Relay and reset have been counted.
    counted: (bool, bool),
}

/// Table of flows.
#[derive(Debug)]
pub struct Table {
    form: Form,
    bounds: Bounds,
    flows: HashMap<FlowId, Entry>,
    names: HashMap<FlowName, FlowId>,
    /// Timers of flows that have no place among the relays: the first is the longest silent.
    spare: BTreeSet<(Instant, FlowId)>,
    /// Timers of flows that have one.
    relays: BTreeSet<(Instant, FlowId)>,
    events: VecDeque<Event>,
    next: u64,
    counts: Counts,
}

impl Table {
    /// Empty table of flows whose blobs have this `form`.
    #[must_use]
    pub fn new(form: Form, bounds: Bounds) -> Self {
        Self {
            form,
            bounds,
            flows: HashMap::new(),
            names: HashMap::new(),
            spare: BTreeSet::new(),
            relays: BTreeSet::new(),
            events: VecDeque::new(),
            next: 0,
            counts: Counts::default(),
        }
    }

    /// Takes a segment that came from `side`. `renewed`: an earlier process of this PEP may have
    /// relayed the pair's flows, so that a flow which is unknown is reset.
    pub fn on_segment(
        &mut self,
        now: Instant,
        name: &FlowName,
        side: Side,
        segment: &Segment,
        renewed: bool,
    ) -> Verdict {
        let mut known = self.names.get(name).copied();
        if is_first(segment) {
            if let Some(id) = known
                && self
                    .flows
                    .get(&id)
                    .is_some_and(|it| it.flow.gives_way(side, segment))
            {
                self.forget(id);
                known = None;
            }
            if known.is_none() {
                self.add(Flow::new(now, *name, side, segment, self.bounds.room));
                return Verdict::Forward;
            }
        }
        match known {
            Some(id) => self.on_known(now, id, side, segment),
            None if renewed => self.on_stray(now, name, side, segment),
            None => Verdict::Forward,
        }
    }

    /// Resets the connection of a segment that belongs to no flow.
    fn on_stray(
        &mut self,
        now: Instant,
        name: &FlowName,
        side: Side,
        segment: &Segment,
    ) -> Verdict {
        let shown = segment.flags.has(Flags::ACK) && !segment.flags.has(Flags::SYN | Flags::RST);
        if !shown {
            return Verdict::Forward;
        }
        self.counts.strays += 1;
        if let Some(id) = self.add(Flow::stray(now, *name, side, segment)) {
            self.handle_flow(now, id);
        }
        Verdict::Taken
    }

    /// Adds a flow; `None`: all places are taken by relays.
    fn add(&mut self, flow: Flow) -> Option<FlowId> {
        if self.flows.len() >= self.bounds.known {
            self.forget(self.spare.first()?.1);
        }
        let id = FlowId(self.next);
        self.next += 1;
        let entry = Entry {
            timer: (flow.poll_timeout(), false),
            flow,
            told: false,
            counted: (false, false),
        };
        self.spare.insert((entry.timer.0, id));
        self.names.insert(*entry.flow.name(), id);
        self.flows.insert(id, entry);
        Some(id)
    }

    fn on_known(&mut self, now: Instant, id: FlowId, side: Side, segment: &Segment) -> Verdict {
        let full = self.relays.len() >= self.bounds.relayed;
        let Some(entry) = self.flows.get_mut(&id) else {
            return Verdict::Forward;
        };
        let step = entry.flow.on_segment(now, side, segment);
        if step == Step::Offer {
            if full {
                *self.counts.refused.entry(Cause::Room).or_default() += 1;
                entry.flow.leave_alone();
            } else {
                entry.flow.offer(self.form);
                self.events.push_back(Event::Offer(id));
            }
        }
        self.touch(id);
        match step {
            Step::Taken => Verdict::Taken,
            Step::Pass | Step::Offer => Verdict::Forward,
        }
    }

    /// Notes that a flow has changed, and has the shell look at it.
    fn touch(&mut self, id: FlowId) {
        let had_place = self.flows.get(&id).is_some_and(|entry| entry.timer.1);
        self.set_timer(id);
        let Some(entry) = self.flows.get_mut(&id) else {
            return;
        };
        // A flow that passes has nothing to say, but that it refuses an invitation.
        let speaks = had_place || entry.flow.speaks();
        if speaks && !std::mem::replace(&mut entry.told, true) {
            self.events.push_back(Event::Service(id));
        }
        let Some(relay) = entry.flow.relay() else {
            return;
        };
        if !std::mem::replace(&mut entry.counted.0, true) {
            self.counts.relayed += 1;
        }
        if let Some(cause) = relay.reset_by()
            && !std::mem::replace(&mut entry.counted.1, true)
        {
            *self.counts.reset.entry(cause).or_default() += 1;
        }
    }

    /// Sets the timer of a flow anew.
    fn set_timer(&mut self, id: FlowId) {
        let Some(entry) = self.flows.get_mut(&id) else {
            return;
        };
        let timer = (entry.flow.poll_timeout(), entry.flow.has_place());
        let before = std::mem::replace(&mut entry.timer, timer);
        if timer != before {
            for ((at, relays), adds) in [(before, false), (timer, true)] {
                let timers = if relays {
                    &mut self.relays
                } else {
                    &mut self.spare
                };
                if adds {
                    timers.insert((at, id));
                } else {
                    timers.remove(&(at, id));
                }
            }
        }
    }

    fn forget(&mut self, id: FlowId) {
        if let Some(entry) = self.flows.remove(&id) {
            self.spare.remove(&(entry.timer.0, id));
            self.relays.remove(&(entry.timer.0, id));
            self.names.remove(entry.flow.name());
            self.events.push_back(Event::Gone(id));
        }
    }

    /// The next word to the shell.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        if let Event::Service(id) = event
            && let Some(entry) = self.flows.get_mut(&id)
        {
            entry.told = false;
        }
        Some(event)
    }

    /// Both ends of a flow.
    #[must_use]
    pub fn name(&self, id: FlowId) -> Option<&FlowName> {
        self.flows.get(&id).map(|entry| entry.flow.name())
    }

    /// Takes the OPEN that begins a stream of the other PEP; `parser` has read it, and goes on.
    ///
    /// # Errors
    /// [`Cause`]: the flow is unknown, or there is no room; the stream is to carry that as RESET.
    pub fn invite(
        &mut self,
        now: Instant,
        opening: &Opening,
        parser: Parser,
    ) -> Result<FlowId, Cause> {
        let taken = self.try_invite(now, opening, parser);
        if let Err(cause) = taken {
            *self.counts.refused.entry(cause).or_default() += 1;
        }
        taken
    }

    fn try_invite(
        &mut self,
        now: Instant,
        opening: &Opening,
        parser: Parser,
    ) -> Result<FlowId, Cause> {
        let name = FlowName {
            scope: opening.scope,
            lan: opening.initiator,
            wan: opening.responder,
        };
        let full = self.relays.len() >= self.bounds.relayed;
        let known = self.names.get(&name).filter(|_| opening.form == self.form);
        let id = *known.ok_or(Cause::Unknown)?;
        let entry = self.flows.get_mut(&id).ok_or(Cause::Unknown)?;
        if full {
            return Err(Cause::Room);
        }
        entry.flow.invite(now, opening, parser)?;
        self.touch(id);
        Ok(id)
    }

    /// Says whether an end may still wait for something of this PEP: bytes, the end of a direction, or a reset. If the PEP were gone,
    /// the connection would have to be reset.
    #[must_use]
    pub fn owes(&self, id: FlowId) -> bool {
        self.flows.get(&id).is_some_and(|entry| entry.flow.owes())
    }

    /// Says whether the other end has reset the connection, and what it had sent before is on its way to the LAN end: that goes on
    /// without a stream.
    #[must_use]
    pub fn delivers(&self, id: FlowId) -> bool {
        self.flows
            .get(&id)
            .is_some_and(|entry| entry.flow.delivers())
    }

    /// Flows whose LAN end has yet to acknowledge payload, with the zone of the first.
    pub fn awaited(&self) -> impl Iterator<Item = (FlowId, &FlowName, &Bytes)> {
        self.flows.iter().filter_map(|(id, entry)| {
            let blob = entry.flow.relay()?.awaited()?;
            Some((*id, entry.flow.name(), &blob.zone))
        })
    }

    /// The next segment of a flow that is to leave, and to which side.
    pub fn poll_segment(&mut self, now: Instant, id: FlowId) -> Option<(Side, Segment)> {
        let segment = self.flows.get_mut(&id)?.flow.poll_segment(now);
        self.set_timer(id);
        segment
    }

    /// When [`Self::handle_timeout`] is to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let firsts = [self.spare.first(), self.relays.first()];
        firsts.into_iter().flatten().map(|(at, _)| *at).min()
    }

    /// Acts on all timers that have run out.
    pub fn handle_timeout(&mut self, now: Instant) {
        for relays in [false, true] {
            let timers = if relays { &self.relays } else { &self.spare };
            let due = timers.iter().take_while(|(at, _)| *at <= now);
            for id in due.map(|(_, id)| *id).collect::<Vec<_>>() {
                self.handle_flow(now, id);
            }
        }
    }

    fn handle_flow(&mut self, now: Instant, id: FlowId) {
        let flow = self.flows.get_mut(&id).map(|entry| &mut entry.flow);
        if flow.is_some_and(|flow| !flow.handle_timeout(now)) {
            self.forget(id);
        }
        self.touch(id);
    }

    /// Numbers of flows since the start.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Flows that are known, and those of them that have a place among the relays.
    #[must_use]
    pub fn flows(&self) -> (usize, usize) {
        (self.flows.len(), self.relays.len())
    }

    /// Memory that relays hold, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        let relays = self.flows.values().filter_map(|entry| entry.flow.relay());
        relays.map(Relay::memory).sum()
    }
}

#[cfg(test)]
mod tests;

//! Relayed flows between the devices and the tunnel: each has a stream, and what tables of crate `segments` decide about it is
//! carried out here.
//!
//! ```text
//!   SegmentIntake ─ segments ─► Table ─ messages ─► stream of the tunnel
//!   devices ◄─ packets ── Table ◄─ messages ── stream of the tunnel
//! ```
//!
//! There is a table for flows in clear and one for those of LES; a stream says with its first message which it belongs to.

mod carried;
mod keyless;
mod obstacles;
mod sending;
mod streams;

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Instant;

use bentpipe_proto::tunnel::ReplyCode;
use bentpipe_segments::{
    Bounds, Event, FlowName, Form, Parser, Scope, Segment, Side, Table, Verdict,
};
use bytes::Bytes;

use super::counts::{Passed, report};
use super::journal::Journal;
use super::les::{HeaderKeys, LayeredSegment, Layers, StaysClosed};
use crate::shard::Shard;
use crate::status;
use crate::status::SegmentsRefused;
use bentpipe_tunnel::engine::ConnectionId;
use bentpipe_tunnel::transport::{FlowKey, Streams, Tunnel};
use carried::{Carried, Member, Tables, Use};
use keyless::KeylessFlows;
use obstacles::RelayObstacle;
use sending::SegmentOutlet;

/// Stream of a connection.
pub(super) type Place = (ConnectionId, FlowKey);

/// Relayed flows.
pub(super) struct SegmentRelays {
    shard: Rc<Shard>,
    tables: Tables,
    streams: HashMap<Place, Carried>,
    places: HashMap<Member, Place>,
    names: HashMap<Member, FlowName>,
    journal: Journal,
    /// Keys of packets of LES.
    layers: Layers,
    /// Connection on which flows are offered.
    tunnel: Option<ConnectionId>,
    /// No more flows are taken.
    draining: bool,
    /// Flows that were not relayed for a [`RelayObstacle`].
    hindered: SegmentsRefused,
    outlet: SegmentOutlet,
    keyless: KeylessFlows<Member>,
}

impl SegmentRelays {
    /// No flow is known; the tables of both forms have these bounds. Packets of LES are opened with `keys`.
    pub(super) fn new(
        shard: Rc<Shard>,
        bounds: Bounds,
        journal: Journal,
        keys: Box<dyn HeaderKeys>,
    ) -> Self {
        Self {
            shard,
            tables: Tables::new(bounds),
            streams: HashMap::new(),
            places: HashMap::new(),
            names: HashMap::new(),
            journal,
            layers: Layers::new(keys),
            tunnel: None,
            draining: false,
            hindered: SegmentsRefused::default(),
            outlet: SegmentOutlet::new(),
            keyless: KeylessFlows::new(),
        }
    }

    /// Flows are offered on this connection from now on.
    pub(super) fn set_tunnel(&mut self, tunnel: Option<ConnectionId>) {
        self.tunnel = tunnel;
    }

    /// Connection on which a flow can be offered now.
    pub(super) fn usable(&self) -> Option<ConnectionId> {
        let id = self.tunnel.filter(|_| !self.draining)?;
        self.shard.peek(|engine| {
            let connection = engine.peek(id)?;
            let tunnel = &connection.tunnel;
            // What is offered to a PEP that is dead has to be reset when that is certain.
            let answers = connection.unanswered_since().is_none();
            (answers && tunnel.agreement().carries_segments() && !tunnel.is_draining())
                .then_some(id)
        })
    }

    /// Takes a segment that came from `side`; of what is to go on as it came, [`Self::pass`] is told. `renewed`: an earlier
    /// process may have relayed the flow.
    pub(super) fn on_segment(
        &mut self,
        now: Instant,
        (form, name): (Form, &FlowName),
        side: Side,
        segment: &Segment,
        renewed: bool,
    ) -> Verdict {
        let table = self.tables.get(form);
        table.on_segment(now, name, side, segment, renewed)
    }

    /// Opens a packet of LES that came from `side`.
    pub(super) fn open(
        &mut self,
        now: Instant,
        side: Side,
        packet: &Bytes,
    ) -> Result<LayeredSegment, StaysClosed> {
        self.layers.open(now, side, packet)
    }

    /// Says whether an earlier process had relayed the flow. With a `first` segment another connection of that name begins.
    /// `supposed` answers where not all earlier flows were noted.
    pub(super) fn was_relayed(&mut self, name: &FlowName, first: bool, supposed: bool) -> bool {
        if first {
            self.journal.renew(name);
        }
        self.journal.was_relayed(name) || supposed && !self.journal.is_complete()
    }

    /// Hands on a packet that came from `side`.
    pub(super) fn pass(&mut self, side: Side, packet: Bytes) {
        self.outlet.pass(side, packet);
    }

    /// Packets for the devices, and the side that each goes to.
    pub(super) fn take_out(&mut self) -> Vec<(Side, Bytes)> {
        self.outlet.take()
    }

    /// The other PEP has opened a stream.
    pub(super) fn on_opened(&mut self, now: Instant, place: Place) {
        self.change(place, |tunnel, key, quic| {
            tunnel.reply(quic, key, ReplyCode::Ok, None);
        });
        self.streams
            .insert(place, Carried::new(Use::Opening(Parser::default())));
        self.on_news(now, place);
    }

    /// The tunnel has news of a stream.
    pub(super) fn on_news(&mut self, now: Instant, place: Place) {
        self.change(place, |tunnel, key, _| tunnel.take_notice(key));
        self.read(now, place);
        self.write(now, place);
    }

    /// A connection is over, and with it its streams.
    pub(super) fn on_lost(&mut self, now: Instant, connection: ConnectionId) {
        let all = self.streams.keys();
        let lost: Vec<_> = all.copied().filter(|(of, _)| *of == connection).collect();
        if !lost.is_empty() {
            tracing::warn!(
                "{} relayed flows are reset: the tunnel that carried them is lost",
                lost.len()
            );
        }
        for place in lost {
            self.drop_stream(now, place);
        }
    }

    /// Does what the tables ask for, until they are at rest.
    pub(super) fn serve(&mut self, now: Instant) {
        for form in [Form::Clear, Form::Zones] {
            while let Some(event) = self.tables.get(form).poll_event() {
                match event {
                    Event::Offer(id) => self.offer(Member { form, id }),
                    Event::Service(id) => self.service(now, Member { form, id }),
                    Event::Gone(id) => self.forget(Member { form, id }),
                }
            }
        }
    }

    /// When [`Self::handle_timeout`] is to be called.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.tables.all().filter_map(Table::poll_timeout).min()
    }

    /// Acts on timers that have run out.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        for table in self.tables.all_mut() {
            table.handle_timeout(now);
        }
    }

    /// Looks at what changes slowly; to be called every second.
    pub(super) fn tick(&mut self, now: Instant) {
        self.journal.expire(now);
        self.give_up_keyless(now);
    }

    /// Resets flows whose payload cannot be written to its end any more.
    fn give_up_keyless(&mut self, now: Instant) {
        let form = Form::Zones;
        let layers = &self.layers;
        let lacking = self.tables.of(form).awaited();
        let lacking = lacking.filter(|(_, name, zone)| layers.lack_key((name, Side::Lan), zone));
        let lacking = lacking.map(|(id, ..)| Member { form, id });
        let hopeless = self.keyless.on_look(now, lacking);
        if !hopeless.is_empty() {
            self.keyless.tell(now);
        }
        for member in hopeless {
            self.give_up_flow(now, member);
        }
    }

    /// Writes down what is still relayed at the end of the process.
    pub(super) fn close(&mut self) {
        self.journal.close();
    }

    /// Takes no more flows.
    pub(super) fn drain(&mut self) {
        self.draining = true;
    }

    /// Flows that have a stream, or whose bytes are on their way to the end here without one.
    fn under_way(&self) -> impl Iterator<Item = (Member, &FlowName)> {
        let all = self.names.iter().map(|(member, name)| (*member, name));
        all.filter(|(member, _)| {
            self.places.contains_key(member) || self.tables.of(member.form).delivers(member.id)
        })
    }

    /// Number of flows that have a stream, or whose bytes are on their way to the end here without one.
    pub(super) fn active(&self) -> usize {
        self.under_way().count()
    }

    /// Resets flows of this pair of ends, whose keys are about to go.
    pub(super) fn withdraw(&mut self, now: Instant, scope: &Scope) {
        let of_pair =
            |member: Member, name: &FlowName| member.form == Form::Zones && name.scope == *scope;
        let own = self
            .under_way()
            .filter(|(member, name)| of_pair(*member, name));
        let own: Vec<_> = own.map(|(member, _)| member).collect();
        if !own.is_empty() {
            tracing::warn!(
                "{} relayed flows are reset: the keys of their headers are taken back, or their time is over",
                own.len()
            );
        }
        for member in own {
            self.give_up_flow(now, member);
        }
        // The words that reset them need the keys.
        self.handle_timeout(now);
    }

    /// Resets all flows that are relayed.
    pub(super) fn give_up(&mut self, now: Instant) {
        let all: Vec<_> = self.under_way().map(|(member, _)| member).collect();
        for member in all {
            self.give_up_flow(now, member);
        }
        let rest: Vec<_> = self.streams.keys().copied().collect();
        for place in rest {
            self.drop_stream(now, place);
        }
    }

    /// Figures of `status`.
    pub(super) fn report(&self, passed: Passed) -> status::Segments {
        let tables = [Form::Clear, Form::Zones].map(|form| self.tables.of(form));
        report(tables, self.hindered, passed)
    }

    /// Acts on the stream at `place`; nothing happens if its connection is no more.
    fn change(&self, place: Place, act: impl FnOnce(&mut Tunnel, FlowKey, &mut Streams)) {
        self.shard.change(place.0, |connection| {
            let (tunnel, quic) = connection.parts();
            act(tunnel, place.1, quic);
        });
    }

    fn look<T>(&self, place: Place, look: impl FnOnce(&Tunnel, FlowKey) -> T) -> Option<T> {
        self.shard
            .peek(|engine| Some(look(&engine.peek(place.0)?.tunnel, place.1)))
    }

    /// Offers a flow to the other PEP, if there is a tunnel.
    fn offer(&mut self, member: Member) {
        let place = self.usable().and_then(|id| {
            let open = |connection: &mut bentpipe_tunnel::engine::Connection| {
                let (tunnel, quic) = connection.parts();
                tunnel.open_segments(quic).ok()
            };
            Some((id, self.shard.change(id, open)??))
        });
        let entered = place.ok_or(RelayObstacle::Tunnel).and_then(|place| {
            self.enter(member, place).map_or(Ok(place), |obstacle| {
                self.release(place);
                Err(obstacle)
            })
        });
        match entered {
            Ok(place) => {
                self.streams.insert(place, Carried::new(Use::Flow(member)));
            }
            Err(obstacle) => {
                self.hinder(obstacle);
                self.tables.get(member.form).on_no_stream(member.id);
            }
        }
    }

    /// Notes that a flow has a stream; or names the obstacle, for which it must not have one.
    fn enter(&mut self, member: Member, place: Place) -> Option<RelayObstacle> {
        let Some(name) = self.tables.of(member.form).name(member.id).copied() else {
            return Some(RelayObstacle::Tunnel);
        };
        if member.form == Form::Zones && !self.layers.stays(&name.scope) {
            return Some(RelayObstacle::Key);
        }
        if !self.journal.begin(&name) {
            return Some(RelayObstacle::Journal);
        }
        self.names.insert(member, name);
        self.places.insert(member, place);
        None
    }

    /// Serves a flow that may have messages or segments.
    fn service(&mut self, now: Instant, member: Member) {
        if let Some(place) = self.places.get(&member).copied() {
            self.read(now, place);
            self.write(now, place);
        }
        let parts = (self.tables.get(member.form), &mut self.layers);
        self.outlet.send(now, member, parts);
        // What lingers to answer late segments is nothing that a successor would have to reset.
        if !self.tables.of(member.form).owes(member.id)
            && let Some(name) = self.names.get(&member)
        {
            self.journal.end(name);
        }
    }

    /// A table has forgotten a flow.
    fn forget(&mut self, member: Member) {
        if let Some(name) = self.names.remove(&member) {
            self.journal.end(&name);
        }
        if let Some(place) = self.places.remove(&member) {
            self.streams.remove(&place);
            self.release(place);
        }
    }

    /// Lets go of a stream: if it has not ended in order, the other PEP hears that it broke off.
    fn release(&self, place: Place) {
        self.change(place, |tunnel, key, quic| tunnel.release(quic, key));
    }

    /// The flow is given up, and with it its stream.
    fn give_up_flow(&mut self, now: Instant, member: Member) {
        self.tables.get(member.form).give_up(now, member.id);
        if let Some(place) = self.places.get(&member).copied() {
            self.drop_stream(now, place);
        }
    }

    /// The stream is no more, or is given up.
    fn drop_stream(&mut self, now: Instant, place: Place) {
        if let Some(carried) = self.streams.remove(&place)
            && let Use::Flow(member) = carried.used
        {
            self.places.remove(&member);
            self.tables.get(member.form).on_stream_lost(now, member.id);
        }
        self.release(place);
    }
}

#[cfg(test)]
mod tests;

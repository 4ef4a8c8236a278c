//! Table of flows: which are relayed, forwarded or reset.

mod resets;

use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::BytesMut;

use super::*;
use crate::segment::SynOptions;
use crate::wire::Message;

#[expect(
    clippy::disallowed_methods,
    reason = "any instant will do; all else is virtual"
)]
fn origin() -> Instant {
    Instant::now()
}

const BOUNDS: Bounds = Bounds {
    known: 3,
    relayed: 2,
    room: 10_000,
};

/// PEP beside the responder, or, turned, beside the initiator.
struct Pep {
    now: Instant,
    table: Table,
    turned: bool,
}

fn segment(number: u32, acknowledgement: u32, flags: Flags) -> Segment {
    Segment {
        number,
        acknowledgement,
        flags,
        window: 1000,
        ..Segment::default()
    }
}

impl Pep {
    fn new(turned: bool) -> Self {
        let table = Table::new(Form::Clear, BOUNDS);
        Self {
            now: origin(),
            table,
            turned,
        }
    }

    fn name(&self, port: u16) -> FlowName {
        let ends = [
            (Ipv4Addr::new(192, 0, 2, 1).into(), 443),
            (Ipv4Addr::new(192, 168, 1, 10).into(), port),
        ];
        let at = usize::from(self.turned);
        FlowName {
            scope: [0; 16],
            lan: ends[at],
            wan: ends[1 - at],
        }
    }

    /// Segment of the initiator, or of the responder.
    fn give(&mut self, port: u16, initiator: bool, segment: &Segment) -> Verdict {
        let side = if initiator == self.turned {
            Side::Lan
        } else {
            Side::Wan
        };
        let name = self.name(port);
        self.table.on_segment(self.now, &name, side, segment, false)
    }

    /// SYN and SYN-ACK with these options.
    fn shake(&mut self, port: u16, options: SynOptions) -> Vec<Event> {
        let syn = segment(99, 0, Flags::SYN);
        assert_eq!(self.give(port, true, &syn), Verdict::Forward);
        let answer = Segment {
            options,
            ..segment(499, 100, Flags::SYN | Flags::ACK)
        };
        assert_eq!(self.give(port, false, &answer), Verdict::Forward);
        self.events()
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.table.poll_event()).collect()
    }

    fn messages(&mut self, id: FlowId) -> Vec<Message> {
        let mut out = BytesMut::new();
        self.table.poll_stream(self.now, id, &mut out, 100_000);
        let (mut parser, mut input) = (Parser::default(), &out[..]);
        // What follows OPEN is read as if that were there.
        let mut found = Vec::new();
        while let Ok(Some(message)) = parser.next(&mut input) {
            found.push(message);
        }
        found
    }

    fn segments(&mut self, id: FlowId) -> Vec<(Side, Segment)> {
        std::iter::from_fn(|| self.table.poll_segment(self.now, id)).collect()
    }

    /// Flow that is relayed, of a PEP beside the responder.
    fn relayed(&mut self, port: u16) -> FlowId {
        let events = self.shake(port, SynOptions::default());
        let offer = events.iter().find_map(|event| match event {
            Event::Offer(id) => Some(*id),
            _ => None,
        });
        let id = offer.unwrap_or_else(|| panic!("{events:?}"));
        let mut out = BytesMut::new();
        self.table.poll_stream(self.now, id, &mut out, 1000);
        let taken = self.table.on_stream(self.now, id, &mut &out[..]);
        taken.expect("the same OPEN is the answer");
        id
    }
}

fn data(number: u32) -> Segment {
    Segment {
        length: 5,
        zone: Bytes::from_static(b"hello"),
        ..segment(number, 100, Flags::ACK)
    }
}

#[test]
fn a_flow_is_relayed_when_both_peps_have_seen_it() {
    let mut pep = Pep::new(false);
    let id = pep.relayed(1000);
    let (side, ack) = pep.segments(id).remove(0);
    assert_eq!(
        (side, ack.acknowledgement),
        (Side::Lan, 500),
        "of the SYN-ACK"
    );
    assert_eq!(pep.give(1000, false, &data(500)), Verdict::Taken);
    assert_eq!(pep.segments(id)[0].1.acknowledgement, 505, "at once");
    assert_eq!(pep.table.counts().relayed, 1);
}

#[test]
fn payload_is_awaited_until_the_end_acknowledges_all_of_it() {
    let mut pep = Pep::new(false);
    let id = pep.relayed(1000);
    let name = pep.name(1000);
    let awaited = |pep: &Pep| -> Vec<_> {
        let all = pep.table.awaited();
        all.map(|(id, name, zone)| (id, *name, zone.clone()))
            .collect()
    };
    assert_eq!(awaited(&pep), []);
    let mut blob = BytesMut::new();
    let held = data(100).blob().expect("payload");
    Message::Blob(100, held.clone()).encode(&mut blob);
    let taken = pep.table.on_stream(pep.now, id, &mut &blob[..]);
    taken.expect("a message");
    pep.segments(id);
    for (acknowledged, left) in [(104, vec![(id, name, held.zone)]), (105, vec![])] {
        pep.give(1000, false, &segment(500, acknowledged, Flags::ACK));
        assert_eq!(awaited(&pep), left, "{acknowledged}");
    }
}

#[test]
fn the_other_pep_waits_for_the_initiator() {
    let mut pep = Pep::new(true);
    pep.shake(1000, SynOptions::default());
    let name = pep.name(1000);
    let opening = Opening {
        form: Form::Clear,
        scope: name.scope,
        initiator: name.lan,
        responder: name.wan,
        initial: [99, 499],
    };
    let id = pep.table.invite(pep.now, &opening, Parser::default());
    let id = id.expect("known");
    assert_eq!(pep.messages(id), [], "no answer yet");
    let ack = segment(100, 500, Flags::ACK);
    assert_eq!(pep.give(1000, true, &ack), Verdict::Taken);
    assert_eq!(pep.messages(id), [Message::Open(opening.clone())]);
    let again = pep.table.invite(pep.now, &opening, Parser::default());
    assert_eq!(again, Err(Cause::Unknown), "once");
}

#[test]
fn another_connection_of_the_same_ports_is_not_meant() {
    for initial in [[98, 499], [99, 498]] {
        let mut pep = Pep::new(true);
        pep.shake(1000, SynOptions::default());
        let name = pep.name(1000);
        let opening = Opening {
            form: Form::Clear,
            scope: name.scope,
            initiator: name.lan,
            responder: name.wan,
            initial,
        };
        let invited = pep.table.invite(pep.now, &opening, Parser::default());
        pep.give(1000, true, &segment(100, 500, Flags::ACK));
        assert_eq!(pep.give(1000, true, &data(100)), Verdict::Forward);
        if let Ok(id) = invited {
            assert_eq!(pep.messages(id), [Message::Reset(Cause::Unknown)]);
        }
    }
}

#[test]
fn flows_that_a_pep_cannot_keep_pass_untouched() {
    let foreign = SynOptions {
        foreign: true,
        ..SynOptions::default()
    };
    let mut pep = Pep::new(false);
    assert_eq!(pep.shake(1000, foreign), []);
    // Seen from the middle.
    assert_eq!(pep.give(1001, false, &data(500)), Verdict::Forward);
    // The other PEP refuses.
    let events = pep.shake(1002, SynOptions::default());
    let Event::Offer(id) = events[0] else {
        panic!("{events:?}");
    };
    let mut refusal = BytesMut::new();
    Message::Reset(Cause::Unknown).encode(&mut refusal);
    let taken = pep.table.on_stream(pep.now, id, &mut &refusal[..]);
    taken.expect("a message");
    assert_eq!(pep.give(1002, false, &data(500)), Verdict::Forward);
    // No room.
    pep.events();
    pep.relayed(1003);
    pep.relayed(1004);
    let events = pep.shake(1005, SynOptions::default());
    let offers = |event: &Event| matches!(event, Event::Offer(_));
    assert!(!events.iter().any(offers), "{events:?}");
    assert_eq!(pep.table.counts().refused, [(Cause::Room, 1)].into());
}

#[test]
fn tables_are_bounded_and_forget() {
    let mut pep = Pep::new(false);
    let kept = pep.relayed(999);
    for port in 1000..2000 {
        pep.give(port, true, &segment(99, 0, Flags::SYN));
        assert!(pep.table.flows().0 <= BOUNDS.known);
    }
    assert_eq!(pep.table.name(kept), Some(&pep.name(999)), "relays stay");
    pep.now += Duration::from_secs(7440);
    pep.table.handle_timeout(pep.now);
    assert_eq!(pep.table.flows(), (1, 1));
    let told: Vec<_> = pep.segments(kept).iter().map(|it| it.0).collect();
    assert_eq!(told, [Side::Lan, Side::Lan, Side::Wan, Side::Wan]);
    pep.now += Duration::from_secs(120);
    pep.table.handle_timeout(pep.now);
    assert_eq!(pep.table.flows(), (0, 0));
    assert_eq!(pep.table.poll_timeout(), None);
    assert_eq!(pep.table.counts().reset, [(Cause::Idle, 1)].into());
}

#[test]
fn a_stream_that_breaks_off_resets_both_ends_where_they_answer() {
    let mut pep = Pep::new(false);
    let id = pep.relayed(1000);
    pep.segments(id);
    pep.table.on_stream_lost(pep.now, id);
    pep.table.handle_timeout(pep.now);
    for (side, segment) in pep.segments(id) {
        let asks = !segment.flags.has(Flags::RST);
        let far = segment.number.wrapping_add(1 << 30);
        assert!(asks == (far < 1000), "{side:?} {segment:?}");
    }
    let expects = segment(700, 300, Flags::ACK);
    assert_eq!(pep.give(1000, false, &expects), Verdict::Taken);
    let (side, rst) = pep.segments(id).remove(0);
    assert_eq!((side, rst.number, rst.flags), (Side::Lan, 300, Flags::RST));
    // A new connection takes its place.
    pep.give(1000, true, &segment(5000, 0, Flags::SYN));
    assert!(pep.events().contains(&Event::Gone(id)));
}

#[test]
fn unknown_flows_of_an_earlier_process_are_reset() {
    let mut pep = Pep::new(false);
    let name = pep.name(1000);
    let mut give = |segment: &Segment| {
        let verdict = pep
            .table
            .on_segment(pep.now, &name, Side::Lan, segment, true);
        let events: Vec<_> = std::iter::from_fn(|| pep.table.poll_event()).collect();
        (verdict, events)
    };
    let rst = segment(7, 8, Flags::RST | Flags::ACK);
    let answer = segment(7, 8, Flags::SYN | Flags::ACK);
    for passes in [rst, answer] {
        assert_eq!(give(&passes), (Verdict::Forward, vec![]));
    }
    let (verdict, events) = give(&data(500));
    let [Event::Service(id)] = events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(verdict, Verdict::Taken);
    let rsts = pep.segments(id);
    let rsts = rsts.iter().filter(|(_, it)| it.flags == Flags::RST);
    let rsts: Vec<_> = rsts.map(|(side, it)| (*side, it.number)).collect();
    assert_eq!(rsts, [(Side::Lan, 100), (Side::Wan, 500)]);
    assert_eq!(pep.table.counts().strays, 1);
}

#[test]
fn nobody_but_the_other_pep_confirms_a_fin() {
    let mut pep = Pep::new(false);
    let events = pep.shake(1000, SynOptions::default());
    let Event::Offer(id) = events[0] else {
        panic!("{events:?}");
    };
    let fin = Segment {
        flags: Flags::ACK | Flags::FIN,
        ..data(500)
    };
    assert_eq!(
        pep.give(1000, false, &fin),
        Verdict::Forward,
        "before the relay"
    );
    let mut out = BytesMut::new();
    pep.table.poll_stream(pep.now, id, &mut out, 1000);
    let taken = pep.table.on_stream(pep.now, id, &mut &out[..]);
    taken.expect("the same OPEN is the answer");
    pep.segments(id);
    // An acknowledgement of the FIN that passed is not believed, one of the bytes is.
    pep.give(1000, true, &segment(100, 506, Flags::ACK));
    assert_eq!(pep.segments(id), []);
    pep.give(1000, true, &segment(100, 505, Flags::ACK));
    assert_eq!(pep.segments(id)[0].1.acknowledgement, 505);
    pep.give(1000, false, &fin);
    assert_eq!(pep.segments(id)[0].1.acknowledgement, 505);
    let mut acked = BytesMut::new();
    Message::FinAcked.encode(&mut acked);
    let taken = pep.table.on_stream(pep.now, id, &mut &acked[..]);
    taken.expect("a message");
    assert_eq!(pep.segments(id)[0].1.acknowledgement, 506);
}

#[test]
fn an_end_that_resets_while_its_flow_is_offered_is_not_forgotten() {
    let mut pep = Pep::new(false);
    let id = pep
        .shake(1000, SynOptions::default())
        .into_iter()
        .find_map(|event| match event {
            Event::Offer(id) => Some(id),
            _ => None,
        })
        .expect("an offer");
    let mut out = BytesMut::new();
    pep.table.poll_stream(pep.now, id, &mut out, 1000);
    let told = |pep: &mut Pep| {
        let taken = pep.table.on_stream(pep.now, id, &mut &out[..]);
        taken.expect("the same OPEN is the answer");
        let mut rest = BytesMut::new();
        pep.table.poll_stream(pep.now, id, &mut rest, 1000);
        rest.to_vec()
    };
    // The other PEP relays already, and takes the RST, which passes here.
    let rst = segment(500, 100, Flags::RST | Flags::ACK);
    assert_eq!(pep.give(1000, false, &rst), Verdict::Forward);
    let mut reset = BytesMut::new();
    Message::Reset(Cause::End).encode(&mut reset);
    assert_eq!(told(&mut pep), reset.to_vec());
    assert!(pep.table.is_stream_done(id));
}

//! The relay of segments (PROTOCOL.md §20.9): streams as a PEP reads them from a stranger, and two PEPs between two ends whose
//! segments come cut, repeated and out of order.
//!
//! Differential: what an end hears is what the other one has said, up to an end in order or an abort.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bentpipe_segments::{
    Bounds, Cause, Event, Flags, FlowId, FlowName, Form, Headers, Message, Opening, Parser,
    Segment, Side, SynOptions, Table,
};
use bytes::{Bytes, BytesMut};

/// Bytes that each end has to say.
const TOTAL: u64 = 300;

/// Numbers of both SYNs: those of one direction wrap.
const INITIAL: [u32; 2] = [0xffff_ff80, 1000];

/// Room of a direction at a PEP.
const ROOM: usize = 3000;

fn byte(end: usize, index: u64) -> u8 {
    (index as u8).wrapping_mul(7) ^ [0x5a, 0xc3][end]
}

/// Numbers from an input, and zeros after its end.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        u64::from(*first) % bound
    }
}

pub fn relay(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    match first % 5 {
        0 => stream(rest),
        1 => hostile_stream(rest),
        4 => headers(rest),
        kind => Two::new().run(&mut Choices(rest), kind == 3),
    }
}

/// Headers that are read can be written again, but for options.
fn headers(data: &[u8]) {
    let Some(mut headers) = Headers::read(data) else {
        return;
    };
    assert!(headers.length <= data.len());
    headers.segment.options = SynOptions::default();
    let mut out = BytesMut::new();
    let (source, destination) = (headers.source, headers.destination);
    if Headers::write(source, destination, &headers.segment, &mut out) {
        let again = Headers::read(&out).expect("just written");
        let length = out.len();
        assert_eq!(again, Headers { length, ..headers });
    }
}

/// Messages are read alike however their bytes are cut, and can be written again.
fn stream(data: &[u8]) {
    let read = |pieces: std::slice::Chunks<'_, u8>| {
        let mut parser = Parser::default();
        let mut found = Vec::new();
        for mut piece in pieces {
            loop {
                match parser.next(&mut piece) {
                    Ok(Some(message)) => found.push(message),
                    Ok(None) => break,
                    Err(fault) => return (found, Some(fault)),
                }
            }
            assert!(piece.is_empty());
        }
        (found, None)
    };
    let whole = read(data.chunks(usize::MAX));
    assert_eq!(whole, read(data.chunks(1 + data.len() % 13)));
    let mut again = BytesMut::new();
    whole
        .0
        .iter()
        .for_each(|message| message.encode(&mut again));
    assert_eq!(*again, data[..again.len()]);
}

/// A PEP whose peer writes whatever it likes: it holds no more than it may.
fn hostile_stream(data: &[u8]) {
    let mut two = Two::new();
    let mut input = data;
    for _ in 0..=data.len() {
        if two.tables[0]
            .on_stream(two.now, two.flows[0], &mut input)
            .is_err()
            || input.is_empty()
        {
            break;
        }
    }
    two.check_memory();
    two.advance(1000);
    while two.tables[0].poll_segment(two.now, two.flows[0]).is_some() {}
}

/// One end: what it has said and heard. Places are offsets; the SYN has 0.
#[derive(Default)]
struct End {
    /// Place up to which it has been acknowledged.
    acknowledged: u64,
    /// End of what it has said.
    said: u64,
    /// Spans that it has heard behind a gap, and the place before which all was.
    early: BTreeMap<u64, u64>,
    heard: u64,
    reset: bool,
}

/// Two PEPs that relay a flow, and its ends.
struct Two {
    now: Instant,
    tables: [Table; 2],
    flows: [FlowId; 2],
    ends: [End; 2],
    /// Bytes on the stream towards each PEP.
    pipes: [BytesMut; 2],
    /// An end has lied: it may hear and say anything.
    lied: bool,
}

fn name(pep: usize) -> FlowName {
    let ends = [
        ([192, 168, 1, 10].into(), 51_000),
        ([192, 0, 2, 1].into(), 443),
    ];
    FlowName {
        scope: [0; 16],
        lan: ends[pep],
        wan: ends[1 - pep],
    }
}

fn segment(end: usize, place: u64, acknowledged: u64, flags: Flags) -> Segment {
    Segment {
        number: INITIAL[end].wrapping_add(place as u32),
        acknowledgement: INITIAL[1 - end].wrapping_add(acknowledged as u32),
        window: 500,
        flags,
        ..Segment::default()
    }
}

impl Two {
    /// Both PEPs, when the relay has begun.
    fn new() -> Self {
        let now = crate::origin();
        let bounds = Bounds {
            known: 2,
            relayed: 1,
            room: ROOM,
        };
        let mut tables = [(); 2].map(|()| Table::new(Form::Clear, bounds));
        let options = SynOptions {
            largest: Some(100),
            ..SynOptions::default()
        };
        let syn = Segment {
            options,
            ..segment(0, 0, 0, Flags::SYN)
        };
        let answer = Segment {
            options,
            ..segment(1, 0, 1, Flags::SYN | Flags::ACK)
        };
        for (pep, sides) in [(0, [Side::Lan, Side::Wan]), (1, [Side::Wan, Side::Lan])] {
            for (side, segment) in sides.into_iter().zip([&syn, &answer]) {
                tables[pep].on_segment(now, &name(pep), side, segment, false);
            }
        }
        let ack = segment(0, 1, 1, Flags::ACK);
        tables[0].on_segment(now, &name(0), Side::Lan, &ack, false);
        let offered = std::iter::from_fn(|| tables[1].poll_event()).find_map(|event| match event {
            Event::Offer(id) => Some(id),
            _ => None,
        });
        let offered = offered.expect("SYN-ACK came from the LAN");
        let mut bytes = BytesMut::new();
        tables[1].poll_stream(now, offered, &mut bytes, 1000);
        let mut parser = Parser::default();
        let Ok(Some(Message::Open(opening))) = parser.next(&mut &bytes[..]) else {
            panic!("OPEN is the first message");
        };
        let invited = tables[0].invite(now, &opening, parser);
        let invited = invited.expect("the flow is known");
        let mut bytes = BytesMut::new();
        tables[0].poll_stream(now, invited, &mut bytes, 1000);
        let taken = tables[1].on_stream(now, offered, &mut &bytes[..]);
        taken.expect("OPEN is answered by OPEN");
        let end = || End {
            acknowledged: 1,
            said: 1,
            heard: 1,
            ..End::default()
        };
        Self {
            now,
            tables,
            flows: [invited, offered],
            ends: [end(), end()],
            pipes: Default::default(),
            lied: false,
        }
    }

    fn run(&mut self, choices: &mut Choices<'_>, lies: bool) {
        while !choices.0.is_empty() {
            let end = choices.below(2) as usize;
            match choices.below(8) {
                0..=2 => self.say(end, choices),
                3 => self.acknowledge(end, choices),
                4 | 5 => self.deliver(end, choices),
                6 => self.advance(1 << choices.below(16)),
                _ if lies => self.lie(end, choices),
                _ if choices.below(64) == 63 => {
                    self.tables[end].on_stream_lost(self.now, self.flows[end]);
                }
                _ => {}
            }
            self.hear(0, choices);
            self.hear(1, choices);
            self.check_memory();
        }
    }

    fn check_memory(&self) {
        for table in &self.tables {
            assert!(
                table.memory() <= 2 * (ROOM + 2000),
                "{} bytes",
                table.memory()
            );
        }
    }

    fn give(&mut self, end: usize, segment: &Segment) {
        if !self.ends[end].reset {
            self.tables[end].on_segment(self.now, &name(end), Side::Lan, segment, false);
        }
    }

    /// An end says some of its bytes, be it again.
    fn say(&mut self, end: usize, choices: &mut Choices<'_>) {
        let own = &mut self.ends[end];
        let start = (own.acknowledged + choices.below(200))
            .saturating_sub(choices.below(50))
            .max(1);
        let stop = (start + choices.below(100)).min(1 + TOTAL);
        let length = stop.saturating_sub(start);
        let fin = stop == 1 + TOTAL && choices.below(2) == 0;
        own.said = own.said.max(start + length + u64::from(fin));
        let flags = Flags::ACK | if fin { Flags::FIN } else { Flags::PSH };
        let bytes: Bytes = (start..start + length)
            .map(|at| byte(end, at - 1))
            .collect();
        let said = Segment {
            length: length as u16,
            zone: bytes,
            ..segment(end, start, self.ends[end].heard, flags)
        };
        self.give(end, &said);
    }

    fn acknowledge(&mut self, end: usize, choices: &mut Choices<'_>) {
        let said = self.ends[end].said;
        let ack = Segment {
            window: [0, 1, 40, 200, 1000][choices.below(5) as usize],
            ..segment(end, said, self.ends[end].heard, Flags::ACK)
        };
        self.give(end, &ack);
    }

    /// Some bytes cross between the PEPs.
    fn deliver(&mut self, to: usize, choices: &mut Choices<'_>) {
        let from = 1 - to;
        let most = 1 + choices.below(200) as usize;
        self.tables[from].poll_stream(self.now, self.flows[from], &mut self.pipes[to], most);
        let mut input = &self.pipes[to][..];
        let before = input.len();
        let taken = self.tables[to].on_stream(self.now, self.flows[to], &mut input);
        assert!(taken.is_ok() || self.lied, "{taken:?}");
        let left = input.len();
        let _ = self.pipes[to].split_to(before - left);
    }

    fn advance(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
        self.tables
            .iter_mut()
            .for_each(|table| table.handle_timeout(self.now));
    }

    /// An end sends what no honest one does.
    fn lie(&mut self, end: usize, choices: &mut Choices<'_>) {
        self.lied = true;
        let length = choices.below(200);
        let lie = Segment {
            window: choices.below(256) as u16,
            urgent: choices.below(256) as u16,
            length: length as u16,
            zone: vec![0; length as usize].into(),
            ..segment(
                end,
                choices.below(256) << choices.below(24),
                choices.below(256) << choices.below(24),
                Flags::new((choices.below(16) << 8 | choices.below(256)) as u16),
            )
        };
        let side = [Side::Lan, Side::Wan][choices.below(2) as usize];
        self.tables[end].on_segment(self.now, &name(end), side, &lie, false);
    }

    /// An end hears what its PEP sends, unless that is lost.
    fn hear(&mut self, end: usize, choices: &mut Choices<'_>) {
        while let Some((side, segment)) = self.tables[end].poll_segment(self.now, self.flows[end]) {
            let lost = choices.below(8) == 0;
            if self.lied || lost || side == Side::Wan {
                continue;
            }
            if segment.flags.has(Flags::RST) {
                self.ends[end].reset = true;
                continue;
            }
            let near = |initial: u32, number: u32| u64::from(number.wrapping_sub(initial));
            let start = near(INITIAL[1 - end], segment.number);
            for (index, heard) in segment.zone.iter().enumerate() {
                let said = byte(1 - end, start - 1 + index as u64);
                assert_eq!(*heard, said, "a byte was changed");
            }
            let stop = start + segment.span();
            let own = &mut self.ends[end];
            if segment.span() > 0 {
                let reached = own.early.entry(start).or_default();
                *reached = stop.max(*reached);
            }
            while let Some((&first, &reached)) = own.early.first_key_value()
                && first <= own.heard
            {
                own.early.remove(&first);
                own.heard = own.heard.max(reached);
            }
            let acknowledged = near(INITIAL[end], segment.acknowledgement);
            // Questions of a reset acknowledge what is long gone.
            if acknowledged <= TOTAL + 2 {
                self.acknowledged(end, acknowledged);
            }
        }
    }

    /// A PEP acknowledges in the other end's name: no more than was said, and an end only if the
    /// other end has heard all.
    fn acknowledged(&mut self, end: usize, place: u64) {
        assert!(place <= self.ends[end].said, "{place} was not said");
        let own = &mut self.ends[end];
        own.acknowledged = own.acknowledged.max(place);
        if place == TOTAL + 2 {
            assert_eq!(
                self.ends[1 - end].heard,
                place,
                "an end in order, and bytes are missing"
            );
        }
    }
}

/// Streams of all messages, and events that carry both directions to their ends.
pub fn seeds() -> Vec<Vec<u8>> {
    let opening = Opening {
        form: Form::Clear,
        scope: [1; 16],
        initiator: name(0).lan,
        responder: name(0).wan,
        initial: INITIAL,
    };
    let blob = |length: usize, flags| {
        let segment = Segment {
            length: length as u16,
            zone: vec![7; length].into(),
            ..segment(1, 1, 0, flags)
        };
        Message::Blob(segment.number, segment.blob().expect("bytes or a FIN"))
    };
    let rest = [
        blob(20, Flags::PSH),
        blob(0, Flags::FIN),
        Message::FinAcked,
        Message::Reset(Cause::Idle),
    ];
    let mut messages = BytesMut::from(&[1][..]);
    rest.iter()
        .for_each(|message| message.encode(&mut messages));
    let mut zoned = BytesMut::from(&[0][..]);
    let form = Form::Zones;
    Message::Open(Opening {
        form,
        ..opening.clone()
    })
    .encode(&mut zoned);
    let mut whole = BytesMut::from(&[0][..]);
    Message::Open(opening).encode(&mut whole);
    rest.iter().for_each(|message| message.encode(&mut whole));
    // Both ends say all, everything crosses, is heard and acknowledged.
    let turn = |end: u8| {
        [
            end,
            0,
            0,
            0,
            99,
            0,
            1,
            1,
            end,
            4,
            199,
            1,
            1,
            1 - end,
            4,
            199,
            1,
            1,
            1 - end,
            3,
            4,
            1,
            1,
        ]
    };
    let events: Vec<u8> = [2]
        .into_iter()
        .chain((0..16).flat_map(|round| turn(round % 2)))
        .collect();
    let mut packet = BytesMut::from(&[4][..]);
    let (from, to) = (name(0).lan, name(0).wan);
    assert!(Headers::write(
        from,
        to,
        &segment(0, 1, 1, Flags::SYN | Flags::ACK),
        &mut packet
    ));
    // A SYN-ACK with an MSS, in 24 bytes of TCP.
    packet[4] += 4;
    packet[33] = 0x60;
    packet.extend_from_slice(&[2, 4, 5, 0xb4]);
    vec![
        packet.to_vec(),
        zoned.to_vec(),
        whole.to_vec(),
        messages.to_vec(),
        events.clone(),
        [&[3], &events[1..]].concat(),
    ]
}

//! Two ends, two PEPs, two LANs that lose, reorder and repeat, and the long link between the PEPs:
//! packets that pass, and a stream in order that may die.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::{Event, FlowId, FlowName, Form, Message, Parser, Segment, Side, Table, Verdict};
use bytes::BytesMut;

use super::script::Micros;
use super::setting::{Harm, Report, Setting};
use super::tcp::{State, Tcp};

/// Virtual time after which a run that is not over hangs: longer than any of these ends goes on
/// without a word, shorter than a PEP's patience with an idle flow.
const HANGS: Micros = 3_600_000_000;

/// One direction of the stream.
#[derive(Debug, Default)]
struct Pipe {
    way: VecDeque<(Micros, Vec<u8>)>,
    /// Bytes that have come and are not taken.
    come: Vec<u8>,
    held: usize,
}

/// Stream of the flow, from PEP 1 to PEP 0 and back: `pipes[i]` leads to PEP i.
#[derive(Debug, Default)]
struct Stream {
    pipes: [Pipe; 2],
    flows: [Option<FlowId>; 2],
    /// Reader of the invitation, before there is a flow; then the stream is refused.
    parser: Parser,
    refused: bool,
    dead: bool,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// A packet arrives at a node: 0 and 3 are ends, 1 and 2 PEPs, from the node before.
    Packet {
        at: usize,
        from: usize,
        index: usize,
    },
    /// Stream, timers: look at everything.
    Look,
    Harm,
    /// A PEP notices that the stream is dead.
    Notice(usize),
}

pub(crate) struct World<'a> {
    setting: &'a Setting,
    choose: &'a mut dyn FnMut(usize) -> usize,
    origin: Instant,
    now: Micros,
    queue: BinaryHeap<Reverse<(Micros, u64, What)>>,
    packets: Vec<Option<Segment>>,
    order: u64,
    ends: [Tcp; 2],
    tables: [Table; 2],
    restarted: [bool; 2],
    link: bool,
    stream: Option<Stream>,
    /// Flows of the stream that has broken off.
    lost: [Option<FlowId>; 2],
    looks: Option<Micros>,
}

/// Runs until both ends are finished, or nothing goes on. Panics if bytes are lost or changed.
pub(crate) fn run(
    origin: Instant,
    setting: &Setting,
    choose: &mut dyn FnMut(usize) -> usize,
) -> Report {
    let table = || {
        let zones = setting.scripts[0].zones;
        Table::new(
            if zones { Form::Zones } else { Form::Clear },
            setting.bounds,
        )
    };
    let [a, b] = setting.scripts;
    let mut world = World {
        setting,
        choose,
        origin,
        now: 0,
        queue: BinaryHeap::new(),
        packets: Vec::new(),
        order: 0,
        ends: [Tcp::new(a, b, true), Tcp::new(b, a, false)],
        tables: [table(), table()],
        restarted: [false; 2],
        link: setting.harm != Harm::NoLink,
        stream: None,
        lost: [None; 2],
        looks: None,
    };
    match setting.harm {
        Harm::Restart(_, at) | Harm::LinkDies(at) => world.plan(at, What::Harm),
        Harm::None | Harm::NoLink => {}
    }
    world.go(table)
}

impl World<'_> {
    fn plan(&mut self, at: Micros, what: What) {
        self.order += 1;
        self.queue.push(Reverse((at, self.order, what)));
    }

    fn instant(&self) -> Instant {
        self.origin + Duration::from_micros(self.now)
    }

    fn go(&mut self, table: impl Fn() -> Table) -> Report {
        self.settle();
        let mut hangs = false;
        while !self.is_over() && !hangs {
            let Some(Reverse((at, _, what))) = self.queue.pop().filter(|it| it.0.0 < HANGS) else {
                hangs = true;
                continue;
            };
            self.now = at;
            match what {
                What::Packet { at, from, index } => {
                    let segment = self.packets[index].take().expect("arrives once");
                    self.arrive(at, from, segment);
                }
                What::Look => self.looks = self.looks.filter(|planned| *planned > at),
                What::Harm => self.harm(&table),
                What::Notice(pep) => self.notice(pep),
            }
            self.settle();
        }
        let of = |it: fn(&Tcp) -> State| [it(&self.ends[0]), it(&self.ends[1])];
        Report {
            hung: hangs.then(|| format!("{} {:#?} {:#?}", self.now, self.ends, self.tables)),
            states: of(Tcp::state),
            fins: [self.ends[0].has_fin(), self.ends[1].has_fin()],
            received: [self.ends[0].received(), self.ends[1].received()],
            counts: [0, 1].map(|pep| self.tables[pep].counts().clone()),
        }
    }

    /// One end that was never reached does not wait: the other one has given up before.
    fn is_over(&self) -> bool {
        let [a, b] = &self.ends;
        let alone = |one: &Tcp, other: &Tcp| one.state() == State::Listen && other.is_finished();
        a.is_finished() && (b.is_finished() || alone(b, a))
    }

    fn harm(&mut self, table: &impl Fn() -> Table) {
        if let Harm::Restart(pep, _) = self.setting.harm {
            self.tables[pep] = table();
            self.restarted[pep] = true;
            if let Some(stream) = &mut self.stream {
                stream.flows[pep] = None;
            }
        }
        if let Some(stream) = &mut self.stream {
            stream.dead = true;
            stream.pipes = Default::default();
            self.lost = stream.flows;
            for pep in 0..2 {
                self.plan(self.now + self.setting.notices[pep], What::Notice(pep));
            }
        }
    }

    fn notice(&mut self, pep: usize) {
        let now = self.instant();
        if let Some(id) = self.lost[pep] {
            self.tables[pep].on_stream_lost(now, id);
        }
    }

    /// Sends a packet from node to node.
    fn send(&mut self, from: usize, to: usize, segment: &Segment) {
        let hop = match from.min(to) {
            0 => self.setting.lans[0],
            1 => self.setting.long,
            _ => self.setting.lans[1],
        };
        let mut chance = |of_thousand: usize| (self.choose)(1000) < of_thousand;
        let (lost, twice) = (chance(hop.lost), chance(hop.twice));
        for copy in 0..2 {
            if copy == 0 && lost || copy == 1 && !twice {
                continue;
            }
            let late = (self.choose)(1000) < hop.late;
            let jitter = (self.choose)(1 + hop.delay as usize / 16) as Micros;
            let extra = if late { hop.delay * 2 } else { jitter };
            self.packets.push(Some(segment.clone()));
            let index = self.packets.len() - 1;
            let at = self.now + hop.delay + extra;
            self.plan(
                at,
                What::Packet {
                    at: to,
                    from,
                    index,
                },
            );
        }
    }

    fn arrive(&mut self, at: usize, from: usize, segment: Segment) {
        if at == 0 || at == 3 {
            self.ends[at / 3].on_segment(self.now, &segment);
            return;
        }
        let pep = at - 1;
        let side = if from.is_multiple_of(3) {
            Side::Lan
        } else {
            Side::Wan
        };
        let renewed = self.restarted[pep] && self.setting.renews;
        let now = self.instant();
        match self.tables[pep].on_segment(now, &name(pep), side, &segment, renewed) {
            Verdict::Forward => self.send_from(pep, side.other(), &segment),
            Verdict::Taken => {}
        }
    }

    fn send_from(&mut self, pep: usize, side: Side, segment: &Segment) {
        let to = match (pep, side) {
            (0, Side::Lan) => 0,
            (0, Side::Wan) => 2,
            (_, Side::Wan) => 1,
            (_, Side::Lan) => 3,
        };
        self.send(pep + 1, to, segment);
    }

    /// Lets everything act until nothing is due now, and plans the next look.
    fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 10_000, "never at rest: {:#?}", self.tables);
            let now = self.instant();
            for end in 0..2 {
                if self.ends[end]
                    .poll_timeout()
                    .is_some_and(|due| due <= self.now)
                {
                    self.ends[end].handle_timeout(self.now);
                }
                for segment in std::mem::take(&mut self.ends[end].out) {
                    self.send(end * 3, end + 1, &segment);
                }
                self.tables[end].handle_timeout(now);
            }
            self.check();
            let moved = self.deliver();
            let served = self.serve(0) | self.serve(1);
            if !moved && !served {
                break;
            }
        }
        let ends = self.ends.iter().filter_map(Tcp::poll_timeout);
        let tables = self.tables.iter().filter_map(Table::poll_timeout);
        let tables = tables.map(|at| (at - self.origin).as_micros() as Micros);
        let ways = self.stream.iter().flat_map(|it| &it.pipes);
        let ways = ways.filter_map(|pipe| pipe.way.front().map(|(at, _)| *at));
        if let Some(next) = ends.chain(tables).chain(ways).min()
            && self.looks.is_none_or(|planned| planned > next)
        {
            let next = next.max(self.now + 1);
            self.looks = Some(next);
            self.plan(next, What::Look);
        }
    }

    /// An end whose FIN was acknowledged has lost no byte; PEPs hold what they may.
    fn check(&self) {
        for table in &self.tables {
            let most = 2 * (self.setting.bounds.room + 2_000);
            assert!(
                table.memory() <= most,
                "a PEP holds {} bytes",
                table.memory()
            );
        }
        for (own, other) in [(0, 1), (1, 0)] {
            if self.ends[own].is_fin_acked() {
                let received = self.ends[other].received();
                let total = self.setting.scripts[own].total;
                assert_eq!(received, total, "an end in order, and bytes are missing");
            }
        }
    }

    /// Bytes of the stream arrive, as far as the PEPs have room.
    fn deliver(&mut self) -> bool {
        let (now, instant) = (self.now, self.instant());
        let mut moved = false;
        let Some(stream) = self.stream.as_mut().filter(|stream| !stream.dead) else {
            return false;
        };
        for pep in 0..2 {
            let pipe = &mut stream.pipes[pep];
            while pipe.way.front().is_some_and(|(at, _)| *at <= now) {
                let (_, bytes) = pipe.way.pop_front().expect("looked at");
                pipe.come.extend(bytes);
            }
            let come = std::mem::take(&mut pipe.come);
            let before = come.len();
            let mut input = &come[..];
            if stream.flows[pep].is_none() && pep == 0 && !stream.refused && before > 0 {
                let parser = &mut stream.parser;
                match parser.next(&mut input).expect("an honest PEP") {
                    Some(Message::Open(opening)) => {
                        let parser = std::mem::take(parser);
                        match self.tables[0].invite(instant, &opening, parser) {
                            Ok(id) => stream.flows[0] = Some(id),
                            Err(cause) => {
                                stream.refused = true;
                                let mut out = BytesMut::new();
                                Message::Reset(cause).encode(&mut out);
                                let at = now + self.setting.long.delay;
                                stream.pipes[1].way.push_back((at, out.to_vec()));
                            }
                        }
                    }
                    other => assert_eq!(other, None),
                }
            } else if let Some(id) = stream.flows[pep]
                && before > 0
                && self.tables[pep].has_room(id)
            {
                let taken = self.tables[pep].on_stream(instant, id, &mut input);
                taken.expect("an honest PEP");
            }
            let left = input.len();
            let pipe = &mut stream.pipes[pep];
            pipe.come = come[before - left..].to_vec();
            pipe.held -= (before - left).min(pipe.held);
            moved |= before > left;
        }
        moved
    }

    /// Does what a PEP's table wishes.
    fn serve(&mut self, pep: usize) -> bool {
        let now = self.instant();
        let mut served = false;
        while let Some(event) = self.tables[pep].poll_event() {
            match event {
                Event::Offer(id) if self.link && pep == 1 => {
                    let mut stream = Stream::default();
                    stream.flows[1] = Some(id);
                    self.stream = Some(stream);
                }
                Event::Offer(id) => self.tables[pep].on_no_stream(id),
                Event::Service(id) => {
                    served = true;
                    self.write(pep, id);
                    while let Some((side, segment)) = self.tables[pep].poll_segment(now, id) {
                        self.send_from(pep, side, &segment);
                    }
                }
                Event::Gone(id) => {
                    if let Some(stream) = &mut self.stream {
                        stream
                            .flows
                            .iter_mut()
                            .for_each(|flow| *flow = flow.filter(|it| *it != id));
                    }
                }
            }
        }
        if let Some(id) = self.stream.as_ref().and_then(|stream| stream.flows[pep]) {
            served |= self.write(pep, id);
        }
        served
    }

    /// Writes what the stream takes.
    fn write(&mut self, pep: usize, id: FlowId) -> bool {
        let (delay, holds, once) = self.setting.stream;
        let now = self.instant();
        let Some(stream) = self
            .stream
            .as_mut()
            .filter(|stream| stream.flows[pep] == Some(id))
        else {
            return false;
        };
        if stream.dead {
            // Nobody has noticed yet: what is written is lost.
            let mut out = BytesMut::new();
            self.tables[pep].poll_stream(now, id, &mut out, once);
            return !out.is_empty();
        }
        let pipe = &mut stream.pipes[1 - pep];
        if pipe.held >= holds {
            return false;
        }
        let mut out = BytesMut::new();
        self.tables[pep].poll_stream(now, id, &mut out, once);
        pipe.held += out.len();
        if !out.is_empty() {
            let at = self.now + self.setting.long.delay + delay;
            pipe.way.push_back((at, out.to_vec()));
        }
        !out.is_empty()
    }
}

/// Flow as a PEP sees it.
fn name(pep: usize) -> FlowName {
    let ends = [
        (Ipv4Addr::new(192, 168, 1, 10).into(), 51_000),
        (Ipv4Addr::new(192, 0, 2, 1).into(), 443),
    ];
    FlowName {
        scope: [7; 16],
        lan: ends[pep],
        wan: ends[1 - pep],
    }
}

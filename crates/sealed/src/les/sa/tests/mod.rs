//! A and B over a path of half a round trip each way, in virtual time; every message is counted.

mod agreements;
mod endings;
mod messages;
mod psk;

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use LesKind::{Q1, Q2, Q3};
use bytes::BytesMut;
use ipnet::IpNet;
use zeroize::Zeroizing;

use super::*;
use crate::Exporter;
use crate::les::Delivered;

/// Half of a round trip over the satellite.
const HALF: Duration = Duration::from_millis(260);

const PEPS: [PepKey; 2] = [PepKey([1; 32]), PepKey([2; 32])];

#[expect(clippy::disallowed_methods, reason = "any instant will do")]
fn origin() -> Instant {
    Instant::now()
}

fn prefix(text: &str) -> IpNet {
    text.parse().expect("a prefix")
}

fn plan(handshake: Handshake) -> Plan {
    Plan {
        handshake,
        selectors: vec![prefix("192.0.2.0/24"), prefix("2001:db8::/32")],
        peps: PEPS.to_vec(),
        ends: [[198, 51, 100, 1].into(), [203, 0, 113, 1].into()],
        introduced: BTreeSet::new(),
        accepted: BTreeSet::new(),
    }
}

/// Material of association `count`: the exporter is that of both ends, the rest of one.
fn material(count: u32, end: u8) -> Material {
    let mut secret = [3; 32];
    secret[..4].copy_from_slice(&count.to_be_bytes());
    Material {
        exporter: Exporter::new(Zeroizing::new(secret)),
        random: Random::new(Zeroizing::new([end; 32])),
        spi: Spi::new(0x1000_0000 * u32::from(end) + count + 256).expect("not reserved"),
    }
}

/// Inner IPv4 packet of A's side with this payload.
fn inner(payload: &[u8]) -> Vec<u8> {
    between([10, 0, 0, 1], [192, 0, 2, 1], payload)
}

/// Inner IPv4 packet of B's side with this payload.
fn inner_back(payload: &[u8]) -> Vec<u8> {
    between([192, 0, 2, 1], [10, 0, 0, 1], payload)
}

fn between(source: [u8; 4], destination: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let length = 40 + payload.len() as u8;
    let head = [0x45, 0, 0, length, 0, 0, 0x40, 0, 64, 6, 0, 0];
    let tcp = [
        0xc7, 0x38, 1, 0xbb, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 2, 0, 0, 0, 0, 0,
    ];
    [&head[..], &source, &destination, &tcp, payload].concat()
}

/// Something on its way.
enum Sent {
    Frame(LesKind, Vec<u8>),
    Packet(Vec<u8>),
}

/// Both ends, what is between them, and what has come of it.
struct World {
    now: Instant,
    began: Instant,
    a: Initiator,
    b: Responder,
    held: Held<()>,
    to_a: VecDeque<(Instant, Sent)>,
    to_b: VecDeque<(Instant, Sent)>,
    /// Frames that were sent, in their order.
    frames: Vec<LesKind>,
    grants: Vec<(PepKey, Grant)>,
    withdrawn: Vec<PepKey>,
    established: Vec<(char, u32)>,
    refused: Vec<AnswerCode>,
    /// Inner packets that have arrived, where, and when since the beginning.
    arrived: Vec<(char, Vec<u8>, Duration)>,
    lost: usize,
    prefixes: Vec<IpNet>,
    known: Vec<PepKey>,
    taken: BTreeSet<Spi>,
}

impl World {
    fn new(handshake: Handshake) -> Self {
        let now = origin();
        Self {
            now,
            began: now,
            a: Initiator::new(plan(handshake)),
            b: Responder::default(),
            held: Held::default(),
            to_a: VecDeque::new(),
            to_b: VecDeque::new(),
            frames: Vec::new(),
            grants: Vec::new(),
            withdrawn: Vec::new(),
            established: Vec::new(),
            refused: Vec::new(),
            arrived: Vec::new(),
            lost: 0,
            prefixes: vec![prefix("192.0.2.0/24"), prefix("2001:db8::/32")],
            known: PEPS.to_vec(),
            taken: BTreeSet::new(),
        }
    }

    /// World in which an association stands at both ends.
    fn standing(handshake: Handshake) -> Self {
        let mut world = Self::new(handshake);
        world.run(Duration::from_secs(1));
        if handshake == Handshake::Psk {
            assert!(world.a_sends(b"first"));
        }
        world.run(Duration::from_secs(1));
        world.arrived.clear();
        assert!(world.a.live().stands() && world.b.live().stands());
        assert_eq!(world.established.len(), 2);
        world
    }

    /// Both ends do what is due, and their steps are taken.
    fn settle(&mut self) {
        self.a.handle_timeout(self.now);
        self.b.handle_timeout(self.now);
        while let Some(count) = self.a.due(self.now) {
            self.a.begin(self.now, material(count, 1));
            self.steps();
        }
        self.steps();
    }

    fn steps(&mut self) {
        while let Some(step) = self.a.poll_step() {
            match step {
                Step::Send(frame, body) => {
                    self.frames.push(frame);
                    self.to_b
                        .push_back((self.now + HALF, Sent::Frame(frame, body.as_ref().to_vec())));
                }
                Step::Grant(pep, grant) => self.grants.push((pep, *grant)),
                Step::Withdraw(pep) => self.withdrawn.push(pep),
                Step::Listen(_) => {}
                Step::Established(count) => self.established.push(('a', count)),
                Step::Refused(code) => self.refused.push(code),
            }
        }
        while let Some(step) = self.b.poll_step() {
            match step {
                Step::Send(frame, body) => {
                    self.frames.push(frame);
                    self.to_a
                        .push_back((self.now + HALF, Sent::Frame(frame, body.as_ref().to_vec())));
                }
                Step::Listen(spi) => {
                    for ((), packet) in self.held.take(self.now, spi) {
                        self.packet_to_b(&packet);
                    }
                }
                Step::Established(count) => self.established.push(('b', count)),
                Step::Grant(..) | Step::Withdraw(_) | Step::Refused(_) => {
                    unreachable!("B has no PEPs, and asks for nothing")
                }
            }
        }
    }

    fn packet_to_b(&mut self, packet: &[u8]) {
        let mut out = Vec::new();
        match self.b.open(self.now, packet, &mut out) {
            Ok(delivered) => {
                assert_eq!(delivered, Delivered::Packet);
                self.arrived
                    .push(('b', out[40..].to_vec(), self.now - self.began));
            }
            Err(Unopened::Unknown(_)) => {
                self.lost += usize::from(!self.held.hold(self.now, packet, ()));
            }
            Err(Unopened::Discarded(_) | Unopened::Selector(_)) => self.lost += 1,
        }
        self.steps();
    }

    fn packet_to_a(&mut self, packet: &[u8]) {
        let mut out = Vec::new();
        match self.a.live().open(self.now, packet, &mut out) {
            Ok(_) => self
                .arrived
                .push(('a', out[40..].to_vec(), self.now - self.began)),
            Err(_) => self.lost += 1,
        }
    }

    fn frame_to_b(&mut self, frame: LesKind, body: &[u8]) -> Result<(), Violation> {
        match frame {
            Q1 => {
                let proposal = Proposal::parse(body)?;
                let taken = |spi| self.taken.contains(&spi);
                let rules = Rules {
                    prefixes: &self.prefixes,
                    peps: &self.known,
                    taken: &taken,
                    psk: proposal.handshake == Handshake::Psk,
                };
                let material = material(proposal.count, 2);
                self.b.on_q1(self.now, &proposal, &material, &rules)
            }
            _ => self.b.on_q3(self.now, body),
        }
    }

    /// Runs until so much later.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.settle();
            let arrivals = [&self.to_a, &self.to_b].map(|way| way.front().map(|it| it.0));
            let timers = [self.a.deadline(), self.b.deadline()];
            let next = arrivals.into_iter().chain(timers).flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else {
                break;
            };
            self.now = next.max(self.now);
            let now = self.now;
            while let Some((_, sent)) = self.to_b.pop_front_if(|it| it.0 <= now) {
                match sent {
                    Sent::Frame(frame, body) => self.frame_to_b(frame, &body).expect("in order"),
                    Sent::Packet(packet) => self.packet_to_b(&packet),
                }
                self.steps();
            }
            while let Some((_, sent)) = self.to_a.pop_front_if(|it| it.0 <= now) {
                match sent {
                    Sent::Frame(_, body) => self.a.on_q2(now, &body).expect("in order"),
                    Sent::Packet(packet) => self.packet_to_a(&packet),
                }
                self.steps();
            }
        }
        self.now = end;
    }

    /// A sends an inner packet now; `false` if it cannot.
    fn a_sends(&mut self, payload: &[u8]) -> bool {
        let mut out = BytesMut::new();
        let sealed = self.a.live().seal(&inner(payload), &mut out);
        if sealed.is_ok() {
            let sent = (self.now + HALF, Sent::Packet(out.to_vec()));
            self.to_b.push_back(sent);
        }
        sealed.is_ok()
    }

    /// B sends an inner packet now; `false` if it cannot.
    fn b_sends(&mut self, payload: &[u8]) -> bool {
        let mut out = BytesMut::new();
        let sealed = self.b.live().seal(&inner_back(payload), &mut out);
        if sealed.is_ok() {
            let sent = (self.now + HALF, Sent::Packet(out.to_vec()));
            self.to_a.push_back(sent);
        }
        sealed.is_ok()
    }

    /// Payloads that have arrived at an end.
    fn at(&self, end: char) -> Vec<&[u8]> {
        let own = self.arrived.iter().filter(|it| it.0 == end);
        own.map(|it| &it.1[..]).collect()
    }
}

//! Associations of LES (PROTOCOL.md §20.1): messages of a stranger, and both ends under events in any order.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use bentpipe_proto::tunnel::LesKind::{self, Q1, Q2, Q3};
use bentpipe_sealed::Exporter;
use bentpipe_sealed::les::sa::{
    Answer, Grant, Handshake, Held, Initiator, LAST_WORDS, Material, PepKey, Plan, Proof, Proposal,
    Psk, Random, Responder, Rules, Step, Unopened, Word,
};
use bentpipe_sealed::les::{
    ASSOCIATIONS_OF_CLIENT, ClientKey, Grants, HeaderRoot, Spi, SpiPair, Writer,
};
use bytes::BytesMut;
use zeroize::Zeroizing;

/// Client of the PEPs.
const CLIENT: ClientKey = ClientKey([7; 32]);

/// Packets and frames that are on their way at one time.
const MOST: usize = 32;

/// The first byte says whether the others are a message or events.
pub fn sa(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else {
        return;
    };
    match kind % 9 {
        0 => same(rest, Proposal::parse(rest).ok().map(|it| it.encode())),
        1 => same(rest, Answer::parse(rest).ok().map(|it| it.encode())),
        2 => same(rest, Proof::parse(rest).ok().map(|it| it.encode())),
        3 => same(rest, Grant::parse(rest).ok().map(|it| it.encode())),
        4 => psk(rest),
        8 => same(rest, Word::parse(rest).ok().map(|it| it.encode())),
        5 => Pair::new(Handshake::Short).events(rest),
        6 => Pair::new(Handshake::Paper).events(rest),
        _ => Pair::new(Handshake::Psk).events(rest),
    }
}

/// Datagram of the pre-shared key, which answers one question and no other.
fn psk(bytes: &[u8]) {
    let psk = Psk::new(b"key");
    if let Some(q1) = psk.asked(bytes) {
        assert_eq!(psk.ask(q1), bytes);
    }
    for other in [&b"question"[..], b"questiom", b""] {
        if let Some(q2) = psk.answered(bytes, other) {
            assert_eq!(
                (other, &psk.answer(q2, other)[..]),
                (&b"question"[..], bytes)
            );
        }
    }
}

/// A message that can be read is written as it was.
fn same(bytes: &[u8], again: Option<Zeroizing<Vec<u8>>>) {
    assert!(again.is_none_or(|again| *again == bytes));
}

fn material(count: u32, end: u8) -> Material {
    let mut secret = [3; 32];
    secret[..4].copy_from_slice(&count.to_be_bytes());
    Material {
        exporter: Exporter::new(Zeroizing::new(secret)),
        random: Random::new(Zeroizing::new([end; 32])),
        spi: Spi::new(0x1000_0000 * u32::from(end) + count + 256).expect("not reserved"),
    }
}

/// Both ends and what is between them.
struct Pair {
    now: Instant,
    a: Initiator,
    b: Responder,
    held: Held<()>,
    /// PEPs by the first byte of their keys.
    peps: Vec<Grants>,
    psk: bool,
    to_a: VecDeque<Vec<u8>>,
    to_b: VecDeque<(LesKind, Vec<u8>)>,
    /// Packets toward B and toward A, in any order.
    packets: [Vec<Vec<u8>>; 2],
    /// Payloads that were sealed, and those that have arrived, at B and at A.
    sent: [BTreeSet<u32>; 2],
    arrived: [BTreeSet<u32>; 2],
    number: u32,
}

impl Pair {
    fn new(handshake: Handshake) -> Self {
        Self {
            now: crate::origin(),
            a: Initiator::new(Plan {
                handshake,
                selectors: vec!["192.0.2.0/24".parse().expect("a prefix")],
                peps: (1..4).map(|key| PepKey([key; 32])).collect(),
                ends: [[198, 51, 100, 1].into(), [203, 0, 113, 1].into()],
                introduced: BTreeSet::new(),
                accepted: BTreeSet::new(),
            }),
            b: Responder::default(),
            held: Held::default(),
            peps: (0..5).map(|_| Grants::default()).collect(),
            psk: handshake == Handshake::Psk,
            to_a: VecDeque::new(),
            to_b: VecDeque::new(),
            packets: [vec![], vec![]],
            sent: [BTreeSet::new(), BTreeSet::new()],
            arrived: [BTreeSet::new(), BTreeSet::new()],
            number: 0,
        }
    }

    /// Two bytes are an event.
    fn events(mut self, data: &[u8]) {
        for event in data.chunks_exact(2).take(200) {
            let (kind, value) = (event[0], event[1]);
            match kind % 10 {
                0 => self.wait(Duration::from_millis(u64::from(value) * 40)),
                1 => self.wait(Duration::from_secs(u64::from(value) * 30)),
                2 => self.frame_to_b(value),
                3 => self.frame_to_a(),
                4 => self.seal(0),
                5 => self.seal(1),
                6 => self.packet(0, value),
                7 => self.packet(1, value),
                8 => self.a.introduce(PepKey([value % 5; 32])),
                _ => self.a.revoke(self.now, PepKey([value % 5; 32])),
            }
            self.steps();
        }
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.a.handle_timeout(self.now);
        self.b.handle_timeout(self.now);
        self.held.handle_timeout(self.now);
        if let Some(count) = self.a.due(self.now) {
            self.a.begin(self.now, material(count, 1));
        }
    }

    fn steps(&mut self) {
        while let Some(step) = self.a.poll_step() {
            match step {
                Step::Send(frame, body) if self.to_b.len() < MOST => {
                    self.to_b.push_back((frame, body.as_ref().to_vec()))
                }
                Step::Grant(pep, grant) => {
                    let again = Grant::parse(&grant.encode()).expect("A's own");
                    let pep = &mut self.peps[usize::from(pep.0[0])];
                    let taken = pep.grant(self.now, CLIENT, &again);
                    taken.expect("a number is given once");
                    assert!(pep.len() <= ASSOCIATIONS_OF_CLIENT);
                }
                Step::Withdraw(pep) => {
                    let pep = &mut self.peps[usize::from(pep.0[0])];
                    pep.forget(self.now, CLIENT);
                    assert!(pep.is_empty());
                    assert!(
                        pep.deadline()
                            .is_none_or(|until| until <= self.now + LAST_WORDS)
                    );
                }
                _ => {}
            }
        }
        while let Some(step) = self.b.poll_step() {
            match step {
                Step::Send(frame, body) => {
                    assert_eq!(frame, Q2);
                    self.to_a.push_back(body.as_ref().to_vec());
                }
                Step::Listen(spi) => {
                    for ((), packet) in self.held.take(self.now, spi) {
                        self.open(0, &packet);
                    }
                }
                _ => {}
            }
        }
        for live in [self.a.live(), self.b.live()] {
            assert!(live.receives().count() <= 4);
        }
    }

    /// The next frame comes to B, whose operator may have taken PEPs from the list.
    fn frame_to_b(&mut self, value: u8) {
        let Some((frame, body)) = self.to_b.pop_front() else {
            return;
        };
        if frame == Q3 {
            // An answer that was given up may have left its proof behind.
            let _ = self.b.on_q3(self.now, &body);
            return;
        }
        let proposal = Proposal::parse(&body).expect("A's own");
        let known: Vec<_> = (1..4)
            .filter(|key| value >> key & 1 == 0)
            .map(|key| PepKey([key; 32]))
            .collect();
        let rules = Rules {
            prefixes: &["192.0.2.0/24".parse().expect("a prefix")],
            peps: &known,
            taken: &|spi| value > 250 && spi.get() & 1 == 0,
            psk: self.psk,
        };
        let done = self
            .b
            .on_q1(self.now, &proposal, &material(proposal.count, 2), &rules);
        done.expect("A counts up");
    }

    fn frame_to_a(&mut self) {
        if let Some(body) = self.to_a.pop_front() {
            self.a
                .on_q2(self.now, &body)
                .expect("B answers what it was asked");
        }
    }

    /// One end seals a SYN, of which a copy never passes; its sequence number says which.
    fn seal(&mut self, from: usize) {
        self.number += 1;
        let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0];
        let hosts = [[10, 0, 0, 1], [192, 0, 2, 1]];
        packet.extend([hosts[from], hosts[1 - from]].concat());
        packet.extend([0, 1, 0, 2]);
        packet.extend(self.number.to_be_bytes());
        packet.extend([0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0]);
        let live = if from == 0 {
            self.a.live()
        } else {
            self.b.live()
        };
        let mut out = BytesMut::new();
        if live.seal(&packet, &mut out).is_ok() && self.packets[from].len() < MOST {
            self.sent[from].insert(self.number);
            self.packets[from].push(out.to_vec());
        }
    }

    /// A packet arrives, or a copy, or one that was altered.
    fn packet(&mut self, from: usize, value: u8) {
        let all = &mut self.packets[from];
        if all.is_empty() {
            return;
        }
        let at = usize::from(value & 31) % all.len();
        let mut packet = if value & 32 == 0 {
            all.remove(at)
        } else {
            all[at].clone()
        };
        if value & 64 != 0 {
            let place = usize::from(value) % packet.len();
            packet[place] ^= 1 + (value >> 7);
        }
        // A PEP before the end has opened it, or not, as often as it likes.
        let pep = &mut self.peps[1 + usize::from(value) % 3];
        if let Ok(opened) = pep.open(self.now, &packet) {
            let header = opened.packet.header();
            let number = u32::from_be_bytes([header[24], header[25], header[26], header[27]]);
            assert!(self.sent[from].contains(&number));
        }
        self.open(from, &packet);
    }

    fn open(&mut self, from: usize, packet: &[u8]) {
        let mut out = Vec::new();
        let opened = if from == 0 {
            self.b.open(self.now, packet, &mut out)
        } else {
            self.a.live().open(self.now, packet, &mut out)
        };
        match opened {
            Ok(_) => {
                let number = u32::from_be_bytes([out[24], out[25], out[26], out[27]]);
                assert!(self.sent[from].contains(&number));
                assert!(self.arrived[from].insert(number), "a copy");
            }
            Err(Unopened::Unknown(_)) if from == 0 => {
                self.held.hold(self.now, packet, ());
            }
            Err(_) => {}
        }
    }
}

/// Messages as the ends write them, and courses of events in which associations begin, are renewed and revoked.
pub fn sa_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (kind, handshake) in (5..).zip([Handshake::Short, Handshake::Paper, Handshake::Psk]) {
        let mut pair = Pair::new(handshake);
        pair.wait(Duration::from_millis(1));
        while let Some(step) = pair.a.poll_step() {
            if let Step::Send(_, body) = step {
                seeds.push([&[0], body.as_ref()].concat());
                pair.to_b.push_back((Q1, body.as_ref().to_vec()));
            }
        }
        pair.frame_to_b(0);
        pair.steps();
        let answer = pair.to_a.front().cloned().unwrap_or_default();
        seeds.push([&[1], &answer[..]].concat());
        let course = [
            [0, 1],
            [4, 0],
            [6, 32],
            [2, 0],
            [3, 0],
            [2, 0],
            [6, 0],
            [4, 0],
            [5, 0],
            [6, 0],
            [7, 32],
            [7, 0],
            [8, 1],
            [1, 121],
            [4, 0],
            [2, 0],
            [4, 0],
            [5, 0],
            [3, 0],
            [2, 0],
            [6, 64],
            [6, 1],
            [6, 0],
            [4, 0],
            [6, 0],
            [7, 0],
            [9, 1],
            [4, 0],
            [0, 9],
            [2, 0],
            [3, 0],
            [2, 0],
            [4, 0],
            [6, 0],
            [5, 0],
            [7, 0],
            [1, 121],
            [2, 4],
            [3, 0],
            [0, 1],
            [2, 4],
            [3, 0],
            [2, 0],
            [4, 0],
            [6, 0],
        ];
        seeds.push([&[kind], &course.concat()[..]].concat());
    }
    let proof = Proof {
        count: 5,
        code: [9; 32],
    };
    seeds.push([&[2], &proof.encode()[..]].concat());
    let [to_b, to_a] = [300, 301].map(|number| Spi::new(number).expect("not reserved"));
    let ended = Word::Ended(SpiPair { to_b, to_a });
    let grant = Grant {
        spis: SpiPair { to_b, to_a },
        ends: [[198, 51, 100, 1].into(), [203, 0, 113, 1].into()],
        selectors: vec!["192.0.2.0/24".parse().expect("a prefix")],
        writer: Writer::FIRST_PEP,
        root: HeaderRoot::new(Zeroizing::new([5; 32])),
        lifetime: Duration::from_secs(3780),
        renewed: true,
    };
    seeds.push([&[3], &grant.encode()[..]].concat());
    seeds.push([&[8], &Word::Grant(Box::new(grant)).encode()[..]].concat());
    seeds.push([&[8], &ended.encode()[..]].concat());
    let psk = Psk::new(b"key");
    for datagram in [psk.ask(b"question"), psk.answer(b"answer", b"question")] {
        seeds.push([&[4], &datagram[..]].concat());
    }
    seeds
}

//! SLE (PROTOCOL.md §18): an outer connection as a server reads it from a stranger, and flows whose
//! events come in any order.
//!
//! The splitter is that of the crate's own tests, compiled here: its input chooses what happens
//! next.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use bentpipe_sealed::sle::{
    Acceptor, Action, Admissions, Associations, Conn, Keys, Kind, MAX_BODY, MAX_HELD, MAX_RECORD,
    Offers, Opener, Outcome, PREFACE, Sealer,
};
use bytes::BytesMut;

#[path = "../../crates/sealed/tests/sle/splitter/mod.rs"]
mod splitter;

use splitter::{Harm, Scale, epoch};

/// Tunnel to which all connections belong.
const ID: u32 = 1;

/// Destination that the connections were made to.
const PLACE: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(10, 30, 0, 2), 443));

/// Records of a client after OPEN, as [`record_seeds`] seals them.
fn sent() -> Vec<(Kind, Vec<u8>)> {
    vec![
        (Kind::Data, b"GET /".to_vec()),
        (Kind::Data, vec![7; MAX_BODY]),
        (Kind::Data, vec![8]),
        (Kind::Fin, vec![]),
        (Kind::Done, vec![]),
        (Kind::Abort, vec![0]),
    ]
}

/// Records that `opener` makes of `pieces`, and whether all were fine.
fn opened<'a>(
    mut opener: Opener,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> (Vec<(Kind, Vec<u8>)>, bool) {
    let mut found = Vec::new();
    for mut piece in pieces {
        loop {
            match opener.next(&mut piece) {
                Ok(Some(record)) => found.push((record.kind, record.body.to_vec())),
                Ok(None) => break,
                Err(_) => return (found, false),
            }
        }
        assert!(piece.is_empty());
    }
    (found, true)
}

/// An outer connection: what is opened is what was sealed, in that order, however it is cut;
/// nothing else is accepted.
pub fn record(data: &[u8]) {
    let (now, mut pieces) = (crate::origin(), data.chunks(1 + data.len() % 97));
    let mut all = vec![(Kind::Open, b"open".to_vec())];
    all.extend(sent());
    if let Some((_, records)) = data.split_at_checked(PREFACE) {
        let opener = || first_keys(asks(data)).server().1;
        let whole = opened(opener(), [records].into_iter());
        let cut = opened(opener(), records.chunks(1 + data.len() % 97));
        assert_eq!(whole, cut);
        assert!(all.starts_with(&whole.0));
    }
    let mut associations = Associations::from([(ID, Admissions::new(epoch()))]);
    let (mut acceptor, mut answered) = (Acceptor::new(now).at(PLACE), false);
    while let Some(mut piece) = pieces.next() {
        let pushed = acceptor.push(now, &mut piece, &mut associations);
        if let Some(answer) = acceptor.take_answer() {
            let expected = first_keys(true);
            assert!(asks(data), "nobody has asked");
            if data.starts_with(&expected.preface().encode()) {
                assert_eq!(answer, expected.answer(PLACE));
            }
            answered = true;
        }
        match pushed {
            Ok(None) => {}
            Ok(Some(accepted)) => {
                assert_eq!(answered, asks(data), "an answer is missing");
                assert_eq!(&*accepted.open, b"open");
                let rest = [piece].into_iter().chain(pieces);
                return flow(now, accepted.conn, rest);
            }
            Err(_) => return,
        }
    }
}

/// Flow after OPEN: the LAN takes no byte that was not sent, and no end in order before the last of
/// them.
fn flow<'a>(now: std::time::Instant, mut conn: Conn, pieces: impl Iterator<Item = &'a [u8]>) {
    let payload: Vec<u8> = sent()
        .into_iter()
        .filter(|(kind, _)| *kind == Kind::Data)
        .flat_map(|(_, body)| body)
        .collect();
    conn.on_dialled(b"ok");
    let mut taken = 0;
    for piece in pieces {
        assert_eq!(conn.on_outer(now, piece), piece.len());
        let output = conn.lan_output();
        assert_eq!(*output, payload[taken..taken + output.len()]);
        taken += output.len();
        conn.lan_written(now, output.len());
        while let Some(action) = conn.poll_action() {
            assert!(action != Action::ShutLan || taken == payload.len());
        }
    }
}

/// Keys of the first connection, whose preface asks or not.
fn first_keys(asks: bool) -> Keys {
    let mut offers = Offers::new(ID, epoch());
    match asks {
        true => offers.ask(),
        false => offers.open(),
    }
}

/// True if the preface that `data` begins with asks.
fn asks(data: &[u8]) -> bool {
    data.get(1) == Some(&1)
}

/// Whole connections of the client, with a preface that asks and without: each without an end, and reset.
pub fn record_seeds() -> Vec<Vec<u8>> {
    [false, true].into_iter().flat_map(connections).collect()
}

/// Ever longer beginnings of one connection.
fn connections(asks: bool) -> Vec<Vec<u8>> {
    let keys = first_keys(asks);
    let mut out = BytesMut::from(&keys.preface().encode()[..]);
    let (mut sealer, _) = keys.client();
    let mut seal = |kind, body: &[u8]| {
        let sealed = sealer.seal(kind, body, &mut out);
        sealed.expect("few records");
        out.to_vec()
    };
    let mut seeds = vec![seal(Kind::Open, b"open")];
    seeds.extend(sent().iter().map(|(kind, body)| seal(*kind, body)));
    seeds
}

/// Numbers from an input, and zeros after its end.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        let bytes = if bound <= 256 { 1 } else { 3 };
        let number = (0..bytes).fold(0, |sum, _| sum << 8 | usize::from(self.byte()));
        number % bound.max(1)
    }
}

/// Events in the order that the input says: through a splitter, or from a peer that has the keys
/// and obeys no rule.
pub fn conn(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else {
        return;
    };
    let mut choices = Choices(rest);
    if first % 2 == 0 {
        let scale = Scale {
            steps: rest.len() / 4,
            bits: 13,
        };
        let report = splitter::run(crate::origin(), scale, &mut |bound| choices.below(bound));
        // Nobody can forge a refusal, and one that nothing stood in the way of is the same at both
        // ends.
        if report.client == Outcome::Refused && report.harm == Harm::None {
            assert_eq!(report.server, Some(Outcome::Refused));
        }
    } else {
        lawless(&mut choices);
    }
}

/// One end, and a peer that has the keys.
struct Lawless {
    conn: Conn,
    peer: Sealer,
    /// Payload that the LAN has to take before an end in order, and whether that may come.
    due: VecDeque<u8>,
    fin: bool,
    shut: bool,
    reset: bool,
    reader: Opener,
    /// Kinds of the records that have left.
    left: Vec<Kind>,
}

/// A client whose peer seals whatever it likes: nothing is held without bound, and an end in order
/// is the peer's word.
fn lawless(choices: &mut Choices<'_>) {
    let mut now = crate::origin();
    let keys = || Offers::new(ID, epoch()).open();
    let mut it = Lawless {
        conn: Conn::client(now, keys(), b"open", |body| body[0] % 4 != 0),
        peer: keys().server().0,
        due: VecDeque::new(),
        fin: false,
        shut: false,
        reset: false,
        reader: keys().server().1,
        left: Vec::new(),
    };
    it.conn.outer_written(now, PREFACE);
    while !choices.0.is_empty() {
        let amount = choices.below(256);
        match choices.below(12) {
            0..=3 => it.brings(now, choices.byte(), amount),
            4 => drop(it.conn.on_lan(now, &vec![1; amount * 97])),
            5 => it.conn.on_lan_end(now),
            6 => it.conn.abort(now, amount as u8),
            7 => it.leaves(now, amount),
            8 => it.takes(now, amount),
            9 if amount < 8 => it.conn.on_outer_end(),
            10 if it.shut => it.conn.on_lan_shut(now),
            _ => {
                now += std::time::Duration::from_secs(amount as u64);
                it.conn.handle_timeout(now);
            }
        }
        it.act();
    }
}

impl Lawless {
    fn brings(&mut self, now: std::time::Instant, kind: u8, amount: usize) {
        const KINDS: [Kind; 8] = [
            Kind::Reply,
            Kind::Data,
            Kind::Data,
            Kind::Fin,
            Kind::Done,
            Kind::Abort,
            Kind::Open,
            Kind::Reply,
        ];
        let kind = KINDS[usize::from(kind % 8)];
        let body = match kind {
            Kind::Fin | Kind::Done => vec![],
            Kind::Abort => vec![amount as u8],
            _ => vec![amount as u8; 1 + amount],
        };
        if self.conn.outer_room() < MAX_RECORD {
            return;
        }
        let mut out = BytesMut::new();
        self.peer.seal(kind, &body, &mut out).expect("few records");
        let read = self.conn.on_outer(now, &out);
        assert_eq!(read, out.len());
        if kind == Kind::Data {
            self.due.extend(&body);
        }
        self.fin |= kind == Kind::Fin;
    }

    /// Records leave for the peer, ends once each and in their order.
    fn leaves(&mut self, now: std::time::Instant, amount: usize) {
        let count = self.conn.outer_output().len().min(amount * 97);
        let out = self.conn.outer_output()[..count].to_vec();
        self.conn.outer_written(now, count);
        let mut rest = &*out;
        while let Some(record) = self.reader.next(&mut rest).expect("what was sealed") {
            let after = |kind| self.left.contains(&kind);
            assert!(!after(Kind::Abort));
            let last = if record.kind == Kind::Data {
                Kind::Fin
            } else {
                record.kind
            };
            assert!(!after(last));
            self.left.push(record.kind);
        }
    }

    fn takes(&mut self, now: std::time::Instant, amount: usize) {
        let count = self.conn.lan_output().len().min(amount * 97);
        let due: Vec<u8> = self.due.drain(..count).collect();
        assert!(self.conn.lan_output()[..count] == *due);
        self.conn.lan_written(now, count);
    }

    fn act(&mut self) {
        assert!(self.conn.lan_output().len() <= MAX_HELD + MAX_BODY);
        assert!(self.conn.outer_output().len() <= 2 * MAX_HELD);
        while let Some(action) = self.conn.poll_action() {
            if action == Action::ShutLan {
                assert!(self.fin && self.due.is_empty());
                self.shut = true;
            }
            self.reset |= action == Action::ResetLan;
        }
        assert!(!(self.shut || self.reset) || self.conn.lan_output().is_empty());
        if self.conn.outcome() == Some(Outcome::Closed) {
            assert!(self.shut);
        }
    }
}

/// Courses of events: both kinds, and of each several.
pub fn conn_seeds() -> Vec<Vec<u8>> {
    let course = |number: u32| {
        let mut state = number.wrapping_mul(0x9e37_79b9);
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        };
        let mut seed: Vec<u8> = (0..240).map(|_| next()).collect();
        seed[0] = number as u8;
        seed
    };
    (0..12).map(course).collect()
}

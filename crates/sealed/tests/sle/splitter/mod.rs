//! A flow over SLE in virtual time: two hosts, the two ends, and between them a splitter that cuts
//! and merges what it carries, may kill it, and may tamper with it. Whoever drives it chooses what
//! happens next.
//!
//! The model panics when a promise is broken: a byte that is wrong, an end in order after anything
//! was lost, an end that never comes.

mod judge;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bentpipe_sealed::sle::{
    Acceptor, Action, Admissions, Associations, Conn, Offers, Outcome, State,
};
use bentpipe_sealed::{Epoch, Exporter};
use zeroize::Zeroizing;

/// Chooses a number below a bound.
pub(crate) type Choose<'a> = &'a mut dyn FnMut(usize) -> usize;

/// Size of a run.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// Steps after which all that is left to do is done.
    pub(crate) steps: usize,
    /// Bits of the length of what a host sends, at most.
    pub(crate) bits: usize,
}

/// Harm that the splitter does to a flow, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    None,
    /// Resets both connections.
    Kill,
    /// Throws away what it holds and closes in order.
    CutTail,
    Flip,
    Remove,
    Insert,
    Repeat,
    Exchange,
}

impl Harm {
    const ALL: [Self; 8] = [
        Self::None,
        Self::Kill,
        Self::CutTail,
        Self::Flip,
        Self::Remove,
        Self::Insert,
        Self::Repeat,
        Self::Exchange,
    ];

    /// Bytes arrive that were not sent so.
    fn tampers(self) -> bool {
        !matches!(self, Self::None | Self::Kill | Self::CutTail)
    }
}

/// Result of a run.
#[derive(Debug)]
pub(crate) struct Report {
    /// Harm that was done.
    pub(crate) harm: Harm,
    /// Outcome at the client.
    pub(crate) client: Outcome,
    /// Outcome at the server; none if it has not accepted the connection.
    pub(crate) server: Option<Outcome>,
}

struct Host {
    text: Vec<u8>,
    sent: usize,
    /// Resets its connection at some time, instead of ending it.
    resets: bool,
    ended: bool,
    did_reset: bool,
    taken: usize,
    shut: bool,
    reset: bool,
}

/// One direction of what the splitter carries.
#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    /// The sender has closed, in order or not.
    end: Option<bool>,
    told: bool,
}

struct Side {
    conn: Option<Conn>,
    host: Host,
    shut_due: bool,
    closed: bool,
}

struct World<'a> {
    now: Instant,
    choose: Choose<'a>,
    sides: [Side; 2],
    /// Bytes on their way to each side.
    pipes: [Pipe; 2],
    acceptor: Acceptor,
    associations: Associations,
    dials: bool,
    /// True once a connection to the server's host stands.
    dialled: bool,
    harm: Harm,
    /// Side that receives what was harmed, and whether that differs from what was sent.
    harmed: Option<(usize, bool)>,
}

/// Epoch 0 of a tunnel.
pub(crate) fn epoch() -> Epoch {
    Exporter::new(Zeroizing::new([7; 32])).epoch(0, &[8; 32])
}

/// Runs one flow from its first byte to its last.
pub(crate) fn run(now: Instant, scale: Scale, choose: Choose<'_>) -> Report {
    let mut host = |first: u8| {
        let reach = 1 << choose(scale.bits + 1);
        let length = choose(reach);
        Host {
            text: (0..length)
                .map(|at| first.wrapping_add((at % 251) as u8))
                .collect(),
            sent: 0,
            resets: choose(4) == 0,
            ended: false,
            did_reset: false,
            taken: 0,
            shut: false,
            reset: false,
        }
    };
    let hosts = [host(0), host(100)];
    let harm = if choose(2) == 0 {
        Harm::None
    } else {
        Harm::ALL[choose(Harm::ALL.len())]
    };
    let dials = choose(8) != 0;
    let client = Conn::client(now, Offers::new(1, epoch()).open(), b"open", |body| {
        body == b"ok"
    });
    let mut conns = [Some(client), None].into_iter();
    let mut world = World {
        now,
        choose,
        sides: hosts.map(|host| Side {
            conn: conns.next().flatten(),
            host,
            shut_due: false,
            closed: false,
        }),
        pipes: Default::default(),
        acceptor: Acceptor::new(now),
        associations: Associations::from([(1, Admissions::new(epoch()))]),
        dials,
        dialled: false,
        harm,
        harmed: None,
    };
    for _ in 0..scale.steps {
        world.step();
    }
    world.finish();
    world.judge()
}

impl World<'_> {
    fn below(&mut self, bound: usize) -> usize {
        (self.choose)(bound)
    }

    /// Bytes for one step, often few.
    fn part(&mut self) -> usize {
        let reach = 1 << self.below(17);
        self.below(reach)
    }

    fn step(&mut self) {
        let side = self.below(2);
        let event = self.below(16);
        let most = if event < 12 { self.part() } else { 0 };
        let _ = match event {
            0..=2 => self.host_sends(side, most),
            3 => self.host_ends(side),
            4..=6 => self.write_outer(side, most),
            7..=9 => self.read_outer(side, most),
            10..=11 => self.host_takes(side, most),
            12 => self.act(side),
            13 => self.lan_shuts(side),
            14 => self.below(6) == 0 && self.dial(),
            _ => self.below(12) == 0 && self.harm(side),
        };
        let passed = self.below(100) as u64;
        self.now += Duration::from_millis(passed);
    }

    fn host_sends(&mut self, side: usize, most: usize) -> bool {
        let Side {
            conn: Some(conn),
            host,
            ..
        } = &mut self.sides[side]
        else {
            return false;
        };
        if host.ended || host.reset || host.did_reset {
            return false;
        }
        let left = &host.text[host.sent..];
        let taken = conn.on_lan(self.now, &left[..left.len().min(most)]);
        host.sent += taken;
        taken > 0
    }

    /// The host ends its direction if it has sent all, or resets the connection if it is one that
    /// does.
    fn host_ends(&mut self, side: usize) -> bool {
        let Side {
            conn: Some(conn),
            host,
            ..
        } = &mut self.sides[side]
        else {
            return false;
        };
        if host.reset || host.did_reset {
            return false;
        }
        // There is no connection to a host of the server's before the dial has ended.
        if side == 1 && conn.state() == State::Opening {
            return false;
        }
        if host.resets && (self.choose)(3) == 0 {
            host.did_reset = true;
            conn.abort(self.now, 0);
            return true;
        }
        if host.sent == host.text.len() && !host.ended {
            host.ended = true;
            conn.on_lan_end(self.now);
            return true;
        }
        false
    }

    fn write_outer(&mut self, side: usize, most: usize) -> bool {
        let Some(conn) = &mut self.sides[side].conn else {
            return false;
        };
        let pipe = &mut self.pipes[1 - side];
        let count = conn.outer_output().len().min(most);
        if count == 0 || pipe.end.is_some() {
            return false;
        }
        pipe.bytes.extend(&conn.outer_output()[..count]);
        conn.outer_written(self.now, count);
        if self.sides[1 - side].closed {
            pipe.bytes.clear();
            let own = &mut self.pipes[side];
            own.bytes.clear();
            own.end = Some(false);
        }
        true
    }

    fn read_outer(&mut self, side: usize, most: usize) -> bool {
        let pipe = &mut self.pipes[side];
        let count = pipe.bytes.len().min(most);
        if pipe.told || self.sides[side].closed {
            return false;
        }
        if count == 0 {
            return self.tell_end(side);
        }
        let piece: Vec<u8> = pipe.bytes.iter().take(count).copied().collect();
        let mut rest = &*piece;
        if side == 1 && self.sides[1].conn.is_none() {
            match self
                .acceptor
                .push(self.now, &mut rest, &mut self.associations)
            {
                Ok(Some(accepted)) => {
                    assert_eq!(&*accepted.open, b"open");
                    self.sides[1].conn = Some(accepted.conn);
                }
                Ok(None) => {}
                Err(_) => self.close_outer(1, false),
            }
        }
        if let Some(conn) = &mut self.sides[side].conn {
            let taken = conn.on_outer(self.now, rest);
            rest = &rest[taken..];
        }
        let taken = count - rest.len();
        self.pipes[side]
            .bytes
            .drain(..taken.min(self.pipes[side].bytes.len()));
        taken > 0
    }

    /// Tells a side that what it reads has ended, once it has read all before.
    fn tell_end(&mut self, side: usize) -> bool {
        let pipe = &mut self.pipes[side];
        let Some(in_order) = pipe
            .end
            .filter(|in_order| !in_order || pipe.bytes.is_empty())
        else {
            return false;
        };
        pipe.told = true;
        match &mut self.sides[side].conn {
            Some(conn) if in_order => conn.on_outer_end(),
            Some(conn) => conn.on_outer_reset(),
            None => self.close_outer(side, false),
        }
        true
    }

    fn close_outer(&mut self, side: usize, in_order: bool) {
        self.sides[side].closed = true;
        // As kernels do: who closes before it has read all answers with a reset.
        let in_order = in_order && self.pipes[side].bytes.is_empty();
        let other = &mut self.pipes[1 - side];
        other.end.get_or_insert(in_order);
        if !in_order {
            other.bytes.clear();
        }
        self.pipes[side].bytes.clear();
    }

    fn host_takes(&mut self, side: usize, most: usize) -> bool {
        let [a, b] = &mut self.sides;
        let (own, other) = if side == 0 { (a, b) } else { (b, a) };
        let Some(conn) = &mut own.conn else {
            return false;
        };
        let count = conn.lan_output().len().min(most);
        if count == 0 || own.host.reset || own.host.did_reset {
            return false;
        }
        let sent = &other.host.text[..other.host.sent];
        let expected = &sent[own.host.taken..own.host.taken + count];
        assert!(
            conn.lan_output()[..count] == *expected,
            "a wrong byte was delivered"
        );
        own.host.taken += count;
        conn.lan_written(self.now, count);
        true
    }

    fn act(&mut self, side: usize) -> bool {
        let own = &mut self.sides[side];
        let Some(action) = own.conn.as_mut().and_then(Conn::poll_action) else {
            return false;
        };
        match action {
            Action::Replied(body) => assert!(&*body == b"ok" || &*body == b"no"),
            Action::ShutLan => own.shut_due = true,
            Action::ResetLan => {
                assert!(!own.host.reset, "reset twice");
                (own.host.reset, own.shut_due) = (true, false);
            }
            Action::CloseOuter => self.close_outer(side, true),
            Action::ResetOuter => self.close_outer(side, false),
        }
        true
    }

    /// The host's connection ends in order.
    fn lan_shuts(&mut self, side: usize) -> bool {
        let other = &self.sides[1 - side].host;
        let whole = (other.ended, other.text.len());
        let own = &mut self.sides[side];
        if !std::mem::take(&mut own.shut_due) || own.host.did_reset {
            return false;
        }
        assert_eq!(
            (true, own.host.taken),
            whole,
            "an end in order after a part"
        );
        own.host.shut = true;
        own.conn.as_mut().expect("it asked").on_lan_shut(self.now);
        true
    }

    fn dial(&mut self) -> bool {
        let Some(conn) = &mut self.sides[1].conn else {
            return false;
        };
        let waits = conn.state() == State::Opening;
        if self.dials {
            self.dialled |= waits;
            conn.on_dialled(b"ok");
        } else {
            conn.on_refused(self.now, b"no");
        }
        waits
    }

    /// Harms what `side` is to receive, if it has not been done yet.
    fn harm(&mut self, side: usize) -> bool {
        let length = self.pipes[side].bytes.len();
        if self.harmed.is_some() || self.harm == Harm::None || self.pipes[side].told {
            return false;
        }
        if self.harm.tampers() && (length == 0 || self.sides[side].closed) {
            return false;
        }
        let (a, b) = (self.below(length.max(1)), self.below(length.max(1)));
        let bytes = &mut self.pipes[side].bytes;
        let before = bytes.clone();
        match self.harm {
            Harm::None => {}
            Harm::Kill => {
                for pipe in &mut self.pipes {
                    pipe.bytes.clear();
                    pipe.end = Some(false);
                }
            }
            Harm::CutTail => {
                bytes.truncate(a);
                for pipe in &mut self.pipes {
                    pipe.end.get_or_insert(true);
                }
            }
            Harm::Flip => bytes[a] ^= 1 << (b % 8),
            Harm::Remove => drop(bytes.remove(a)),
            Harm::Insert => bytes.insert(a, b as u8),
            Harm::Repeat => bytes.extend(before.range(a.min(b)..)),
            Harm::Exchange => bytes.swap(a, b),
        }
        // What follows the last record of a flow that has ended is nobody's.
        let after = self.pipes[side].bytes.iter().take(length);
        let differs = self.harm.tampers() && !before.iter().eq(after);
        self.harmed = Some((side, differs));
        true
    }
}

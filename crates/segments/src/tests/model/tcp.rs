//! Small honest TCP: cumulative acknowledgements, NewReno, RFC 6298's timeout, half-close, zero
//! windows, probes, RFC 5961's answers to RST and SYN. No SACK.

use std::collections::BTreeMap;

use crate::{Flags, Segment, SynOptions};
use bytes::Bytes;

use super::script::{Micros, Script};

mod receiving;

/// Timeouts in a row after which an end gives up; more than usual, for three hops may lose 15 % each.
const MOST_TIMEOUTS: u32 = 30;

/// Silence after which an end asks whether the other one is still there.
const KEEP_ALIVE: Micros = 60_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Listen,
    SynSent,
    SynReceived,
    Open,
    Reset,
    TimedOut,
}

/// One end. Places are offsets in a direction: its SYN has 0.
#[derive(Debug)]
pub(crate) struct Tcp {
    script: Script,
    /// Application of the other end, whose bytes have to come.
    other: Script,
    state: State,
    written: u64,
    una: u64,
    nxt: u64,
    max: u64,
    edge: u64,
    edge_from: u64,
    cwnd: u64,
    ssthresh: u64,
    duplicates: u32,
    recover: u64,
    repairing: bool,
    resend: bool,
    smoothed: Option<(u64, u64)>,
    backoff: u32,
    /// Timeouts without a word of the other end, or, with bytes in flight, without progress.
    tries: u32,
    timed: Option<(u64, Micros)>,
    due: Option<Micros>,
    peer: u32,
    peer_shift: u8,
    own_shift: u8,
    rcv: u64,
    early: BTreeMap<u64, u64>,
    fin: Option<u64>,
    unread: u64,
    told: u64,
    write_at: Micros,
    read_at: Micros,
    heard: Micros,
    pub(crate) out: Vec<Segment>,
}

/// Place of `number`, next to `near`.
fn place(base: u32, number: u32, near: u64) -> u64 {
    let distance = number
        .wrapping_sub(base.wrapping_add(near as u32))
        .cast_signed();
    near.saturating_add_signed(distance.into())
}

impl Tcp {
    pub(crate) fn new(script: Script, other: Script, active: bool) -> Self {
        let mut own = Self {
            script,
            other,
            state: if active {
                State::SynSent
            } else {
                State::Listen
            },
            written: 0,
            una: 0,
            nxt: 0,
            max: 0,
            edge: 1,
            edge_from: 0,
            cwnd: 10 * u64::from(script.mss),
            ssthresh: u64::MAX,
            duplicates: 0,
            recover: 0,
            repairing: false,
            resend: false,
            smoothed: None,
            backoff: 0,
            tries: 0,
            timed: None,
            due: None,
            peer: 0,
            peer_shift: 0,
            own_shift: 0,
            rcv: 1,
            early: BTreeMap::new(),
            fin: None,
            unread: 0,
            told: 0,
            write_at: 0,
            read_at: 0,
            heard: 0,
            out: Vec::new(),
        };
        own.told = 1 + script.room.min(65_535);
        if active {
            own.send_syn(0);
        }
        own
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Bytes that have come in order.
    pub(crate) fn received(&self) -> u64 {
        self.rcv - 1 - u64::from(self.fin.is_some_and(|fin| self.rcv > fin))
    }

    pub(crate) fn has_fin(&self) -> bool {
        self.fin.is_some_and(|fin| self.rcv > fin)
    }

    /// All was written, and the end of it acknowledged.
    pub(crate) fn is_fin_acked(&self) -> bool {
        self.una == self.script.total + 2
    }

    pub(crate) fn is_finished(&self) -> bool {
        let over = matches!(self.state, State::Reset | State::TimedOut);
        over || self.has_fin() && self.is_fin_acked()
    }

    fn segment(&self, place: u64, flags: Flags) -> Segment {
        let window = (self.told.saturating_sub(self.rcv)) >> self.own_shift;
        Segment {
            number: self.script.initial.wrapping_add(place as u32),
            acknowledgement: self.peer.wrapping_add(self.rcv as u32),
            window: window.min(65_535) as u16,
            flags,
            ..Segment::default()
        }
    }

    fn ack(&mut self) {
        let ack = self.segment(self.max.max(1), Flags::ACK);
        self.out.push(ack);
    }

    fn send_syn(&mut self, now: Micros) {
        let answer = self.state == State::SynReceived;
        let syn = Segment {
            flags: if answer {
                Flags::SYN | Flags::ACK
            } else {
                Flags::SYN
            },
            window: self.script.room.min(65_535) as u16,
            options: SynOptions {
                largest: Some(self.script.mss),
                scale: self.script.scale,
                foreign: false,
            },
            ..self.segment(0, Flags::SYN)
        };
        self.out.push(syn);
        self.nxt = 1;
        self.max = 1;
        self.due = Some(now + (1_000_000 << self.backoff.min(6)));
    }

    fn send(&mut self, now: Micros, from: u64, length: u64) {
        let end = from + length;
        let last = end == 1 + self.script.total && self.written == self.script.total;
        let fin = last && !self.script.leaves;
        let payload: Vec<u8> = (from..end).map(|at| self.script.byte(at - 1)).collect();
        let mut flags = Flags::ACK | Flags::PSH;
        if fin {
            flags = flags | Flags::FIN;
        }
        let zone = if self.script.zones {
            // What stands here for the tag holds the zone to its segment: whoever cuts or merges
            // is found out.
            let mut zone = Vec::from((from as u32).to_be_bytes());
            zone.extend([0xa5; 4]);
            zone.extend(&payload);
            zone.extend([length as u8 ^ 0x5a; 15]);
            zone.push(u8::from(fin));
            zone
        } else {
            payload
        };
        let segment = Segment {
            flags,
            length: length as u16,
            zone: Bytes::from(zone),
            ..self.segment(from, flags)
        };
        self.out.push(segment);
        let end = end + u64::from(fin);
        if from >= self.max && self.timed.is_none() {
            self.timed = Some((end, now));
        } else if from < self.max {
            self.timed = None;
        }
        self.nxt = self.nxt.max(end);
        self.max = self.max.max(end);
        if self.due.is_none() || from == self.una {
            self.due = Some(now + self.timeout());
        }
    }

    fn timeout(&self) -> Micros {
        let base = self
            .smoothed
            .map_or(1_000_000, |(s, v)| (s + (4 * v).max(10_000)).max(200_000));
        (base << self.backoff.min(10)).min(60_000_000)
    }

    /// Sends what may leave.
    fn pump(&mut self, now: Micros) {
        if self.state != State::Open {
            return;
        }
        let mss = u64::from(self.script.mss);
        if std::mem::take(&mut self.resend) {
            let length = mss.min((1 + self.written).saturating_sub(self.una));
            self.send(now, self.una, length);
        }
        loop {
            let data_end = 1 + self.written;
            let says_all = self.written == self.script.total && !self.script.leaves;
            let closing = says_all && self.nxt <= data_end;
            let length = mss.min(data_end.saturating_sub(self.nxt));
            let room = self.edge.min(self.una + self.cwnd).saturating_sub(self.nxt);
            if length == 0 && closing && self.nxt == data_end {
                self.send(now, self.nxt, 0);
            } else if length > 0 && length <= room {
                self.send(now, self.nxt, length);
            } else if length > 0 && room > 0 && self.nxt == self.una {
                self.send(now, self.nxt, room.min(length));
            } else {
                if length > 0 && self.nxt == self.una && self.due.is_none() {
                    self.due = Some(now + self.timeout());
                }
                return;
            }
        }
    }

    pub(crate) fn on_segment(&mut self, now: Micros, segment: &Segment) {
        let has = |flag| segment.flags.has(flag);
        self.heard = now;
        match self.state {
            State::Reset | State::TimedOut => self.refuse(segment),
            State::Listen if has(Flags::SYN) && !has(Flags::ACK) => {
                self.state = State::SynReceived;
                self.learn(segment);
                self.send_syn(now);
            }
            State::Listen => self.refuse(segment),
            State::SynSent => self.on_answer(now, segment),
            State::SynReceived if has(Flags::SYN) && !has(Flags::ACK) => self.send_syn(now),
            State::SynReceived | State::Open => self.on_words(now, segment),
        }
        self.pump(now);
    }

    fn refuse(&mut self, segment: &Segment) {
        if segment.flags.has(Flags::SYN) && !segment.flags.has(Flags::ACK) {
            self.out.push(Segment {
                acknowledgement: segment.number.wrapping_add(1),
                flags: Flags::RST | Flags::ACK,
                ..Segment::default()
            });
        }
        if segment.flags.has(Flags::ACK) && !segment.flags.has(Flags::RST) {
            self.out.push(Segment {
                number: segment.acknowledgement,
                flags: Flags::RST,
                ..Segment::default()
            });
        }
    }

    fn learn(&mut self, segment: &Segment) {
        self.peer = segment.number;
        if let (Some(own), Some(peer)) = (self.script.scale, segment.options.scale) {
            (self.own_shift, self.peer_shift) = (own, peer);
        }
        self.edge = 1 + u64::from(segment.window);
    }

    fn on_answer(&mut self, now: Micros, segment: &Segment) {
        let answers = segment.acknowledgement == self.script.initial.wrapping_add(1);
        let ack = segment.flags.has(Flags::ACK);
        if ack && !answers {
            self.refuse(segment);
        } else if ack && segment.flags.has(Flags::RST) {
            self.state = State::Reset;
        } else if ack && segment.flags.has(Flags::SYN) {
            self.learn(segment);
            self.open(now);
            self.una = 1;
            self.ack();
        }
    }

    fn open(&mut self, now: Micros) {
        self.state = State::Open;
        self.backoff = 0;
        self.tries = 0;
        self.due = None;
        self.write_at = now;
        self.read_at = now + self.script.reads.1;
    }

    fn on_ack(&mut self, now: Micros, at: u64, acknowledged: u64, segment: &Segment) {
        let mss = u64::from(self.script.mss);
        if acknowledged < self.una {
            return;
        }
        if self.nxt == self.una {
            self.tries = 0;
        }
        let edge = acknowledged + (u64::from(segment.window) << self.peer_shift);
        let same = edge == self.edge;
        if at >= self.edge_from {
            (self.edge, self.edge_from) = (edge, at);
        }
        if acknowledged == self.una {
            if same && segment.span() == 0 && self.nxt > self.una {
                self.duplicates += 1;
                if self.repairing {
                    self.cwnd += mss;
                } else if self.duplicates == 3 && self.una >= self.recover {
                    self.ssthresh = ((self.nxt - self.una) / 2).max(2 * mss);
                    self.cwnd = self.ssthresh + 3 * mss;
                    (self.recover, self.repairing, self.resend) = (self.max, true, true);
                }
            }
            if self.nxt == self.una && edge > self.nxt {
                self.due = None;
                self.backoff = 0;
            }
            return;
        }
        if let Some((_, sent)) = self.timed.take_if(|(end, _)| *end <= acknowledged) {
            let time = now - sent;
            self.smoothed = Some(self.smoothed.map_or((time, time / 2), |(s, v)| {
                ((7 * s + time) / 8, (3 * v + s.abs_diff(time)) / 4)
            }));
        }
        let bytes = acknowledged - self.una;
        self.una = acknowledged;
        self.nxt = self.nxt.max(acknowledged);
        self.backoff = 0;
        self.tries = 0;
        self.duplicates = 0;
        if !self.repairing {
            let slow = self.cwnd < self.ssthresh;
            self.cwnd += if slow {
                bytes.min(2 * mss)
            } else {
                mss * bytes.min(mss) / self.cwnd + 1
            };
        } else if acknowledged >= self.recover {
            (self.repairing, self.cwnd) = (false, self.ssthresh);
        } else {
            (self.resend, self.cwnd) = (true, self.cwnd.saturating_sub(bytes).max(mss) + mss);
        }
        self.due = (self.nxt > self.una).then(|| now + self.timeout());
    }

    fn may_write(&self) -> bool {
        self.state == State::Open
            && self.written < self.script.total
            && (!self.script.waits || self.has_fin())
    }

    /// Says whether the time to reset the connection has come.
    fn is_to_reset(&self) -> bool {
        let heard_enough = self.script.aborts.is_some_and(|at| self.received() >= at);
        let left = self.script.leaves && self.una == 1 + self.script.total;
        self.state == State::Open && (heard_enough || left)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Micros> {
        let leaves = self.script.leaves && self.is_to_reset();
        let write = (self.may_write() || leaves).then_some(self.write_at);
        let read = (self.unread > 0 && self.state == State::Open).then_some(self.read_at);
        let silent = self.state == State::Open && self.script.keeps_alive;
        let ask = silent.then_some(self.heard + KEEP_ALIVE);
        [self.due, write, read, ask].into_iter().flatten().min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Micros) {
        if self.may_write() && self.write_at <= now {
            self.written = (self.written + self.script.writes.0).min(self.script.total);
            self.write_at = now + self.script.writes.1;
        }
        if self.unread > 0 && self.read_at <= now {
            self.unread -= self.unread.min(self.script.reads.0);
            self.read_at = now + self.script.reads.1;
            if self.raise() && self.fin.is_none() {
                self.ack();
            }
        }
        if self.is_to_reset() {
            let rst = self.segment(self.max, Flags::RST | Flags::ACK);
            self.out.push(rst);
            self.state = State::Reset;
            self.due = None;
        }
        if self.due.is_some_and(|due| due <= now) {
            self.on_due(now);
        }
        let silent = self.state == State::Open && self.script.keeps_alive;
        if silent && self.heard + KEEP_ALIVE <= now {
            self.heard = now;
            let question = self.segment(self.una - 1, Flags::ACK);
            self.out.push(question);
        }
        self.pump(now);
    }

    fn on_due(&mut self, now: Micros) {
        self.due = None;
        self.backoff += 1;
        self.tries += 1;
        if self.tries > MOST_TIMEOUTS {
            self.state = State::TimedOut;
            return;
        }
        let mss = u64::from(self.script.mss);
        match self.state {
            State::SynSent | State::SynReceived => self.send_syn(now),
            State::Open if self.nxt > self.una => {
                self.ssthresh = ((self.nxt - self.una) / 2).max(2 * mss);
                (self.cwnd, self.duplicates, self.repairing) = (mss, 0, false);
                (self.recover, self.nxt, self.timed) = (self.max, self.una, None);
                // The first goes again whatever the window.
                self.resend = true;
                self.pump(now);
            }
            State::Open if self.script.byte_probes => self.send(now, self.una, 1),
            State::Open => {
                let probe = self.segment(self.una - 1, Flags::ACK);
                self.out.push(probe);
                self.due = Some(now + self.timeout());
            }
            _ => {}
        }
    }
}

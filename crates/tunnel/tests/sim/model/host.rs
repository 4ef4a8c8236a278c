//! One of a flow's two hosts, and its TCP connection with the relay at its end of the tunnel, as a kernel keeps it.

use std::io::{self, ErrorKind, IoSlice};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bentpipe_tunnel::relay::LanSocket;
use bytes::Bytes;

use super::dice::Dice;

/// Length of the piece of content that is repeated, in bytes; prime, so that no power of two is a period.
const PERIOD: u64 = 65_521;

/// Bytes that the kernel keeps each way for whoever does not read.
const ROOM: u64 = 65_536;

/// Most bytes that a host writes in one turn.
const PIECE: u64 = 60_000;

/// Part of a run: what hosts do in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// They keep their pace.
    Lively,
    /// They hurry, but silent ones say no more.
    Hurried,
    /// All come to their end.
    Last,
}

/// Way in which a host takes what comes.
#[derive(Clone, Copy, Debug)]
enum Pace {
    /// At once.
    Greedy,
    /// At most so many bytes in a turn.
    Slow(u64),
    /// Nothing before this instant.
    Stalled(Instant),
}

/// One host.
#[derive(Debug)]
pub(super) struct Host {
    /// Content that the host writes, and that it expects.
    writes: Content,
    expects: Content,
    /// Bytes that it means to write before FIN.
    plan: u64,
    /// Bytes written so far, and how many of them the relay has read.
    sent: u64,
    taken: u64,
    /// It has said FIN.
    finished: bool,
    /// It has reset the connection, and the relay was told so.
    reset: bool,
    told: bool,
    /// Bytes that the relay has written, and how many of them the host has read.
    arrived: u64,
    read: u64,
    /// The relay has said FIN.
    fin: bool,
    pace: Pace,
    /// It says FIN in the last phase alone: what ends before does so without it.
    silent: bool,
}

impl Host {
    /// A host at end `index` of flow `number`.
    pub(super) fn new(dice: &mut Dice, now: Instant, number: u64, index: usize) -> Self {
        Self {
            writes: Content::new(number, index),
            expects: Content::new(number, 1 - index),
            plan: dice.size(),
            sent: 0,
            taken: 0,
            finished: false,
            reset: false,
            told: false,
            arrived: 0,
            read: 0,
            fin: false,
            pace: match dice.below(10) {
                0..6 => Pace::Greedy,
                6..8 => Pace::Slow(1 + dice.below(20_000)),
                _ => Pace::Stalled(now + Duration::from_millis(dice.below(8_000))),
            },
            silent: index == 1 && dice.one_in(8),
        }
    }

    /// A host that writes `plan` bytes, ends, and takes all that comes.
    pub(super) fn greedy(
        dice: &mut Dice,
        now: Instant,
        (number, index): (u64, usize),
        plan: u64,
    ) -> Self {
        Self {
            plan,
            pace: Pace::Greedy,
            silent: false,
            ..Self::new(dice, now, number, index)
        }
    }

    /// First bytes, at most `most`, which cross with OPEN.
    pub(super) fn first_bytes(&mut self, most: u64) -> Bytes {
        let first = self.plan.min(most);
        (self.sent, self.taken) = (first, first);
        self.writes.piece(0, first).into()
    }

    /// The host writes what it can; true if the relay has something to hear.
    pub(super) fn write(&mut self, dice: &mut Dice, phase: Phase) -> bool {
        let hurry = phase > Phase::Lively;
        if self.finished || self.reset || (!hurry && dice.one_in(3)) {
            return false;
        }
        let piece = if hurry { ROOM } else { 1 + dice.below(PIECE) };
        let room = ROOM - (self.sent - self.taken);
        self.sent += piece.min(room).min(self.plan - self.sent);
        let ends = (hurry || dice.one_in(4)) && (!self.silent || phase == Phase::Last);
        self.finished = self.sent == self.plan && ends;
        self.finished || self.sent > self.taken
    }

    /// The host reads what it wants; true if that makes room.
    pub(super) fn read(&mut self, now: Instant, phase: Phase) -> bool {
        let hurry = phase > Phase::Lively;
        let most = match self.pace {
            Pace::Slow(bytes) if !hurry => bytes,
            Pace::Stalled(until) if !hurry && until > now => 0,
            _ => u64::MAX,
        };
        let size = most.min(self.arrived - self.read);
        self.read += size;
        size > 0
    }

    /// The host resets the connection.
    pub(super) fn reset(&mut self) {
        self.reset = true;
    }

    pub(super) fn has_reset(&self) -> bool {
        self.reset
    }

    pub(super) fn has_finished(&self) -> bool {
        self.finished
    }

    /// Whether FIN has come from the relay.
    pub(super) fn heard_fin(&self) -> bool {
        self.fin
    }

    /// Bytes that have come from the relay.
    pub(super) fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Bytes written so far.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Bytes that the relay has read.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }
}

impl LanSocket for Host {
    fn poll_read(&mut self, _: &mut Context<'_>, room: usize) -> Poll<io::Result<Bytes>> {
        let size = (self.sent - self.taken).min(room as u64);
        if size > 0 {
            let bytes = self.writes.piece(self.taken, size);
            self.taken += size;
            return Poll::Ready(Ok(bytes.into()));
        }
        match (self.reset, self.finished) {
            (true, _) if !std::mem::replace(&mut self.told, true) => {
                Poll::Ready(Err(ErrorKind::ConnectionReset.into()))
            }
            // As Linux has it: the error was told to whoever wrote.
            (true, _) | (_, true) => Poll::Ready(Ok(Bytes::new())),
            _ => Poll::Pending,
        }
    }

    fn poll_write(
        &mut self,
        _: &mut Context<'_>,
        chunks: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        assert!(!self.fin, "bytes after FIN");
        if self.reset {
            let told = std::mem::replace(&mut self.told, true);
            let kind = if told {
                ErrorKind::BrokenPipe
            } else {
                ErrorKind::ConnectionReset
            };
            return Poll::Ready(Err(kind.into()));
        }
        let mut room = ROOM - (self.arrived - self.read);
        let mut taken = 0;
        for chunk in chunks {
            let size = room.min(chunk.len() as u64);
            let wanted = self.expects.piece(self.arrived, size);
            let same = chunk[..wanted.len()] == wanted;
            assert!(same, "other bytes at {}: {self:?}", self.arrived);
            self.arrived += size;
            room -= size;
            taken += wanted.len();
        }
        match taken {
            0 => Poll::Pending,
            _ => Poll::Ready(Ok(taken)),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        if self.reset {
            return Err(ErrorKind::NotConnected.into());
        }
        self.fin = true;
        Ok(())
    }

    fn poll_hangup(&mut self, _: &mut Context<'_>) -> Poll<io::Error> {
        // Who has been told of the error is not told again.
        match self.reset && !self.told {
            true => Poll::Ready(ErrorKind::ConnectionReset.into()),
            false => Poll::Pending,
        }
    }
}

/// Bytes that one host writes; no two hosts or places are alike.
#[derive(Debug)]
struct Content {
    key: u64,
}

impl Content {
    fn new(number: u64, index: usize) -> Self {
        Self {
            key: number * 2 + index as u64,
        }
    }

    /// `size` bytes from `offset` on.
    #[expect(clippy::cast_possible_truncation, reason = "bytes")]
    fn piece(&self, offset: u64, size: u64) -> Vec<u8> {
        let byte = |at: u64| {
            let place = at % PERIOD;
            (place ^ (place >> 8) ^ (at / PERIOD) ^ self.key.wrapping_mul(0x9e37)) as u8
        };
        (offset..offset + size).map(byte).collect()
    }
}

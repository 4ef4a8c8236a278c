//! One line: its connection, its stream, and what it says about itself.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use quinn_proto::{
    Connection, ConnectionError, ConnectionHandle, Dir, Event, StreamEvent, StreamId, VarInt,
};
use zeroize::{Zeroize as _, Zeroizing};

use super::LineNotice;
use crate::engine::identity::{self, PublicKey};
use crate::text::printable;

/// Longest word, bytes.
pub const MAX_LINE_WORD: usize = 512;

/// Words that wait at a client; one whose peer takes none for so long has no use for more.
const MOST_WAITING: usize = 64;

/// Bytes of a word's length.
const LENGTH: usize = 2;

/// Reason for which one end closes a line, as it crosses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineCode {
    /// The end stops.
    Stopped,
    /// The client has taken the PEP from its list.
    Revoked,
    /// The peer breaks the protocol.
    Violation,
    /// The client has connected again.
    Replaced,
    /// The PEP does not list the client any more.
    Delisted,
}

impl LineCode {
    const ALL: [Self; 5] = [
        Self::Stopped,
        Self::Revoked,
        Self::Violation,
        Self::Replaced,
        Self::Delisted,
    ];

    fn of(number: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }
}

/// End of a line that this side has not closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineEnd {
    /// The peer has closed it, for this reason.
    Closed(LineCode),
    /// The peer has another key than the one that was asked for.
    WrongPeer,
    /// The peer does not know this side's key.
    NotListed,
    /// The peer broke the protocol.
    Fault(String),
    /// Nothing was heard, or a stranger ended the handshake.
    Lost(String),
}

/// Phase of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Handshake,
    Up(PublicKey),
    Over,
}

/// One line.
pub(super) struct Line {
    pub(super) handle: ConnectionHandle,
    pub(super) quic: Connection,
    phase: Phase,
    stream: Option<StreamId>,
    /// Words that wait for room (client).
    waiting: VecDeque<Bytes>,
    /// Beginning of a word (PEP).
    begun: Zeroizing<Vec<u8>>,
}

impl Line {
    pub(super) fn new(handle: ConnectionHandle, quic: Connection) -> Self {
        Self {
            handle,
            quic,
            phase: Phase::Handshake,
            stream: None,
            waiting: VecDeque::new(),
            // A vector that grew would leave its old bytes behind.
            begun: Zeroizing::new(Vec::with_capacity(LENGTH + MAX_LINE_WORD)),
        }
    }

    /// Key of the peer, while the line is up.
    pub(super) fn peer(&self) -> Option<PublicKey> {
        match self.phase {
            Phase::Up(key) => Some(key),
            Phase::Handshake | Phase::Over => None,
        }
    }

    /// Queues a word.
    pub(super) fn push(&mut self, word: &[u8]) {
        if word.len() > MAX_LINE_WORD || self.waiting.len() >= MOST_WAITING {
            debug_assert!(false, "{} bytes, {} wait", word.len(), self.waiting.len());
            return;
        }
        let length = word.len() as u16;
        let mut bytes = Zeroizing::new(Vec::with_capacity(LENGTH + word.len()));
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(word);
        // Wiped once it is acknowledged.
        self.waiting.push_back(Bytes::from_owner(bytes));
    }

    /// Ends the line; nothing more is told of it.
    pub(super) fn close(&mut self, now: Instant, code: LineCode, reason: &str) {
        self.phase = Phase::Over;
        self.waiting.clear();
        let code = VarInt::from_u32(code as u32);
        self.quic
            .close(now, code, Bytes::copy_from_slice(reason.as_bytes()));
    }

    /// Takes what quinn says, and says what it means.
    pub(super) fn follow(&mut self, now: Instant) -> Vec<LineNotice> {
        let mut notices = Vec::new();
        while let Some(event) = self.quic.poll() {
            match event {
                Event::ConnectionLost { reason } => {
                    // Of strangers, whom a PEP has not let in, nothing is told.
                    let stranger = self.phase == Phase::Handshake && self.quic.side().is_server();
                    if self.phase != Phase::Over && !stranger {
                        notices.push(LineNotice::Down(self.explain(&reason)));
                    }
                    self.phase = Phase::Over;
                }
                Event::Stream(StreamEvent::Opened { .. } | StreamEvent::Readable { .. }) => {
                    self.note_up(&mut notices);
                    self.read(now, &mut notices);
                }
                _ => {}
            }
        }
        self.note_up(&mut notices);
        self.write();
        notices
    }

    /// A client of TLS 1.3 is done before the PEP has seen its key: HANDSHAKE_DONE says that it is welcome.
    fn note_up(&mut self, notices: &mut Vec<LineNotice>) {
        if self.phase != Phase::Handshake || self.quic.is_handshaking() {
            return;
        }
        let client = self.quic.side().is_client();
        if client && self.quic.stats().frame_rx.handshake_done == 0 {
            return;
        }
        if let Some(key) = identity::peer_key(&self.quic) {
            self.phase = Phase::Up(key);
            notices.push(LineNotice::Up(key));
        }
    }

    /// Hands as many words to quinn as it takes.
    fn write(&mut self) {
        if self.peer().is_none() || self.waiting.is_empty() {
            return;
        }
        if self.stream.is_none() {
            self.stream = self.quic.streams().open(Dir::Uni);
        }
        let Some(stream) = self.stream else { return };
        while let Some(word) = self.waiting.front_mut() {
            let written = self
                .quic
                .send_stream(stream)
                .write_chunks(std::slice::from_mut(word));
            match written {
                Ok(_) if word.is_empty() => drop(self.waiting.pop_front()),
                Ok(_) => {}
                // quinn says when there is room.
                Err(_) => return,
            }
        }
    }

    /// Reads what has come on the stream; a peer that breaks the rules loses the line.
    fn read(&mut self, now: Instant, notices: &mut Vec<LineNotice>) {
        if self.stream.is_none() {
            self.stream = self.quic.streams().accept(Dir::Uni);
        }
        let Some(stream) = self.stream.filter(|_| self.phase != Phase::Over) else {
            return;
        };
        if let Err(fault) = self.take(stream, notices) {
            self.close(now, LineCode::Violation, &fault);
            notices.push(LineNotice::Down(LineEnd::Fault(fault)));
        }
    }

    fn take(&mut self, stream: StreamId, notices: &mut Vec<LineNotice>) -> Result<(), String> {
        let mut stream = self.quic.recv_stream(stream);
        let Ok(mut chunks) = stream.read(true) else {
            return Ok(());
        };
        let mut result = Ok(());
        while result.is_ok() {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    let words = split(&mut self.begun, &chunk.bytes);
                    result = words.map(|words| {
                        notices.extend(words.into_iter().map(LineNotice::Word));
                    });
                    if let Ok(mut own) = chunk.bytes.try_into_mut() {
                        own.zeroize();
                    }
                }
                Ok(None) => result = Err("the stream of words has ended".to_owned()),
                Err(quinn_proto::ReadError::Blocked) => break,
                Err(quinn_proto::ReadError::Reset(_)) => {
                    result = Err("the stream of words was reset".to_owned());
                }
            }
        }
        let _ = chunks.finalize();
        result
    }

    fn explain(&self, reason: &ConnectionError) -> LineEnd {
        if identity::is_wrong_server(reason) {
            return LineEnd::WrongPeer;
        }
        // A stranger may have ended a handshake in which nobody has proven anything.
        let proven = identity::peer_key(&self.quic).is_some();
        match reason {
            _ if proven && identity::is_unknown_client(reason) => LineEnd::NotListed,
            ConnectionError::ApplicationClosed(close) if proven => {
                let code = LineCode::of(close.error_code.into_inner());
                code.map_or_else(|| LineEnd::Lost(printable(reason)), LineEnd::Closed)
            }
            _ => LineEnd::Lost(printable(reason)),
        }
    }
}

/// Words that `bytes` complete; what remains is kept in `begun`.
fn split(
    begun: &mut Zeroizing<Vec<u8>>,
    mut bytes: &[u8],
) -> Result<Vec<Zeroizing<Vec<u8>>>, String> {
    let mut words = Vec::new();
    loop {
        let whole = match begun.first_chunk::<LENGTH>() {
            None => LENGTH,
            Some(length) => match usize::from(u16::from_be_bytes(*length)) {
                length @ 1..=MAX_LINE_WORD => LENGTH + length,
                length => return Err(format!("a word of {length} bytes")),
            },
        };
        let (taken, rest) = bytes.split_at(bytes.len().min(whole - begun.len()));
        begun.extend_from_slice(taken);
        bytes = rest;
        if begun.len() < whole {
            return Ok(words);
        }
        if whole > LENGTH {
            words.push(Zeroizing::new(begun[LENGTH..].to_vec()));
            begun.zeroize();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_whole_however_the_stream_is_cut() {
        let stream = [&[0, 3][..], b"abc", &[0, 1], b"d", &[2, 0], &[7; 512]].concat();
        for cut in 1..stream.len() {
            let mut begun = Zeroizing::new(Vec::with_capacity(LENGTH + MAX_LINE_WORD));
            let pieces = stream.chunks(cut);
            let words: Vec<_> = pieces
                .flat_map(|piece| split(&mut begun, piece).unwrap())
                .collect();
            assert_eq!(words.len(), 3, "cut at {cut}");
            assert_eq!((&words[0][..], &words[1][..]), (&b"abc"[..], &b"d"[..]));
            assert!(begun.is_empty() && words[2].len() == 512);
            assert_eq!(begun.capacity(), LENGTH + MAX_LINE_WORD, "it did not grow");
        }
        for length in [[0, 0], [2, 1]] {
            let mut begun = Zeroizing::default();
            assert!(split(&mut begun, &length).is_err());
        }
    }
}

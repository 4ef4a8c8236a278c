//! Records: what an outer connection carries after the preface (`PROTOCOL.md` §18.2).
//!
//! Record `k` of a direction is sealed with the counter `k`, which is not sent: a record that is
//! lost, inserted, repeated, moved or altered fails its tag, and nothing after it is believed.

use std::fmt;

use bytes::{BufMut as _, BytesMut};

use super::{PREFACE, Preface};
use crate::counted_key::{CountedKey, TAG};

/// Longest body of a record, bytes.
pub const MAX_BODY: usize = 1400;

/// Longest record, bytes.
pub const MAX_RECORD: usize = LENGTH + TYPE + MAX_BODY + TAG;

/// Records of one direction.
pub const MAX_RECORDS: u64 = 1 << 30;

/// Records that DATA leaves for those that end a direction: FIN, DONE, ABORT.
const LAST: u64 = 3;

const LENGTH: usize = 2;
const TYPE: usize = 1;

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Destination of the flow; the client's first.
    Open,
    /// Outcome of the server's connect; the server's first.
    Reply,
    /// Payload.
    Data,
    /// End of the sender's direction.
    Fin,
    /// Everything before the peer's FIN or ABORT has been delivered.
    Done,
    /// The sender's TCP connection was reset.
    Abort,
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::Open,
        Self::Reply,
        Self::Data,
        Self::Fin,
        Self::Done,
        Self::Abort,
    ];

    /// Number on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Says whether a body of so many bytes is one of this kind.
    fn takes(self, length: usize) -> bool {
        match self {
            Self::Open | Self::Reply | Self::Data => (1..=MAX_BODY).contains(&length),
            Self::Fin | Self::Done => length == 0,
            Self::Abort => length == 1,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "OPEN",
            Self::Reply => "REPLY",
            Self::Data => "DATA",
            Self::Fin => "FIN",
            Self::Done => "DONE",
            Self::Abort => "ABORT",
        })
    }
}

/// Fault in the records of a direction. The connection is to be reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// No record is so long, or so short.
    #[error("record {number}: length {length} is not between {} and {}", TYPE + TAG, MAX_RECORD - LENGTH)]
    Length {
        /// The record, counted from 0.
        number: u64,
        /// Length that it names, bytes.
        length: usize,
    },
    /// The tag does not fit.
    #[error("record {0}: its tag does not fit: altered, repeated, moved or cut on the way")]
    Tag(u64),
    /// The peer has sealed a record of a kind that is not known.
    #[error("record {number}: unknown kind {kind}")]
    Kind {
        /// The record, counted from 0.
        number: u64,
        /// Number of the kind.
        kind: u8,
    },
    /// The peer has sealed a body of a length that its kind does not have.
    #[error("record {number}: {kind} with a body of {length} bytes")]
    Body {
        /// The record, counted from 0.
        number: u64,
        /// Kind of the record.
        kind: Kind,
        /// Length of its body, bytes.
        length: usize,
    },
    /// More records than a direction has.
    #[error("more than {MAX_RECORDS} records in one direction")]
    TooMany,
}

/// The direction has no number left for this record: its flow has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_RECORDS} records have been sealed with one key: the flow has to end")]
pub struct Spent;

/// Key of one direction, with the number of the next record.
struct Direction {
    key: CountedKey,
    /// Preface that record 0 is bound to, beside its length.
    preface: Option<[u8; PREFACE]>,
    next: u64,
}

impl Direction {
    fn new(key: &[u8], iv: &[u8], preface: Option<Preface>) -> Self {
        Self {
            key: CountedKey::new(key, iv),
            preface: preface.map(|preface| preface.encode()),
            next: 0,
        }
    }

    /// Bytes that the tag of the next record covers beside its own.
    fn bound(&self, length: [u8; LENGTH]) -> Bound {
        let preface = self.preface.filter(|_| self.next == 0);
        let mut bytes = [0; LENGTH + PREFACE];
        bytes[..LENGTH].copy_from_slice(&length);
        bytes[LENGTH..].copy_from_slice(&preface.unwrap_or_default());
        let used = LENGTH + preface.map_or(0, |preface| preface.len());
        Bound { bytes, used }
    }
}

/// Bytes that a tag covers, and that are not sealed.
struct Bound {
    bytes: [u8; LENGTH + PREFACE],
    used: usize,
}

impl AsRef<[u8]> for Bound {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

/// Sender's half of a direction: makes records.
pub struct Sealer(Direction);

impl Sealer {
    pub(super) fn new(key: &[u8], iv: &[u8], preface: Option<Preface>) -> Self {
        Self(Direction::new(key, iv, preface))
    }

    /// Appends the record of `kind` with this `body` to `out`.
    ///
    /// # Errors
    /// [`Spent`]: no number is left; `out` is as it was.
    ///
    /// # Panics
    /// The body has a length that `kind` does not have.
    pub fn seal(&mut self, kind: Kind, body: &[u8], out: &mut BytesMut) -> Result<(), Spent> {
        assert!(kind.takes(body.len()), "{kind} of {} bytes", body.len());
        let ends = matches!(kind, Kind::Fin | Kind::Done | Kind::Abort);
        let last = if ends {
            MAX_RECORDS
        } else {
            MAX_RECORDS - LAST
        };
        if self.0.next >= last {
            return Err(Spent);
        }
        let length = ((TYPE + body.len() + TAG) as u16).to_be_bytes();
        out.reserve(LENGTH + TYPE + body.len() + TAG);
        out.put_slice(&length);
        let start = out.len();
        out.put_u8(kind.code());
        out.put_slice(body);
        let bound = self.0.bound(length);
        let sealed = &mut out[start..];
        let tag = self.0.key.seal(self.0.next, bound.as_ref(), sealed);
        out.put_slice(&tag);
        self.0.next += 1;
        Ok(())
    }

    /// Leaves so many numbers.
    #[cfg(test)]
    pub(super) fn spend_all_but(&mut self, left: u64) {
        self.0.next = MAX_RECORDS - left;
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealer(at record {}, …)", self.0.next)
    }
}

/// Record that was opened.
#[derive(Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Kind of the record.
    pub kind: Kind,
    /// Body, of a length that the kind has.
    pub body: &'a [u8],
}

/// Receiver's half of a direction: opens records, however the bytes are cut. Holds less than one
/// record.
pub struct Opener {
    direction: Direction,
    /// Beginning of a record, length included.
    begun: Vec<u8>,
    /// Kind and body of the last record.
    opened: Vec<u8>,
    fault: Option<RecordError>,
}

impl Opener {
    pub(super) fn new(key: &[u8], iv: &[u8], preface: Option<Preface>) -> Self {
        Self {
            direction: Direction::new(key, iv, preface),
            begun: Vec::new(),
            opened: Vec::new(),
            fault: None,
        }
    }

    /// Takes the bytes of one record from `input`, and opens it. `None`: took all, and needs more.
    ///
    /// # Errors
    /// [`RecordError`], of this record or of one before: nothing is opened after a fault.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Record<'_>>, RecordError> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        match self.advance(input) {
            Ok(Some(kind)) => Ok(Some(Record {
                kind,
                body: &self.opened[TYPE..],
            })),
            Ok(None) => Ok(None),
            Err(fault) => {
                self.fault = Some(fault);
                (self.begun, self.opened) = (Vec::new(), Vec::new());
                Err(fault)
            }
        }
    }

    /// Opens the record that `input` completes.
    fn advance(&mut self, input: &mut &[u8]) -> Result<Option<Kind>, RecordError> {
        if self.begun.is_empty() && input.is_empty() {
            return Ok(None);
        }
        let number = self.direction.next;
        if number >= MAX_RECORDS {
            return Err(RecordError::TooMany);
        }
        // A record that has come in one piece is opened where it lies.
        if self.begun.is_empty()
            && let Some(whole) = size(input, number)?
            && let Some((record, rest)) = input.split_at_checked(whole)
        {
            *input = rest;
            return self.open(record).map(Some);
        }
        let mut begun = std::mem::take(&mut self.begun);
        fill(&mut begun, LENGTH, input);
        if let Some(whole) = size(&begun, number)? {
            fill(&mut begun, whole, input);
            if begun.len() == whole {
                let kind = self.open(&begun)?;
                begun.clear();
                self.begun = begun;
                return Ok(Some(kind));
            }
        }
        self.begun = begun;
        Ok(None)
    }

    /// Opens a whole record into `opened`.
    fn open(&mut self, record: &[u8]) -> Result<Kind, RecordError> {
        let number = self.direction.next;
        let (length, sealed) = record.split_at(LENGTH);
        let (text, tag) = sealed.split_at(sealed.len() - TAG);
        let bound = self.direction.bound([length[0], length[1]]);
        self.opened.resize(text.len(), 0);
        let (key, opened) = (&self.direction.key, &mut self.opened);
        if !key.open(number, bound.as_ref(), text, tag, opened) {
            return Err(RecordError::Tag(number));
        }
        self.direction.next += 1;
        let (code, length) = (self.opened[0], text.len() - TYPE);
        let known = Kind::ALL.into_iter().find(|kind| kind.code() == code);
        let kind = known.ok_or(RecordError::Kind { number, kind: code })?;
        if !kind.takes(length) {
            return Err(RecordError::Body {
                number,
                kind,
                length,
            });
        }
        Ok(kind)
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opener(at record {}, …)", self.direction.next)
    }
}

/// Moves bytes of `input` to `begun`, until that has `target`.
fn fill(begun: &mut Vec<u8>, target: usize, input: &mut &[u8]) {
    let part = target.saturating_sub(begun.len()).min(input.len());
    let (own, rest) = input.split_at(part);
    begun.extend_from_slice(own);
    *input = rest;
}

/// Size of the record that begins with `bytes`, its length included. `None`: need more bytes.
fn size(bytes: &[u8], number: u64) -> Result<Option<usize>, RecordError> {
    let &[high, low, ..] = bytes else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if !(TYPE + TAG..=MAX_RECORD - LENGTH).contains(&length) {
        return Err(RecordError::Length { number, length });
    }
    Ok(Some(LENGTH + length))
}

#[cfg(test)]
mod tests;

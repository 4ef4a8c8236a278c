//! Frames of a hub connection, and links under K2 (`PROTOCOL.md` §21.3).
//!
//! Read from a peer that may be hostile: a length is refused before its bytes have come.

use bentpipe_proto::tunnel::varint;
use bytes::{Buf as _, Bytes, BytesMut};
use zeroize::Zeroizing;

use super::{Chunk, LinkKey, MAX_CHUNK, ObjectId, SessionId};
use crate::counted_key::{CountedKey, TAG};

/// Longest body of a frame, bytes: OBJECT with the longest chunk; LINKS are no longer.
pub const MAX_HUB_FRAME: usize = SessionId::LENGTH + 8 + MAX_CHUNK + TAG;

/// Longest body of what a hub sends, bytes: FETCH.
pub const MAX_ASKED: usize = SessionId::LENGTH + 4;

/// Longest path of a link, bytes.
const MAX_URL: usize = 2048;

const KEYREQ: u8 = 1;
const KEY: u8 = 2;
const LINKS: u8 = 3;
const FETCH: u8 = 4;
const OBJECT: u8 = 5;
const REFUSED: u8 = 6;

/// One frame of a hub connection.
#[derive(Clone, Debug)]
pub enum HubFrame {
    /// Hub: wants K2 of a session.
    KeyRequest(SessionId),
    /// Origin: K2.
    Key(SessionId, LinkKey),
    /// Origin: links of a page, under K2.
    Links {
        /// Session of the page.
        session: SessionId,
        /// Number of the record.
        counter: u32,
        /// The links and their tag.
        sealed: Bytes,
    },
    /// Hub: wants an object.
    Fetch(SessionId, ObjectId),
    /// Origin: a chunk of an object, under K1obj.
    Object {
        /// Session of the object's page.
        session: SessionId,
        /// The object.
        id: ObjectId,
        /// Place of the chunk.
        chunk: Chunk,
        /// The text and its tag.
        sealed: Bytes,
    },
    /// Origin: there is no such object, or without one, no such session for this hub.
    Refused(SessionId, Option<ObjectId>),
}

/// Fault in a peer's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HubFrameError {
    /// A body is longer than may be.
    #[error("a frame of {0} bytes")]
    TooLong(usize),
    /// No frame has this type.
    #[error("a frame of unknown type {0}")]
    Type(u8),
    /// A body does not hold what its type says.
    #[error("a frame of type {0} with another body")]
    Body(u8),
}

impl HubFrame {
    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let number = |id: &Option<ObjectId>| id.map_or(0, ObjectId::get);
        let (kind, session, numbers, rest): (u8, _, [Option<u32>; 2], &[u8]) = match self {
            Self::KeyRequest(session) => (KEYREQ, session, [None, None], &[]),
            Self::Key(session, key) => (KEY, session, [None, None], key.bytes()),
            Self::Links {
                session,
                counter,
                sealed,
            } => (LINKS, session, [Some(*counter), None], sealed),
            Self::Fetch(session, id) => (FETCH, session, [Some(id.get()), None], &[]),
            Self::Object {
                session,
                id,
                chunk,
                sealed,
            } => (OBJECT, session, [Some(id.get()), Some(chunk.get())], sealed),
            Self::Refused(session, id) => (REFUSED, session, [Some(number(id)), None], &[]),
        };
        let numbers: Vec<u8> = numbers
            .into_iter()
            .flatten()
            .flat_map(u32::to_be_bytes)
            .collect();
        let length = SessionId::LENGTH + numbers.len() + rest.len();
        let length = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
        out.extend_from_slice(&[kind, length[1], length[2], length[3]]);
        out.extend_from_slice(session.bytes());
        out.extend_from_slice(&numbers);
        out.extend_from_slice(rest);
    }

    /// Session that the frame is about.
    #[must_use]
    pub fn session(&self) -> SessionId {
        match self {
            Self::KeyRequest(session)
            | Self::Key(session, _)
            | Self::Links { session, .. }
            | Self::Fetch(session, _)
            | Self::Object { session, .. }
            | Self::Refused(session, _) => *session,
        }
    }

    fn decode(kind: u8, mut body: Bytes) -> Result<Self, HubFrameError> {
        let fault = HubFrameError::Body(kind);
        if !(KEYREQ..=REFUSED).contains(&kind) {
            return Err(HubFrameError::Type(kind));
        }
        let name = body.split_first_chunk::<{ SessionId::LENGTH }>();
        let session = SessionId::new(*name.ok_or(fault)?.0);
        body.advance(SessionId::LENGTH);
        let mut number = || body.try_get_u32().map_err(|_| fault);
        let frame = match kind {
            KEYREQ => Self::KeyRequest(session),
            KEY => {
                let key = Zeroizing::new(<[u8; 32]>::try_from(&body[..]).map_err(|_| fault)?);
                return Ok(Self::Key(session, LinkKey::new(key)));
            }
            LINKS => {
                let counter = number()?;
                let sealed = body;
                return Ok(Self::Links {
                    session,
                    counter,
                    sealed,
                });
            }
            FETCH => Self::Fetch(session, ObjectId::from_number(number()?).ok_or(fault)?),
            OBJECT => {
                let id = ObjectId::from_number(number()?).ok_or(fault)?;
                let chunk = Chunk::from_number(number()?);
                let sealed = body;
                return Ok(Self::Object {
                    session,
                    id,
                    chunk,
                    sealed,
                });
            }
            _ => match number()? {
                0 => Self::Refused(session, None),
                id => Self::Refused(session, Some(ObjectId::from_number(id).ok_or(fault)?)),
            },
        };
        body.is_empty().then_some(frame).ok_or(fault)
    }
}

/// Frames out of a connection's bytes, however they are cut.
#[derive(Debug)]
pub struct HubFrameReader {
    unread: BytesMut,
    longest: usize,
}

impl HubFrameReader {
    /// Reader of bodies of `longest` bytes at most: [`MAX_HUB_FRAME`], or [`MAX_ASKED`] from a hub.
    #[must_use]
    pub fn new(longest: usize) -> Self {
        Self {
            unread: BytesMut::new(),
            longest,
        }
    }

    /// Adds what the connection has brought.
    pub fn push(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
    }

    /// Next frame that is whole; `None`: more bytes are needed.
    ///
    /// # Errors
    /// [`HubFrameError`]: the connection cannot be read any further.
    pub fn read(&mut self) -> Result<Option<HubFrame>, HubFrameError> {
        let Some(&[kind, a, b, c]) = self.unread.first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([0, a, b, c]);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > self.longest {
            return Err(HubFrameError::TooLong(length));
        }
        if self.unread.len() < 4 + length {
            return Ok(None);
        }
        self.unread.advance(4);
        HubFrame::decode(kind, self.unread.split_to(length).freeze()).map(Some)
    }
}

/// Link of a page, as the hub learns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Name of the object.
    pub id: ObjectId,
    /// Order in which objects are fetched, the lowest first.
    pub priority: u8,
    /// Path and query.
    pub target: String,
}

/// Writer of a session's links.
pub struct LinkSealer {
    key: CountedKey,
    session: SessionId,
    next: u32,
}

/// Data that a record of links is bound to.
fn bound(session: SessionId, counter: u32) -> [u8; SessionId::LENGTH + 4] {
    let mut bound = [0; SessionId::LENGTH + 4];
    bound[..SessionId::LENGTH].copy_from_slice(session.bytes());
    bound[SessionId::LENGTH..].copy_from_slice(&counter.to_be_bytes());
    bound
}

impl LinkSealer {
    /// Writer that has written nothing.
    #[must_use]
    pub fn new(key: &LinkKey, session: SessionId) -> Self {
        Self {
            key: key.links(),
            session,
            next: 0,
        }
    }

    /// Seals links, in as few records as they fit in. `None`: the session has used up its numbers.
    pub fn seal(&mut self, links: &[Link]) -> Option<Vec<HubFrame>> {
        let mut records: Vec<(u8, Vec<u8>)> = Vec::new();
        for link in links {
            let mut text = link.id.get().to_be_bytes().to_vec();
            text.push(link.priority);
            varint::encode(link.target.len() as u64, &mut text);
            text.extend_from_slice(link.target.as_bytes());
            match records.last_mut() {
                Some((count, record))
                    if record.len() + text.len() < MAX_CHUNK && *count < ObjectId::LAST =>
                {
                    *count += 1;
                    record.extend_from_slice(&text);
                }
                _ => records.push((1, text)),
            }
        }
        let records = records.into_iter();
        records
            .map(|(count, text)| self.record(count, &text))
            .collect()
    }

    fn record(&mut self, count: u8, links: &[u8]) -> Option<HubFrame> {
        let counter = self.next;
        self.next = counter.checked_add(1)?;
        let mut sealed = Vec::with_capacity(1 + links.len() + TAG);
        sealed.push(count);
        sealed.extend_from_slice(links);
        let bound = bound(self.session, counter);
        let tag = self.key.seal(counter.into(), &bound, &mut sealed);
        sealed.extend_from_slice(&tag);
        Some(HubFrame::Links {
            session: self.session,
            counter,
            sealed: sealed.into(),
        })
    }
}

/// Reason why a record of links is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkFault {
    /// A record is missing, or came twice.
    #[error("record {0} of links, not the next")]
    Order(u32),
    /// The tag does not fit.
    #[error("links whose tag does not fit: altered or forged")]
    Tag,
    /// The text is not what links are.
    #[error("links that cannot be read")]
    Text,
}

/// Reader of a session's links.
pub struct LinkOpener {
    key: CountedKey,
    session: SessionId,
    next: u32,
}

impl LinkOpener {
    /// Reader that has read nothing.
    #[must_use]
    pub fn new(key: &LinkKey, session: SessionId) -> Self {
        Self {
            key: key.links(),
            session,
            next: 0,
        }
    }

    /// Opens the next record.
    ///
    /// # Errors
    /// [`LinkFault`]: the record is dropped, and no other one in its place is taken.
    pub fn open(&mut self, counter: u32, sealed: &[u8]) -> Result<Vec<Link>, LinkFault> {
        if counter != self.next || counter == u32::MAX {
            return Err(LinkFault::Order(counter));
        }
        let (text, tag) = sealed.split_last_chunk::<TAG>().ok_or(LinkFault::Tag)?;
        let mut opened = vec![0; text.len()];
        let bound = bound(self.session, counter);
        let fits = self
            .key
            .open(counter.into(), &bound, text, tag, &mut opened);
        if !fits {
            return Err(LinkFault::Tag);
        }
        self.next = counter + 1;
        links(&opened).ok_or(LinkFault::Text)
    }
}

fn links(text: &[u8]) -> Option<Vec<Link>> {
    let (&count, mut rest) = text.split_first()?;
    let mut links = Vec::with_capacity(usize::from(count.min(ObjectId::LAST)));
    for _ in 0..count {
        let (id, after) = rest.split_first_chunk::<4>()?;
        let (&priority, after) = after.split_first()?;
        let (length, used) = varint::decode(after)?;
        let length = usize::try_from(length).ok().filter(|it| *it <= MAX_URL)?;
        let (target, after) = after[used..].split_at_checked(length)?;
        links.push(Link {
            id: ObjectId::from_number(u32::from_be_bytes(*id))?,
            priority,
            target: std::str::from_utf8(target).ok()?.to_owned(),
        });
        rest = after;
    }
    rest.is_empty().then_some(links)
}

//! Objects in chunks under K1obj (`PROTOCOL.md` §21.4): whoever carries them can drop or delay
//! them, and neither read, alter, swap nor cut them unnoticed.

use std::collections::HashMap;
use std::rc::Rc;

use aws_lc_rs::digest;
use bytes::Bytes;

use super::{HubFrame, Secrets, SessionId};
use crate::counted_key::{CountedKey, TAG};

/// Longest text of a chunk, bytes.
pub const MAX_CHUNK: usize = 16 * 1024;

/// Name of an object: number of its page's request on the K1 connection, and its own on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(u32);

impl ObjectId {
    /// Highest number of a page's object.
    pub const LAST: u8 = 64;

    /// Requests of a K1 connection whose pages can have objects.
    pub const PAGES: u32 = 1 << 24;

    /// Object `index` of `page`, counted from 1. `None`: there is no such name.
    #[must_use]
    pub fn new(page: u32, index: u64) -> Option<Self> {
        let index = u8::try_from(index).ok()?;
        let fits = page < Self::PAGES && (1..=Self::LAST).contains(&index);
        fits.then_some(Self(page << 8 | u32::from(index)))
    }

    /// Name with this number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::new(number >> 8, u64::from(number & 0xff))
    }

    /// Number of the name.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }

    /// Number of the page's request.
    #[must_use]
    pub fn page(self) -> u32 {
        self.0 >> 8
    }

    /// Number on the page, from 1.
    #[must_use]
    pub fn index(self) -> u64 {
        u64::from(self.0 & 0xff)
    }
}

/// Place of a chunk in its object; the top bit says that it is the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Chunk(u32);

impl Chunk {
    const LAST: u32 = 1 << 31;

    /// Chunk with this number and bit.
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }

    const fn new(index: u32, last: bool) -> Self {
        Self(if last { index | Self::LAST } else { index })
    }

    /// Number with its bit.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// True for the first one, which is a head.
    #[must_use]
    pub const fn is_first(self) -> bool {
        self.index() == 0
    }

    /// True for the last one.
    #[must_use]
    pub const fn is_last(self) -> bool {
        self.0 & Self::LAST != 0
    }

    const fn index(self) -> u32 {
        self.0 & !Self::LAST
    }
}

/// Number of a chunk's message, of which its nonce is made.
fn number(id: ObjectId, chunk: Chunk) -> u64 {
    u64::from(id.get()) << 32 | u64::from(chunk.get())
}

/// Data that a chunk is bound to: its session and its object's URL.
fn bound(session: SessionId, url: &str) -> [u8; 48] {
    let mut bound = [0; 48];
    bound[..16].copy_from_slice(session.bytes());
    bound[16..].copy_from_slice(digest::digest(&digest::SHA256, url.as_bytes()).as_ref());
    bound
}

/// Writer of a session's objects: each that was announced is sealed once.
pub struct ObjectSealer {
    key: Rc<CountedKey>,
    session: SessionId,
    announced: HashMap<ObjectId, [u8; 48]>,
    last: u32,
}

impl ObjectSealer {
    /// Writer of the session with these `secrets`, which has written nothing.
    #[must_use]
    pub fn new(secrets: &Secrets) -> Self {
        Self {
            key: Rc::new(secrets.objects()),
            session: secrets.session(),
            announced: HashMap::new(),
            last: 0,
        }
    }

    /// An object with this `url` may be asked for. False: `id` is not above those before, and
    /// nothing is sealed under it.
    pub fn announce(&mut self, id: ObjectId, url: &str) -> bool {
        let fresh = id.get() > self.last;
        if fresh {
            self.last = id.get();
            self.announced.insert(id, bound(self.session, url));
        }
        fresh
    }

    /// Objects of pages before `page` are not sealed any more.
    pub fn forget_before(&mut self, page: u32) {
        self.announced.retain(|id, _| id.page() >= page);
    }

    /// Begins an object. `None`: it was not announced, or was begun before.
    pub fn begin(&mut self, id: ObjectId) -> Option<ObjectWriter> {
        let bound = self.announced.remove(&id)?;
        Some(ObjectWriter {
            key: self.key.clone(),
            session: self.session,
            bound,
            id,
            next: Some(0),
        })
    }
}

/// Writer of one object.
pub struct ObjectWriter {
    key: Rc<CountedKey>,
    session: SessionId,
    bound: [u8; 48],
    id: ObjectId,
    next: Option<u32>,
}

impl ObjectWriter {
    /// Seals the next chunk. `None`: the last one was sealed, or `text` is longer than
    /// [`MAX_CHUNK`].
    pub fn seal(&mut self, text: &[u8], last: bool) -> Option<HubFrame> {
        let index = self.next.filter(|_| text.len() <= MAX_CHUNK)?;
        let chunk = Chunk::new(index, last);
        self.next = (!last && index + 1 < Chunk::LAST).then_some(index + 1);
        let mut sealed = Vec::with_capacity(text.len() + TAG);
        sealed.extend_from_slice(text);
        let tag = self
            .key
            .seal(number(self.id, chunk), &self.bound, &mut sealed);
        sealed.extend_from_slice(&tag);
        Some(HubFrame::Object {
            session: self.session,
            id: self.id,
            chunk,
            sealed: sealed.into(),
        })
    }
}

/// Reason why a chunk, and its object with it, is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectFault {
    /// Nobody waits for the object: it was not promised, is whole, or was dropped.
    #[error("object {0} is not waited for")]
    Unexpected(u32),
    /// A chunk is missing, or came twice.
    #[error("chunk {1} of object {0}, not the next")]
    Order(u32, u32),
    /// A chunk that is shorter or longer than any.
    #[error("chunk of {0} bytes")]
    Length(usize),
    /// The tag does not fit: altered, of another object, or of another session.
    #[error("object {0}: a tag does not fit: altered, swapped or forged")]
    Tag(u32),
}

/// Reader of a session's objects.
pub struct ObjectOpener {
    key: CountedKey,
    session: SessionId,
    expected: HashMap<ObjectId, ([u8; 48], u32)>,
    last: u32,
}

impl ObjectOpener {
    /// Reader of the session with these `secrets`.
    #[must_use]
    pub fn new(secrets: &Secrets) -> Self {
        Self {
            key: secrets.objects(),
            session: secrets.session(),
            expected: HashMap::new(),
            last: 0,
        }
    }

    /// The object with this `url` is promised. False: `id` is not above those before.
    pub fn expect(&mut self, id: ObjectId, url: &str) -> bool {
        let fresh = id.get() > self.last;
        if fresh {
            self.last = id.get();
            self.expected.insert(id, (bound(self.session, url), 0));
        }
        fresh
    }

    /// An object does not come.
    pub fn drop_object(&mut self, id: ObjectId) {
        self.expected.remove(&id);
    }

    /// True while an object is promised that has not come whole.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.expected.is_empty()
    }

    /// Objects of pages before `page` are not waited for any more.
    pub fn forget_before(&mut self, page: u32) {
        self.expected.retain(|id, _| id.page() >= page);
    }

    /// Opens the next chunk of an object. After a fault nothing more of the object is opened.
    ///
    /// # Errors
    /// [`ObjectFault`]: the object is dropped.
    pub fn open(
        &mut self,
        id: ObjectId,
        chunk: Chunk,
        sealed: &[u8],
    ) -> Result<Bytes, ObjectFault> {
        let unexpected = ObjectFault::Unexpected(id.get());
        let (bound, next) = self.expected.remove(&id).ok_or(unexpected)?;
        if chunk.index() != next {
            return Err(ObjectFault::Order(id.get(), chunk.index()));
        }
        let length = ObjectFault::Length(sealed.len());
        let (text, tag) = sealed.split_last_chunk::<TAG>().ok_or(length)?;
        if text.len() > MAX_CHUNK {
            return Err(length);
        }
        let mut opened = vec![0; text.len()];
        let fits = self
            .key
            .open(number(id, chunk), &bound, text, tag, &mut opened);
        if !fits {
            return Err(ObjectFault::Tag(id.get()));
        }
        if !chunk.is_last() {
            self.expected.insert(id, (bound, next + 1));
        }
        Ok(opened.into())
    }
}

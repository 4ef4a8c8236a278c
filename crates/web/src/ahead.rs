//! What a server fetches ahead of one page, and promises before the bytes in which its links stand.

use std::collections::{HashMap, HashSet, VecDeque};

use bytes::Bytes;

use crate::links::{Link, Links};
use crate::page_bytes::{ObjectBytes, PageBytes};
use crate::unpack::{ContentOver, Unpacker};
use crate::{Frame, Request, Response};

/// Most objects of a page; a page with more has the browser ask for the rest.
pub const MAX_OBJECTS: u64 = 64;

/// Longest object with its head, bytes; a longer one is a download, which a browser had better begin itself.
pub const MAX_OBJECT: u64 = 4 << 20;

/// Most bytes of a page's objects together: what is not used of them has cost the link that much.
pub const MAX_PAGE: u64 = 16 << 20;

/// Objects fetched at one time, as many as browsers do.
pub const MAX_AT_ONCE: usize = 6;

/// Objects that block what a browser shows, fetched beside [`MAX_AT_ONCE`] others: they do not wait for large images to end.
pub const MAX_BLOCKING: usize = 2;

/// Content of a page in which links are looked for, bytes.
const MAX_HTML: usize = 4 << 20;

/// Objects of one page.
pub struct Ahead {
    page: Request,
    /// `None` once no more of the page is read.
    unpacker: Option<Unpacker>,
    links: Links,
    /// Content that may still be read.
    html_left: usize,
    /// Paths that were found, the page's own among them, whether a request can hold them or not.
    seen: HashSet<String>,
    /// Paths of objects promised and not begun; requests for them would each be as long as the page's.
    waiting: VecDeque<(u64, String)>,
    /// Paths of promised objects that are not begun and block what a browser shows; these come first.
    blocking: VecDeque<(u64, String)>,
    /// Objects that were promised and block what a browser shows.
    blocks: HashSet<u64>,
    /// Objects begun.
    running: HashMap<u64, ObjectBytes>,
    last: u64,
    bytes: PageBytes,
}

impl Ahead {
    /// Of the page that answers `request` with `response`; `None`: nothing is fetched ahead of it.
    #[must_use]
    pub fn of(request: &Request, response: &Response) -> Option<Self> {
        if !request.is_page() || !response.is_readable_page() {
            return None;
        }
        Some(Self {
            unpacker: Some(Unpacker::of(&response.codings())?),
            links: Links::of(request),
            page: request.clone(),
            html_left: MAX_HTML,
            seen: HashSet::from([request.target().to_owned()]),
            waiting: VecDeque::new(),
            blocking: VecDeque::new(),
            blocks: HashSet::new(),
            running: HashMap::new(),
            last: 0,
            bytes: PageBytes::default(),
        })
    }

    /// Takes in `payload` of the page, for [`Self::read`].
    pub fn push(&mut self, payload: &[u8]) {
        if let Some(unpacker) = &mut self.unpacker {
            unpacker.push(payload);
        }
    }

    /// True if something of the page has come that was not read.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.unpacker.as_ref().is_some_and(Unpacker::has_more)
    }

    /// Reads the next piece of what has come of the page, which is less than a millisecond's work: whoever calls bounds how many follow each
    /// other. The promises are to be sent before the payload in which their links stand.
    pub fn read(&mut self) -> Vec<Frame> {
        let piece = match self.unpacker.as_mut().map(Unpacker::read) {
            Some(Ok(Some(piece))) => piece,
            Some(Ok(None)) => return Vec::new(),
            Some(Err(ContentOver)) | None => {
                self.stop_reading();
                return Vec::new();
            }
        };
        let html = &piece[..piece.len().min(self.html_left)];
        self.html_left -= html.len();
        let found = self.links.read(html);
        let promises = found.into_iter().filter_map(|link| self.promise(link));
        let promises = promises.collect();
        if self.html_left == 0 || self.is_full() {
            self.stop_reading();
        }
        promises
    }

    /// Memory that the decoder of the page's content holds, bytes; none once no more of it is read.
    #[must_use]
    pub fn held(&self) -> usize {
        self.unpacker.as_ref().map_or(0, Unpacker::held)
    }

    /// Looks for no more links in the page; what has been promised stays promised.
    pub fn stop_reading(&mut self) {
        self.unpacker = None;
    }

    /// True if no further object will be promised.
    fn is_full(&self) -> bool {
        self.seen.len() as u64 > MAX_OBJECTS
    }

    fn promise(&mut self, Link { target, blocking }: Link) -> Option<Frame> {
        if self.is_full() {
            return None;
        }
        if !self.seen.insert(target.clone()) {
            // A preload may stand before what the browser waits for.
            if blocking {
                self.hasten(&target);
            }
            return None;
        }
        self.page.of_object(&target)?;
        self.last += 1;
        let promise = Frame::Promise {
            id: self.last,
            target: Bytes::copy_from_slice(target.as_bytes()),
        };
        if blocking {
            self.blocks.insert(self.last);
            self.blocking.push_back((self.last, target));
        } else {
            self.waiting.push_back((self.last, target));
        }
        Some(promise)
    }

    /// Moves an object that waits to those that block what a browser shows.
    fn hasten(&mut self, target: &str) {
        let at = self.waiting.iter().position(|(_, one)| one == target);
        if let Some(waiting) = at.and_then(|at| self.waiting.remove(at)) {
            self.blocks.insert(waiting.0);
            self.blocking.push_back(waiting);
        }
    }

    /// Numbers of promised objects that block: a browser shows nothing of what stands behind their links before it has them.
    pub fn blocks(&self) -> impl Iterator<Item = u64> {
        self.blocks.iter().copied()
    }

    /// Object to fetch now, unless as many as may be are being fetched.
    pub fn begin(&mut self) -> Option<(u64, Request)> {
        let beside = match self.blocking.is_empty() {
            true => 0,
            false => MAX_BLOCKING,
        };
        if self.running.len() >= MAX_AT_ONCE + beside {
            return None;
        }
        let next = self.blocking.pop_front();
        let (id, target) = next.or_else(|| self.waiting.pop_front())?;
        let request = self.page.of_object(&target)?;
        self.running.insert(id, self.bytes.object());
        Some((id, request))
    }

    /// Sets `bytes` aside for an object; false as of [`ObjectBytes::reserve`].
    pub fn reserve(&mut self, id: u64, bytes: u64) -> bool {
        let object = self.running.get_mut(&id);
        object.is_some_and(|object| object.reserve(bytes))
    }

    /// Counts `bytes` more of an object; false as of [`ObjectBytes::spend`].
    pub fn spend(&mut self, id: u64, bytes: usize) -> bool {
        let object = self.running.get_mut(&id);
        object.is_some_and(|object| object.spend(bytes as u64))
    }

    /// An object has ended, or has failed: bytes that were set aside for it and did not come are for others.
    pub fn end(&mut self, id: u64) {
        self.running.remove(&id);
    }

    /// True once nothing is to be fetched for now.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.blocking.is_empty() && self.running.is_empty()
    }
}

#[cfg(test)]
mod tests;

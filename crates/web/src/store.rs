//! Objects that have come to a client before its browser has asked: promised, coming or whole; each is handed out once.

mod object;

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::{Closing, Frame, MAX_OBJECT, MAX_OBJECTS, MAX_PAGE, Request};
use object::Object;

/// Time for which an object that is whole waits to be asked for.
pub const LIFE: Duration = Duration::from_secs(60);

/// Time for which an object may have been whole beyond what `max-age` of a request permits, as that of a reload does: what comes with the
/// reload itself comes before its requests.
const AHEAD: Duration = Duration::from_secs(10);

/// Most bytes of memory for all objects, of all pages: four pages at their limit.
pub const MAX_STORED: u64 = 64 << 20;

/// Name of a page's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageId(u64);

/// Answer to a browser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Head and body as they came.
    pub bytes: Bytes,
    /// The origin ended its connection with it.
    pub close: bool,
}

/// What is known of an object that a browser asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Nothing, or nothing that answers this request.
    Absent,
    /// An object that is on its way: ask again when something has changed.
    Promised {
        /// Moment at which something of it has come last, or, before its first byte, something of its page's objects.
        moved: Instant,
        /// Moment at which something of it has come last, or, before its first byte, at which an object of its page was promised, has begun or ended.
        turned: Instant,
        /// Moment at which an object has begun whose head does not say how long it is: it may go on for ever. And the number of objects of
        /// its page that come at once, of which it is one.
        endless: Option<(Instant, u32)>,
    },
    /// An answer, given once.
    Ready(Answer),
}

/// Objects, counted since the client started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Pages of which an object was promised.
    pub pages: u64,
    /// Promised.
    pub promised: u64,
    /// Answered a browser.
    pub used: u64,
    /// Bytes of those that answered a browser.
    pub used_bytes: u64,
    /// Bytes that came and answered nobody.
    pub wasted_bytes: u64,
    /// Not used, because the request was another than was assumed, or the answer is for nobody else.
    pub unequal: u64,
    /// Not asked for within [`LIFE`], or before a newer one was promised.
    pub expired: u64,
    /// Promises that were not kept.
    pub failed: u64,
}

/// Place of an object: whose it is, its host, of which an address may have several, and its path.
type Place<K> = (K, String, String);

fn place_of<K: Clone>(owner: &K, request: &Request) -> Place<K> {
    let (host, target) = (request.host(), request.target());
    (owner.clone(), host.to_owned(), target.to_owned())
}

struct Page<K> {
    owner: K,
    request: Request,
    /// Promised and not ended.
    coming: HashMap<u64, Place<K>>,
    last: u64,
    bytes: u64,
    /// Moment at which something of its objects has come last.
    moved: Option<Instant>,
    /// Moment at which one of them was promised, has begun or ended last.
    turned: Option<Instant>,
}

/// Store of a client. `K` tells apart who may be given what: the LAN host and the address that it connected to.
pub struct Store<K> {
    pages: HashMap<PageId, Page<K>>,
    objects: HashMap<Place<K>, Object>,
    next: u64,
    bytes: u64,
    figures: Figures,
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self {
            pages: HashMap::new(),
            objects: HashMap::new(),
            next: 0,
            bytes: 0,
            figures: Figures::default(),
        }
    }
}

impl<K: Clone + Eq + Hash> Store<K> {
    /// A page is asked for by `request` for `owner`.
    pub fn begin(&mut self, owner: K, request: Request) -> PageId {
        let id = PageId(self.next);
        self.next += 1;
        let page = Page {
            owner,
            request,
            coming: HashMap::new(),
            last: 0,
            bytes: 0,
            moved: None,
            turned: None,
        };
        self.pages.insert(id, page);
        id
    }

    /// A frame about an object of `page` has come. False: its sender breaks the protocol.
    pub fn on_frame(&mut self, now: Instant, page: PageId, frame: Frame) -> bool {
        self.sweep(now);
        if !matches!(frame, Frame::Data { .. })
            && let Some(page) = self.pages.get_mut(&page)
        {
            page.turned = Some(now);
        }
        match frame {
            Frame::Promise { id, target } => self.promise(now, page, id, &target),
            Frame::Head { id, bytes } | Frame::Data { id, bytes } => {
                self.add(now, page, id, &bytes);
                true
            }
            Frame::End { id, close } => {
                match close {
                    // An object of which bytes may be missing is none.
                    Closing::Cut => self.fail(page, id),
                    Closing::Open | Closing::InOrder => {
                        self.complete(now, page, id, close.closes());
                    }
                }
                true
            }
            Frame::Failed { id } => {
                self.fail(page, id);
                true
            }
            Frame::Request(_) | Frame::Tls(_) | Frame::Relay | Frame::Hub(_) | Frame::Ready(_) => {
                false
            }
        }
    }

    /// The stream of `page` has ended: what has not come whole does not come any more.
    pub fn end(&mut self, page: PageId) {
        let Some(ended) = self.pages.remove(&page) else {
            return;
        };
        for place in ended.coming.into_values() {
            self.drop_failed(&place);
        }
    }

    /// Number of objects of `page` that come at once, at least one.
    fn abreast(&self, page: &Page<K>) -> u32 {
        let coming = page
            .coming
            .values()
            .filter_map(|place| self.objects.get(place));
        let begun = coming.filter(|object| object.began.is_some()).count();
        u32::try_from(begun).unwrap_or(u32::MAX).max(1)
    }

    /// What is known of the object that `request` of `owner` asks for.
    pub fn ask(&mut self, now: Instant, owner: &K, request: &Request) -> Asked {
        self.sweep(now);
        let place = place_of(owner, request);
        let Some(object) = self.objects.get(&place) else {
            return Asked::Absent;
        };
        let alike = request.takes_stored() && object.assumed.agrees(request, "cookie");
        let answers = alike && object.is_young(now, request) && object.answers(request);
        if answers && object.whole.is_none() {
            let page = self.pages.get(&object.page);
            let endless = object.began.filter(|_| !object.says_its_length());
            let abreast = page.map_or(1, |page| self.abreast(page));
            let page = page.filter(|_| object.bytes.is_empty());
            let own = Some(object.moved);
            let (moved, turned) = page.map_or((own, own), |page| (page.moved, page.turned));
            return Asked::Promised {
                moved: moved.unwrap_or(object.moved),
                turned: turned.unwrap_or(object.moved),
                endless: endless.map(|began| (began, abreast)),
            };
        }
        let Some(object) = self.drop_object(&place) else {
            return Asked::Absent;
        };
        match object.whole.filter(|_| answers) {
            Some((_, close)) => {
                self.figures.used += 1;
                self.figures.used_bytes += object.size();
                let bytes = object.bytes.into();
                Asked::Ready(Answer { bytes, close })
            }
            None => {
                self.figures.unequal += 1;
                self.figures.wasted_bytes += object.size();
                Asked::Absent
            }
        }
    }

    /// Gives up the object that `request` of `owner` has waited for: the browser is about to be given a newer answer, and none behind that may
    /// be older.
    pub fn give_up(&mut self, owner: &K, request: &Request) {
        let place = place_of(owner, request);
        if self.objects.contains_key(&place) {
            self.drop_failed(&place);
        }
    }

    /// Drops what nobody has asked for in time.
    pub fn sweep(&mut self, now: Instant) {
        let stale = |object: &Object| {
            let whole = object.whole.map(|(since, _)| since);
            whole.is_some_and(|since| now.saturating_duration_since(since) >= LIFE)
        };
        let (figures, bytes) = (&mut self.figures, &mut self.bytes);
        self.objects.retain(|_, object| {
            let stale = stale(object);
            if stale {
                figures.expired += 1;
                figures.wasted_bytes += object.size();
                *bytes -= object.held();
            }
            !stale
        });
    }

    /// Figures so far.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.figures
    }

    /// Bytes of memory that objects and the requests assumed for them take.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn promise(&mut self, now: Instant, page_id: PageId, id: u64, target: &[u8]) -> bool {
        let Some(page) = self.pages.get_mut(&page_id) else {
            return true;
        };
        let target = std::str::from_utf8(target).ok();
        let assumed = target.and_then(|target| page.request.of_object(target));
        let Some(assumed) = assumed.filter(|_| id > page.last && id <= MAX_OBJECTS) else {
            return false;
        };
        self.figures.pages += u64::from(page.last == 0);
        page.last = id;
        page.moved = Some(now);
        self.figures.promised += 1;
        let place = place_of(&page.owner, &assumed);
        if !self.make_way(&place) {
            return true;
        }
        let object = Object {
            page: page_id,
            id,
            assumed,
            bytes: Vec::new(),
            moved: now,
            began: None,
            whole: None,
        };
        if self.bytes + object.held() > MAX_STORED {
            self.figures.failed += 1;
            return true;
        }
        self.bytes += object.held();
        self.objects.insert(place.clone(), object);
        if let Some(page) = self.pages.get_mut(&page_id) {
            page.coming.insert(id, place);
        }
        true
    }

    /// Drops the object at a place for one that is newer; false: it is coming, for a page that is loaded at the same time, and answers both.
    fn make_way(&mut self, place: &Place<K>) -> bool {
        let there = self.objects.get(place);
        if there.is_some_and(|object| object.whole.is_none()) {
            return false;
        }
        if let Some(older) = self.drop_object(place) {
            self.figures.expired += 1;
            self.figures.wasted_bytes += older.size();
        }
        true
    }

    fn add(&mut self, now: Instant, page_id: PageId, id: u64, bytes: &[u8]) {
        let length = bytes.len() as u64;
        let Some(page) = self.pages.get_mut(&page_id) else {
            // Its browser has left, and what was under way still comes.
            self.figures.wasted_bytes += length;
            return;
        };
        let Some(place) = page.coming.get(&id) else {
            // Nobody is given it: another page promised it first, or it has failed.
            self.figures.wasted_bytes += length;
            return;
        };
        page.bytes += length;
        page.moved = Some(now);
        let object = self
            .objects
            .get_mut(place)
            .filter(|object| object.page == page_id && object.id == id);
        let Some(object) = object else {
            return;
        };
        object.moved = now;
        object.began.get_or_insert(now);
        self.bytes -= object.held();
        object.bytes.extend_from_slice(bytes);
        self.bytes += object.held();
        let fits =
            object.size() <= MAX_OBJECT && page.bytes <= MAX_PAGE && self.bytes <= MAX_STORED;
        if !fits {
            self.fail(page_id, id);
        }
    }

    fn complete(&mut self, now: Instant, page_id: PageId, id: u64, close: bool) {
        let page = self.pages.get_mut(&page_id);
        let Some(place) = page.and_then(|page| page.coming.remove(&id)) else {
            return;
        };
        if let Some(object) = self.objects.get_mut(&place)
            && (object.page, object.id) == (page_id, id)
        {
            object.whole = Some((now, close));
            // While it came it had room for more.
            self.bytes -= object.held();
            object.bytes.shrink_to_fit();
            self.bytes += object.held();
        }
    }

    fn fail(&mut self, page_id: PageId, id: u64) {
        let page = self.pages.get_mut(&page_id);
        if let Some(place) = page.and_then(|page| page.coming.remove(&id)) {
            self.drop_failed(&place);
        }
    }

    /// Drops an object that does not come whole.
    fn drop_failed(&mut self, place: &Place<K>) {
        self.figures.failed += 1;
        if let Some(object) = self.drop_object(place) {
            self.figures.wasted_bytes += object.size();
        }
    }

    fn drop_object(&mut self, place: &Place<K>) -> Option<Object> {
        let object = self.objects.remove(place)?;
        self.bytes -= object.held();
        if let Some(page) = self.pages.get_mut(&object.page) {
            page.coming.remove(&object.id);
        }
        Some(object)
    }
}

#[cfg(test)]
mod tests;

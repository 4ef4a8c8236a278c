//! What a server fetches ahead of one page, and promises before the bytes in which its links stand.

use std::collections::{HashMap, HashSet, VecDeque};

use bytes::Bytes;

use crate::links::Links;
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

    fn promise(&mut self, target: String) -> Option<Frame> {
        if self.is_full() || !self.seen.insert(target.clone()) {
            return None;
        }
        self.page.of_object(&target)?;
        self.last += 1;
        let promise = Frame::Promise {
            id: self.last,
            target: Bytes::copy_from_slice(target.as_bytes()),
        };
        self.waiting.push_back((self.last, target));
        Some(promise)
    }

    /// Object to fetch now, unless as many as may be are being fetched.
    pub fn begin(&mut self) -> Option<(u64, Request)> {
        if self.running.len() >= MAX_AT_ONCE {
            return None;
        }
        let (id, target) = self.waiting.pop_front()?;
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
        self.waiting.is_empty() && self.running.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unpack::PIECE;
    use crate::{Scheme, Verdict, judge};
    use std::io::Write as _;

    fn ahead(request: &str, response: &str) -> Option<Ahead> {
        let head = format!("GET / HTTP/1.1\r\nHost: h\r\n{request}\r\n");
        let Verdict::Get(request, _) = judge(Scheme::Http, head.as_bytes()) else {
            panic!("a request");
        };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{response}\r\n");
        let (response, _) = Response::parse(head.as_bytes()).unwrap().unwrap();
        Ahead::of(&request, &response)
    }

    /// Promises for all of `payload`.
    fn read(page: &mut Ahead, payload: &[u8]) -> Vec<Frame> {
        page.push(payload);
        let pieces = std::iter::from_fn(|| page.has_more().then(|| page.read()));
        pieces.flatten().collect()
    }

    fn pack(bytes: &[u8]) -> Vec<u8> {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    }

    const HTML: &str = "Accept: text/html\r\n";

    fn targets(frames: &[Frame]) -> Vec<String> {
        let target = |frame: &Frame| match frame {
            Frame::Promise { target, .. } => String::from_utf8(target.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        };
        frames.iter().map(target).collect()
    }

    #[test]
    fn pages_alone_are_read() {
        assert!(ahead(HTML, "").is_some());
        assert!(ahead("", "").is_none(), "no page was asked for");
        assert!(ahead(HTML, "Set-Cookie: a=1\r\n").is_none());
        for (codings, readable) in [
            ("gzip", true),
            ("br", true),
            ("zstd", true),
            ("compress", false),
            ("br, gzip", false),
        ] {
            let page = ahead(HTML, &format!("Content-Encoding: {codings}\r\n"));
            assert_eq!(page.is_some(), readable, "{codings}");
        }
    }

    #[test]
    fn each_object_is_promised_once_and_fetched_in_order() {
        let mut page = ahead(HTML, "").unwrap();
        assert_eq!(targets(&read(&mut page, b"<img src=a><img sr")), ["/a"]);
        assert_eq!(
            targets(&read(&mut page, b"c=b><img src=/a><img src=/>")),
            ["/b"]
        );
        assert_eq!(page.begin().unwrap().1.target(), "/a");
        assert_eq!(page.begin().unwrap().1.target(), "/b");
        assert!(page.begin().is_none() && !page.is_idle());
        page.end(1);
        page.end(2);
        assert!(page.is_idle());
    }

    #[test]
    fn a_page_that_is_read_no_further_keeps_its_promises() {
        let mut page = ahead(HTML, "").unwrap();
        assert_eq!(targets(&read(&mut page, b"<img src=a>")), ["/a"]);
        page.stop_reading();
        assert!(read(&mut page, b"<img src=b>").is_empty());
        assert_eq!(page.begin().unwrap().1.target(), "/a");
    }

    #[test]
    fn a_page_that_names_ten_thousand_objects_is_bounded() {
        let mut page = ahead(HTML, "").unwrap();
        let html: String = (0..10_000).map(|n| format!("<img src=/{n}>")).collect();
        let promised = html
            .as_bytes()
            .chunks(1000)
            .map(|piece| read(&mut page, piece).len());
        assert_eq!(promised.sum::<usize>() as u64, MAX_OBJECTS);
        let begun = std::iter::from_fn(|| page.begin()).count();
        assert_eq!(begun, MAX_AT_ONCE);
    }

    #[test]
    fn what_few_bytes_stand_for_is_read_in_many_pieces() {
        let packed = pack(&vec![b' '; 1 << 20]);
        assert!(packed.len() < PIECE, "one payload brings all of it");
        let mut page = ahead(HTML, "Content-Encoding: gzip\r\n").unwrap();
        page.push(&packed);
        let mut reads = 0;
        while page.has_more() {
            let left = page.html_left;
            assert!(page.read().is_empty());
            assert!(left - page.html_left <= PIECE, "{left}");
            reads += 1;
        }
        assert_eq!(page.html_left, MAX_HTML - (1 << 20));
        assert!(reads >= (1 << 20) / PIECE, "{reads} pieces");
    }

    #[test]
    fn paths_that_no_request_can_hold_are_looked_at_as_few_times_as_others() {
        let cookie = "x".repeat(crate::MAX_REQUEST - 80);
        let mut page = ahead(&format!("{HTML}Cookie: {cookie}\r\n"), "").unwrap();
        let html: String = (0..10_000).map(|n| format!("<img src=/{n}>")).collect();
        assert!(read(&mut page, html.as_bytes()).is_empty());
        assert_eq!(page.seen.len() as u64, 1 + MAX_OBJECTS);
        assert!(page.unpacker.is_none(), "more of it is read");
    }

    #[test]
    fn bytes_are_bounded_for_each_and_for_all() {
        let mut page = ahead(HTML, "").unwrap();
        read(
            &mut page,
            b"<img src=a><img src=b><img src=c><img src=d><img src=e>",
        );
        let whole = usize::try_from(MAX_OBJECT).unwrap();
        for _ in 0..4 {
            let (id, _) = page.begin().unwrap();
            assert!(page.spend(id, whole));
            assert!(!page.spend(id, 1));
            page.end(id);
        }
        let (id, _) = page.begin().unwrap();
        assert!(!page.spend(id, 1), "the page has had its bytes");
        assert!(!page.spend(99, 0), "nobody asked for it");
    }

    #[test]
    fn what_a_broken_object_has_not_used_is_for_others() {
        let mut page = ahead(HTML, "").unwrap();
        read(
            &mut page,
            b"<img src=a><img src=b><img src=c><img src=d><img src=e>",
        );
        for _ in 0..5 {
            let (id, _) = page.begin().unwrap();
            assert!(page.reserve(id, MAX_OBJECT), "{id}");
            assert!(page.spend(id, 1));
            page.end(id);
        }
    }

    #[test]
    fn objects_that_come_abreast_do_not_take_each_others_bytes() {
        let mut page = ahead(HTML, "").unwrap();
        read(
            &mut page,
            b"<img src=a><img src=b><img src=c><img src=d><img src=e><img src=f>",
        );
        let three = 3 << 20;
        let begun: Vec<_> = std::iter::from_fn(|| page.begin()).collect();
        let have: Vec<_> = begun
            .iter()
            .map(|(id, _)| page.reserve(*id, three))
            .collect();
        assert_eq!(have, [true, true, true, true, true, false]);
        for (id, _) in &begun[..5] {
            assert!((0..3).all(|_| page.spend(*id, 1 << 20)), "{id}");
        }
        // One that has more than it said takes of what is left.
        assert!(page.spend(1, 1 << 20) && !page.spend(2, 1));
        assert!(!page.reserve(6, MAX_OBJECT + 1) && !page.reserve(99, 0));
    }

    #[test]
    fn packed_pages_are_read_while_they_come_and_bombs_are_cut_off() {
        let mut page = ahead(HTML, "Content-Encoding: gzip\r\n").unwrap();
        let packed = pack(b"<p>hello</p><img src=a>");
        let found: Vec<_> = packed
            .chunks(5)
            .flat_map(|piece| read(&mut page, piece))
            .collect();
        assert_eq!(targets(&found), ["/a"]);

        let mut page = ahead(HTML, "Content-Encoding: gzip\r\n").unwrap();
        let mut bomb = vec![b' '; 64 << 20];
        bomb.extend_from_slice(b"<img src=late>");
        assert!(read(&mut page, &pack(&bomb)).is_empty());
        assert!(page.unpacker.is_none());

        let mut page = ahead(HTML, "Content-Encoding: gzip\r\n").unwrap();
        assert!(read(&mut page, b"<img src=a>").is_empty(), "no gzip");
    }
}

//! What a server fetches ahead of one page, and promises before the bytes in which its links stand.

use std::collections::{HashMap, HashSet, VecDeque};

use bytes::Bytes;

use crate::links::Links;
use crate::unpack::Unpacker;
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
    seen: HashSet<String>,
    /// Objects promised and not begun.
    waiting: VecDeque<(u64, Request)>,
    /// Objects begun, and what has come of each.
    running: HashMap<u64, u64>,
    last: u64,
    bytes_left: u64,
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
            bytes_left: MAX_PAGE,
        })
    }

    /// Reads `payload` of the page. The promises are to be sent before it.
    pub fn read(&mut self, payload: &[u8]) -> Vec<Frame> {
        let mut found = Vec::new();
        let (links, left) = (&mut self.links, &mut self.html_left);
        let more = self.unpacker.as_mut().is_some_and(|unpacker| {
            unpacker.read(payload, |html| {
                let html = &html[..html.len().min(*left)];
                *left -= html.len();
                found.extend(links.read(html));
                *left > 0
            })
        });
        if !more {
            self.stop_reading();
        }
        found
            .into_iter()
            .filter_map(|link| self.promise(link))
            .collect()
    }

    /// True while links are looked for in what comes of the page.
    #[must_use]
    pub fn is_reading(&self) -> bool {
        self.unpacker.is_some()
    }

    /// Looks for no more links in the page; what has been promised stays promised.
    pub fn stop_reading(&mut self) {
        self.unpacker = None;
    }

    fn promise(&mut self, target: String) -> Option<Frame> {
        if self.last == MAX_OBJECTS || self.seen.contains(&target) {
            return None;
        }
        let request = self.page.of_object(&target)?;
        self.last += 1;
        self.waiting.push_back((self.last, request));
        let promised = Bytes::copy_from_slice(target.as_bytes());
        self.seen.insert(target);
        Some(Frame::Promise {
            id: self.last,
            target: promised,
        })
    }

    /// Next object that was promised and not begun, for whoever fetches by a measure of its own.
    pub fn promised(&mut self) -> Option<(u64, Request)> {
        self.waiting.pop_front()
    }

    /// Object to fetch now, unless as many as may be are being fetched.
    pub fn begin(&mut self) -> Option<(u64, Request)> {
        if self.running.len() >= MAX_AT_ONCE {
            return None;
        }
        let (id, request) = self.waiting.pop_front()?;
        self.running.insert(id, 0);
        Some((id, request))
    }

    /// Counts `bytes` more of an object; false: these are too many, and it has failed.
    pub fn spend(&mut self, id: u64, bytes: usize) -> bool {
        let Some(spent) = self.running.get_mut(&id) else {
            return false;
        };
        let bytes = bytes as u64;
        *spent += bytes;
        if *spent > MAX_OBJECT || bytes > self.bytes_left {
            return false;
        }
        self.bytes_left -= bytes;
        true
    }

    /// An object has ended, or has failed.
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
        assert_eq!(targets(&page.read(b"<img src=a><img sr")), ["/a"]);
        assert_eq!(targets(&page.read(b"c=b><img src=/a><img src=/>")), ["/b"]);
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
        assert_eq!(targets(&page.read(b"<img src=a>")), ["/a"]);
        assert!(page.is_reading());
        page.stop_reading();
        assert!(page.read(b"<img src=b>").is_empty() && !page.is_reading());
        assert_eq!(page.begin().unwrap().1.target(), "/a");
    }

    #[test]
    fn a_page_that_names_ten_thousand_objects_is_bounded() {
        let mut page = ahead(HTML, "").unwrap();
        let html: String = (0..10_000).map(|n| format!("<img src=/{n}>")).collect();
        let promised = html
            .as_bytes()
            .chunks(1000)
            .map(|piece| page.read(piece).len());
        assert_eq!(promised.sum::<usize>() as u64, MAX_OBJECTS);
        let begun = std::iter::from_fn(|| page.begin()).count();
        assert_eq!(begun, MAX_AT_ONCE);
    }

    #[test]
    fn bytes_are_bounded_for_each_and_for_all() {
        let mut page = ahead(HTML, "").unwrap();
        page.read(b"<img src=a><img src=b><img src=c><img src=d><img src=e>");
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
    fn packed_pages_are_read_while_they_come_and_bombs_are_cut_off() {
        let pack = |bytes: &[u8]| {
            let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            packer.write_all(bytes).unwrap();
            packer.finish().unwrap()
        };
        let mut page = ahead(HTML, "Content-Encoding: gzip\r\n").unwrap();
        let packed = pack(b"<p>hello</p><img src=a>");
        let found: Vec<_> = packed
            .chunks(5)
            .flat_map(|piece| page.read(piece))
            .collect();
        assert_eq!(targets(&found), ["/a"]);

        let mut page = ahead(HTML, "Content-Encoding: gzip\r\n").unwrap();
        let mut bomb = vec![b' '; 64 << 20];
        bomb.extend_from_slice(b"<img src=late>");
        assert!(page.read(&pack(&bomb)).is_empty());
        assert!(page.unpacker.is_none());

        let mut page = ahead(HTML, "Content-Encoding: gzip\r\n").unwrap();
        assert!(page.read(b"<img src=a>").is_empty(), "no gzip");
    }
}

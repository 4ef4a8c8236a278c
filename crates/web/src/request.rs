//! Requests of browsers: which of them may be answered ahead, and which one a browser is assumed to make next.

use std::time::Duration;

use bytes::Bytes;

use crate::Scheme;
use crate::fields::Fields;

/// Longest head of a request, bytes; browsers and servers agree on about this much.
pub const MAX_REQUEST: usize = 16 * 1024;

/// Most pieces in which a head may come: each has all of it looked at from its beginning. What comes in more passes unread.
pub const MAX_PIECES: usize = 128;

/// Most fields of a head.
const MAX_FIELDS: usize = 96;

/// Fields with which a request means something to this connection, or to whom it is from: left to the origin alone.
const PRIVATE: [&str; 9] = [
    "authorization",
    "expect",
    "http2-settings",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
];

/// Fields of requests for pages that a browser only guesses to be wanted, and takes alone, and for parts of pages.
const UNSEEN: [&str; 3] = ["sec-purpose", "purpose", "turbo-frame"];

/// Places for pages, of those that `Sec-Fetch-Dest` names.
const PLACES: [&str; 3] = ["document", "iframe", "frame"];

/// Fields that an object's request is assumed to share with that of its page.
const SHARED: [&str; 6] = [
    "user-agent",
    "accept-encoding",
    "accept-language",
    "dnt",
    "sec-gpc",
    "cookie",
];

/// What is to be done with bytes that a browser has sent.
#[derive(Debug)]
pub enum Verdict {
    /// The head has not ended yet.
    Incomplete,
    /// These are not for us: to be relayed as they are, and all that follows.
    Plain,
    /// A request that may be answered ahead, and the bytes of its head.
    Get(Request, usize),
}

/// Head of a GET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    scheme: Scheme,
    head: Bytes,
    target: String,
    host: String,
    fields: Fields,
    close: bool,
}

/// Judges what a browser has sent on a connection for pages of `scheme` so far.
#[must_use]
pub fn judge(scheme: Scheme, bytes: &[u8]) -> Verdict {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut parsed = httparse::Request::new(&mut fields);
    let used = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(used)) if used <= MAX_REQUEST => used,
        Ok(httparse::Status::Partial) if bytes.len() < MAX_REQUEST => {
            return match parsed.method {
                None | Some("GET") => Verdict::Incomplete,
                Some(_) => Verdict::Plain,
            };
        }
        Ok(_) | Err(_) => return Verdict::Plain,
    };
    match Request::of(scheme, &parsed, &bytes[..used]) {
        Some(request) => Verdict::Get(request, used),
        None => Verdict::Plain,
    }
}

impl Request {
    fn of(scheme: Scheme, parsed: &httparse::Request<'_, '_>, head: &[u8]) -> Option<Self> {
        let target = parsed.path.filter(|path| is_target(path.as_bytes()))?;
        if parsed.method != Some("GET") || parsed.version != Some(1) {
            return None;
        }
        let mut request = Self {
            scheme,
            head: Bytes::copy_from_slice(head),
            target: target.to_owned(),
            host: String::new(),
            fields: Fields::of(parsed.headers),
            close: false,
        };
        if PRIVATE.iter().any(|name| request.fields.has(name)) {
            return None;
        }
        for token in request.fields.tokens("connection") {
            match token.as_str() {
                "keep-alive" => {}
                "close" => request.close = true,
                _ => return None,
            }
        }
        request.host = request.named_host()?;
        Some(request)
    }

    /// The one host that the fields name.
    fn named_host(&self) -> Option<String> {
        let mut hosts = self.fields.values("host");
        let host = std::str::from_utf8(hosts.next()?).ok()?.trim();
        let alone = hosts.next().is_none();
        (alone && is_authority(host)).then(|| host.to_ascii_lowercase())
    }

    /// Request that the browser is assumed to make for an object of this page: what does not depend on the kind of object is
    /// as with the page.
    #[must_use]
    pub fn of_object(&self, target: &str) -> Option<Self> {
        let mut head = format!("GET {target} HTTP/1.1\r\nhost: {}\r\n", self.host).into_bytes();
        for name in SHARED {
            for value in self.fields.values(name) {
                put(&mut head, name, value);
            }
        }
        put(&mut head, "accept", b"*/*");
        let referer = format!("{}://{}{}", self.scheme.name(), self.host, self.target);
        put(&mut head, "referer", referer.as_bytes());
        put(&mut head, "sec-purpose", b"prefetch");
        head.extend_from_slice(b"\r\n");
        match judge(self.scheme, &head) {
            Verdict::Get(request, _) => Some(request),
            Verdict::Incomplete | Verdict::Plain => None,
        }
    }

    /// True if the request is for the host of this name, on the scheme's own port.
    #[must_use]
    pub fn is_for(&self, name: &str) -> bool {
        self.scheme.host_of(&self.host) == name
    }

    /// Scheme of the page or object.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Head as it came.
    #[must_use]
    pub fn head(&self) -> &Bytes {
        &self.head
    }

    /// Bytes of memory that the request takes.
    pub(crate) fn held(&self) -> usize {
        self.head.len() + self.target.capacity() + self.host.capacity() + self.fields.held()
    }

    /// Path and query.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Host that the request names, and its port if it has one, in lower case.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// True if the browser wants its connection to end with the response.
    #[must_use]
    pub fn closes(&self) -> bool {
        self.close
    }

    /// True for a page that is loaded afresh by somebody who has nothing against bytes that come ahead.
    #[must_use]
    pub fn is_page(&self) -> bool {
        let wants_html = self
            .fields
            .values("accept")
            .any(|value| contains(value, b"text/html"));
        wants_html && self.is_for_a_page() && self.takes_older() && !self.fields.has("save-data")
    }

    /// True unless the request says that its answer is none that somebody looks at as a page.
    fn is_for_a_page(&self) -> bool {
        let places = self.fields.tokens("sec-fetch-dest");
        // Applications of Android say their names there in requests for pages.
        let scripts = self.fields.tokens("x-requested-with");
        places.iter().all(|place| PLACES.contains(&place.as_str()))
            && !scripts.iter().any(|program| program == "xmlhttprequest")
            && !UNSEEN.iter().any(|name| self.fields.has(name))
    }

    /// True if the answer may be one that the browser did not ask for itself.
    #[must_use]
    pub fn takes_stored(&self) -> bool {
        self.takes_older() && !self.is_of_another_site()
    }

    /// True if the answer may be older than the request. A page whose request does not take such an answer has objects whose requests do not
    /// take one either.
    fn takes_older(&self) -> bool {
        let fresh = self.fields.has("pragma")
            || self
                .fields
                .tokens("cache-control")
                .iter()
                .any(|token| token == "no-cache" || token == "no-store");
        !fresh && !self.is_partial()
    }

    /// True if a page of another site makes the request, or a script that asks whether it may: an origin may answer the assumed request, which
    /// names no site, in another way, and without `Vary`.
    fn is_of_another_site(&self) -> bool {
        let site = self.fields.tokens("sec-fetch-site");
        let own = site
            .iter()
            .all(|site| site == "same-origin" || site == "none");
        // Chromium names the origin of module scripts, fonts and whatever has `crossorigin` also at the page's own host.
        let origin = format!("{}://{}", self.scheme.name(), self.host);
        let mut origins = self.fields.values("origin");
        !own || origins.any(|one| !one.eq_ignore_ascii_case(origin.as_bytes()))
    }

    /// Age up to which an answer is taken, if the request names one.
    #[must_use]
    pub fn max_age(&self) -> Option<Duration> {
        let tokens = self.fields.tokens("cache-control");
        let age = tokens
            .iter()
            .find_map(|token| token.strip_prefix("max-age="))?;
        // What is no number permits nothing (RFC 9111 section 4.2.1).
        Some(Duration::from_secs(
            age.trim_matches('"').parse().unwrap_or(0),
        ))
    }

    /// True if `other` has the same values of `field`, in the same order.
    #[must_use]
    pub fn agrees(&self, other: &Self, field: &str) -> bool {
        self.fields.values(field).eq(other.fields.values(field))
    }

    /// The browser has a part of it, or an older version.
    fn is_partial(&self) -> bool {
        let conditional = |name: &str| name.starts_with("if-") || name == "range";
        self.fields.names().any(conditional)
    }
}

fn put(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    head.extend_from_slice(name.as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}

fn contains(value: &[u8], part: &[u8]) -> bool {
    value
        .windows(part.len())
        .any(|piece| piece.eq_ignore_ascii_case(part))
}

/// A path with what a browser may send in one, and no other form of a target.
pub(crate) fn is_target(target: &[u8]) -> bool {
    target.first() == Some(&b'/') && target.iter().all(u8::is_ascii_graphic)
}

fn is_authority(host: &str) -> bool {
    let fits = |c: u8| c.is_ascii_alphanumeric() || b"-._:[]".contains(&c);
    !host.is_empty() && host.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(fields: &str) -> Verdict {
        let head = format!("GET /a?b HTTP/1.1\r\nHost: Example.org\r\n{fields}\r\n");
        judge(Scheme::Http, head.as_bytes())
    }

    fn request(fields: &str) -> Request {
        match get(fields) {
            Verdict::Get(request, _) => request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn plain_gets_alone_are_answered_ahead() {
        assert_eq!(request("").host(), "example.org");
        assert_eq!(request("").target(), "/a?b");
        assert!(request("Connection: close\r\n").closes());
        for field in [
            "Authorization: Basic YTpi",
            "Upgrade: websocket",
            "Connection: keep-alive, Upgrade",
            "Content-Length: 3",
            "Transfer-Encoding: chunked",
            "Expect: 100-continue",
            "Host: other",
        ] {
            assert!(
                matches!(get(&format!("{field}\r\n")), Verdict::Plain),
                "{field}"
            );
        }
        for bytes in [
            "POST / HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTT",
            "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.0\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
            "SSH-2.0-OpenSSH_9.2\r\n",
            "\x16\x03\x01",
        ] {
            assert!(
                matches!(judge(Scheme::Http, bytes.as_bytes()), Verdict::Plain),
                "{bytes}"
            );
        }
        for bytes in ["", "GE", "GET / HTTP/1.1\r\nHost: a\r\n"] {
            let verdict = judge(Scheme::Http, bytes.as_bytes());
            assert!(matches!(verdict, Verdict::Incomplete), "{bytes}");
        }
        let endless = format!(
            "GET / HTTP/1.1\r\nHost: a\r\nA: {}",
            "a".repeat(MAX_REQUEST)
        );
        assert!(matches!(
            judge(Scheme::Http, endless.as_bytes()),
            Verdict::Plain
        ));
    }

    #[test]
    fn pages_are_what_is_loaded_afresh() {
        let html = "Accept: text/html,*/*;q=0.8\r\n";
        assert!(request(html).is_page());
        assert!(!request("Accept: */*\r\n").is_page());
        assert!(request(&format!("{html}Cache-Control: max-age=0\r\n")).is_page());
        for field in [
            "Range: bytes=0-1",
            "If-None-Match: a",
            "Save-Data: on",
            "Cache-Control: no-cache",
            "Cache-Control: no-store",
            "Pragma: no-cache",
            "Sec-Purpose: prefetch;prerender",
            "Purpose: prefetch",
            "Turbo-Frame: list",
            "X-Requested-With: XMLHttpRequest",
            "Sec-Fetch-Dest: empty",
            "Sec-Fetch-Dest: image",
        ] {
            assert!(!request(&format!("{html}{field}\r\n")).is_page(), "{field}");
        }
        for field in [
            "X-Requested-With: com.example.mail",
            "Sec-Fetch-Dest: document",
            "Sec-Fetch-Dest: iframe",
        ] {
            assert!(request(&format!("{html}{field}\r\n")).is_page(), "{field}");
        }
        // By a link of another site.
        assert!(request(&format!("{html}Sec-Fetch-Site: cross-site\r\n")).is_page());
    }

    #[test]
    fn an_answer_that_came_ahead_is_for_the_pages_own_site() {
        for field in [
            "X: y",
            "Sec-Fetch-Site: same-origin",
            "Sec-Fetch-Site: none",
            "Sec-Fetch-Site: same-origin\r\nOrigin: http://example.org",
        ] {
            assert!(request(&format!("{field}\r\n")).takes_stored(), "{field}");
        }
        for field in [
            "If-Modified-Since: a",
            "Cache-Control: no-cache",
            "Pragma: no-cache",
            "Origin: http://app.intranet",
            "Origin: null",
            "Sec-Fetch-Site: same-site",
            "Sec-Fetch-Site: Cross-Site",
        ] {
            assert!(!request(&format!("{field}\r\n")).takes_stored(), "{field}");
        }
    }

    #[test]
    fn a_reload_says_how_old_an_answer_may_be() {
        for (field, seconds) in [
            ("", None),
            ("Cache-Control: max-age=0\r\n", Some(0)),
            ("Cache-Control: no-transform, Max-Age=60\r\n", Some(60)),
            ("Cache-Control: max-age=\"5\"\r\n", Some(5)),
            ("Cache-Control: max-age=soon\r\n", Some(0)),
        ] {
            let age = seconds.map(Duration::from_secs);
            assert_eq!(request(field).max_age(), age, "{field}");
        }
    }

    #[test]
    fn an_object_is_asked_for_as_its_page_was() {
        let fields =
            "Cookie: a=1\r\nUser-Agent: x\r\nAccept: text/html\r\nX: y\r\nSec-GPC: 1\r\nDNT: 1\r\n";
        let page = request(fields);
        let object = page.of_object("/i.png").unwrap();
        let text = String::from_utf8(object.head().to_vec()).unwrap();
        assert_eq!(
            text,
            "GET /i.png HTTP/1.1\r\nhost: example.org\r\nuser-agent: x\r\ndnt: 1\r\nsec-gpc: 1\r\ncookie: a=1\r\n\
             accept: */*\r\nreferer: http://example.org/a?b\r\nsec-purpose: prefetch\r\n\r\n"
        );
        let secure = match judge(Scheme::Https, page.head()) {
            Verdict::Get(request, _) => request.of_object("/i.png").unwrap(),
            other => panic!("{other:?}"),
        };
        let referer = b"\r\nreferer: https://example.org/a?b\r\n";
        assert!(contains(secure.head(), referer));
        assert!(page.of_object("/a b").is_none(), "no request can hold it");
        assert!(object.agrees(&page, "cookie"));
        assert!(!object.agrees(&page, "accept"));
        assert!(object.agrees(&page, "accept-language"), "neither has one");
    }
}

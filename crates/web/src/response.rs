//! Heads of responses: where their bodies end (RFC 9112 §6.3), and whether one may be kept for a request not made yet.

use crate::fields::Fields;
use crate::{MAX_OBJECT, Request};

/// Most interim responses before the final one: an origin that sends more has none.
pub const MAX_INTERIM: usize = 32;

/// Longest head of a response, bytes.
pub const MAX_RESPONSE: usize = 64 * 1024;

/// Most fields of a response's head, as many as browsers take.
pub const MAX_RESPONSE_FIELDS: usize = 256;

/// Media types of responses that go on for as long as somebody looks: pictures of a camera, and events.
const ENDLESS: [&str; 2] = ["multipart/x-mixed-replace", "text/event-stream"];

/// Bytes that are no response, or not one whose end is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a response of HTTP/1")]
pub struct Malformed;

/// Body that follows a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// As many bytes as stand here.
    Length(u64),
    /// Chunks (RFC 9112 §7.1).
    Chunked,
    /// All up to the end of the connection.
    UntilClose,
}

/// Head of a response to a GET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    status: u16,
    fields: Fields,
    old: bool,
}

impl Response {
    /// Reads a head from the start of `bytes`, and says how long it is; `None`: it has not ended. Heads are read as browsers read them, for
    /// who sees no end where a browser sees one keeps its next request waiting.
    ///
    /// # Errors
    /// [`Malformed`]: it is none, or too long.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let mut fields = [httparse::EMPTY_HEADER; MAX_RESPONSE_FIELDS];
        let mut parsed = httparse::Response::new(&mut fields);
        let mut reading = httparse::ParserConfig::default();
        reading
            .allow_spaces_after_header_name_in_responses(true)
            .allow_obsolete_multiline_headers_in_responses(true)
            .allow_multiple_spaces_in_response_status_delimiters(true);
        match reading.parse_response(&mut parsed, bytes) {
            Ok(httparse::Status::Complete(used)) if used <= MAX_RESPONSE => {
                let response = Self {
                    status: parsed.code.ok_or(Malformed)?,
                    fields: Fields::of(parsed.headers),
                    old: parsed.version == Some(0),
                };
                Ok(Some((response, used)))
            }
            Ok(httparse::Status::Partial) if bytes.len() < MAX_RESPONSE => Ok(None),
            Ok(_) | Err(_) => Err(Malformed),
        }
    }

    /// True if another head follows this one.
    #[must_use]
    pub fn is_interim(&self) -> bool {
        (100..200).contains(&self.status) && self.status != 101
    }

    /// Body that follows.
    #[must_use]
    pub fn body(&self) -> Body {
        if self.is_interim() || self.status == 204 || self.status == 304 {
            return Body::Length(0);
        }
        let codings = self.fields.tokens("transfer-encoding");
        if self.status == 101 || self.fields.has("upgrade") && self.status < 200 {
            return Body::UntilClose;
        }
        match codings.as_slice() {
            [] => self.length(),
            [one] if one == "chunked" && !self.old => Body::Chunked,
            _ => Body::UntilClose,
        }
    }

    /// Length that a field names, or several that agree, as behind two layers of servers (RFC 9110 §8.6).
    fn length(&self) -> Body {
        let values = self.fields.values("content-length");
        let members = values.flat_map(|value| value.split(|&c| c == b','));
        let mut lengths = members.map(|member| {
            let member = member.trim_ascii();
            let digits = member.iter().all(u8::is_ascii_digit);
            let text = std::str::from_utf8(member).ok().filter(|_| digits)?;
            text.parse().ok()
        });
        match lengths.next() {
            Some(Some(length)) if lengths.all(|other| other == Some(length)) => {
                Body::Length(length)
            }
            _ => Body::UntilClose,
        }
    }

    /// True if the origin ends its connection with this response.
    #[must_use]
    pub fn closes(&self) -> bool {
        let named = |name: &str| {
            self.fields
                .tokens("connection")
                .iter()
                .any(|token| token == name)
        };
        let old = self.old && !named("keep-alive");
        named("close") || old || self.body() == Body::UntilClose || self.has_two_ends()
    }

    /// True if a length stands beside chunks, which hold then (RFC 9112 §6.3); somebody on the way may have believed the length, so that
    /// nothing behind the response is to be trusted.
    fn has_two_ends(&self) -> bool {
        self.fields.has("transfer-encoding") && self.fields.has("content-length")
    }

    /// True if tags of this page can be read, and objects be asked for by the cookies that the browser sent.
    #[must_use]
    pub fn is_readable_page(&self) -> bool {
        self.status == 200 && self.is_of_type("text/html") && !self.fields.has("set-cookie")
    }

    /// True if the content has this media type, whatever its parameters.
    fn is_of_type(&self, kind: &str) -> bool {
        self.fields.value("content-type").is_some_and(|value| {
            let own = value.split(|&c| c == b';').next().unwrap_or_default();
            own.trim_ascii().eq_ignore_ascii_case(kind.as_bytes())
        })
    }

    /// Codings of the content, in the order in which they were applied.
    pub(crate) fn codings(&self) -> Vec<String> {
        self.fields.tokens("content-encoding")
    }

    /// True if the response may answer a request that has not been made yet.
    #[must_use]
    pub fn is_storable(&self) -> bool {
        let long = matches!(self.body(), Body::Length(length) if length > MAX_OBJECT);
        let varies = self.fields.tokens("vary").iter().any(|field| field == "*");
        let endless = ENDLESS.iter().any(|kind| self.is_of_type(kind));
        self.status == 200 && !self.fields.has("set-cookie") && !varies && !long && !endless
    }

    /// True if the response to `assumed` answers `asked` as well.
    #[must_use]
    pub fn answers(&self, assumed: &Request, asked: &Request) -> bool {
        let vary = self.fields.tokens("vary");
        // Some origins pack what they send and do not say that it depends.
        let packed = self.fields.has("content-encoding");
        let fields = vary.iter().map(String::as_str);
        let fields = fields
            .chain(["cookie"])
            .chain(packed.then_some("accept-encoding"));
        let mut fields = fields.map(|field| assumed.agrees(asked, field));
        self.is_storable() && fields.all(|agrees| agrees)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Scheme, Verdict, judge};

    fn response(line: &str, fields: &str) -> Response {
        let head = format!("{line}\r\n{fields}\r\n");
        Response::parse(head.as_bytes()).unwrap().unwrap().0
    }

    #[test]
    fn bodies_end_where_the_head_says() {
        let ok = "HTTP/1.1 200 OK";
        let cases = [
            (ok, "", Body::UntilClose),
            (ok, "Content-Length: 5\r\n", Body::Length(5)),
            (
                ok,
                "Content-Length: 5\r\nContent-Length: 5\r\n",
                Body::Length(5),
            ),
            (ok, "Content-Length: 5, 5\r\n", Body::Length(5)),
            (
                ok,
                "Content-Length: 5\r\nContent-Length: 6\r\n",
                Body::UntilClose,
            ),
            (ok, "Content-Length: 5, 6\r\n", Body::UntilClose),
            (ok, "Content-Length: 5,\r\n", Body::UntilClose),
            (ok, "Content-Length: +5\r\n", Body::UntilClose),
            (ok, "Transfer-Encoding: chunked\r\n", Body::Chunked),
            (ok, "Transfer-Encoding: gzip, chunked\r\n", Body::UntilClose),
            (
                ok,
                "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
                Body::Chunked,
            ),
            // Heads that browsers take, and RFC 9112 does not.
            (ok, "Content-Length : 5\r\n", Body::Length(5)),
            (
                ok,
                "A: b\r\n c\r\nContent-Length:\r\n 5\r\n",
                Body::Length(5),
            ),
            (
                "HTTP/1.1  200  OK",
                "Content-Length: 5\r\n",
                Body::Length(5),
            ),
            (ok, "Transfer-Encoding:\r\n\tchunked\r\n", Body::Chunked),
            (
                "HTTP/1.0 200 OK",
                "Transfer-Encoding: chunked\r\n",
                Body::UntilClose,
            ),
            ("HTTP/1.1 204 No", "", Body::Length(0)),
            ("HTTP/1.1 304 No", "Content-Length: 9\r\n", Body::Length(0)),
            ("HTTP/1.1 103 Hints", "", Body::Length(0)),
            ("HTTP/1.1 101 Switching", "Upgrade: x\r\n", Body::UntilClose),
        ];
        for (line, fields, body) in cases {
            assert_eq!(response(line, fields).body(), body, "{line} {fields}");
        }
        assert!(response("HTTP/1.1 103 Hints", "").is_interim());
        assert!(response(ok, "Connection: close\r\nContent-Length: 1\r\n").closes());
        assert!(!response(ok, "Content-Length: 1\r\n").closes());
        assert!(response("HTTP/1.0 200 OK", "Content-Length: 1\r\n").closes());
        assert!(!response(ok, "Transfer-Encoding: chunked\r\n").closes());
        let two_ends = "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n";
        assert!(response(ok, two_ends).closes());
        let many = "A: b\r\n".repeat(MAX_RESPONSE_FIELDS - 1);
        let many = response(ok, &format!("{many}Content-Length: 5\r\n"));
        assert_eq!(many.body(), Body::Length(5));
        assert_eq!(Response::parse(b"HTTP/1.1 200 OK\r\n"), Ok(None));
        assert_eq!(Response::parse(b"220 ftp\r\n"), Err(Malformed));
    }

    #[test]
    fn an_answer_is_for_those_who_ask_alike() {
        let get = |fields: &str| {
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            match judge(Scheme::Http, head.as_bytes()) {
                Verdict::Get(request, _) => request,
                other => panic!("{other:?}"),
            }
        };
        let ok = "HTTP/1.1 200 OK";
        let length = "Content-Length: 1\r\n";
        let cases = [
            (ok, "", "", "", true),
            (ok, "", "Cookie: a=1\r\n", "Cookie: a=1\r\n", true),
            (ok, "", "Cookie: a=1\r\n", "", false),
            (ok, "", "", "Cookie: a=1\r\n", false),
            (ok, "", "Accept: */*\r\n", "Accept: image/*\r\n", true),
            (
                ok,
                "Vary: Accept\r\n",
                "Accept: */*\r\n",
                "Accept: image/*\r\n",
                false,
            ),
            (
                ok,
                "Vary: Origin, Accept\r\n",
                "Accept: */*\r\n",
                "Accept: */*\r\n",
                true,
            ),
            (
                ok,
                "Content-Encoding: gzip\r\n",
                "Accept-Encoding: gzip\r\n",
                "",
                false,
            ),
            (
                ok,
                "Content-Encoding: gzip\r\n",
                "Accept-Encoding: gzip\r\n",
                "Accept-Encoding: gzip\r\n",
                true,
            ),
            (ok, "", "Accept-Encoding: gzip\r\n", "", true),
            (ok, "Vary: *\r\n", "", "", false),
            (ok, "Set-Cookie: a=1\r\n", "", "", false),
            (
                ok,
                "Content-Type: Multipart/X-Mixed-Replace;boundary=x\r\n",
                "",
                "",
                false,
            ),
            (ok, "Content-Type: text/event-stream\r\n", "", "", false),
            (ok, "Content-Type: multipart/mixed\r\n", "", "", true),
            ("HTTP/1.1 206 Part", "", "", "", false),
            ("HTTP/1.1 302 Found", "", "", "", false),
        ];
        for (line, fields, assumed, asked, answers) in cases {
            let response = response(line, &format!("{length}{fields}"));
            let got = response.answers(&get(assumed), &get(asked));
            assert_eq!(got, answers, "{line} {fields} {assumed} {asked}");
        }
        let long = response(ok, &format!("Content-Length: {}\r\n", MAX_OBJECT + 1));
        assert!(!long.is_storable());
    }
}

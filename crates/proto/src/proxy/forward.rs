//! Plain HTTP through a proxy (RFC 9112 §3.2.2): requests in absolute form, forwarded to the server that they name.
//!
//! ```text
//!   application ─► head, body ─► RequestHead, Framing ─► head without hop-by-hop fields, body as it is ─► origin
//!   application ◄─ the same way back ◄─ ResponseHead, Framing ◄─────────────────────────────────────── origin
//! ```
//!
//! Where one message ends must be understood alike here and at the origin, or one application could put a request into
//! another's mouth (request smuggling). So whatever leaves room for doubt is turned away: two lengths, a length beside a
//! transfer coding, codings other than `chunked`, line ends that are none. Each request gets a connection of its own to its
//! origin, which therefore never sees two.

mod chunked;
mod fields;

use httparse::{EMPTY_HEADER, Header, Request, Response, Status};

use super::connect::{ConnectError, MAX_HEAD};
use crate::tunnel::Destination;
pub use chunked::Chunks;
use fields::{Fields, write_fields};

/// Most fields of a head.
const MAX_FIELDS: usize = 128;

/// Longest head of a response that is read, in bytes.
pub const MAX_RESPONSE_HEAD: usize = 64 * 1024;

/// Port of `http` addresses that name none.
const HTTP_PORT: u16 = 80;

/// Way in which the end of a message's body is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// After this many bytes.
    Length(u64),
    /// By the last of its chunks.
    Chunked,
    /// By the end of the connection (responses only).
    End,
}

/// A request, as its origin is to get it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead {
    /// Goal of the request.
    pub destination: Destination,
    /// Request line and fields.
    pub head: Vec<u8>,
    /// End of its body.
    pub body: Framing,
    /// The method is HEAD: the response has no body.
    pub is_head: bool,
    /// Another protocol may follow.
    pub upgrades: bool,
    /// Another request may follow on this connection.
    pub keeps: bool,
}

/// A response, as the application is to get it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHead {
    /// Status line and fields.
    pub head: Vec<u8>,
    /// Status code of the response.
    pub status: u16,
    /// End of its body.
    pub body: Framing,
    /// Another request may follow.
    pub keeps: bool,
}

impl ResponseHead {
    /// True if another response to the same request follows (1xx but 101).
    #[must_use]
    pub const fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }
}

/// A request for the proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// CONNECT: bytes follow.
    Connect(Destination),
    /// A request to be forwarded.
    Forward(Box<RequestHead>),
}

/// Reads the head of a request and says how many bytes it took. `None`: more bytes are needed, never more than
/// [`MAX_HEAD`].
///
/// # Errors
/// [`ConnectError`], which is the answer to the application.
pub fn decode(buf: &[u8]) -> Result<Option<(Asked, usize)>, ConnectError> {
    let mut headers = [EMPTY_HEADER; MAX_FIELDS];
    let mut request = Request::new(&mut headers);
    let used = match request.parse(buf) {
        Ok(Status::Complete(used)) if used <= MAX_HEAD => used,
        Ok(Status::Complete(_)) | Err(httparse::Error::TooManyHeaders) => {
            return Err(ConnectError::TooLong);
        }
        Ok(Status::Partial) if buf.len() >= MAX_HEAD => return Err(ConnectError::TooLong),
        Ok(Status::Partial) => return Ok(None),
        Err(_) => return Err(ConnectError::Malformed),
    };
    let (Some(method), Some(target), Some(version)) =
        (request.method, request.path, request.version)
    else {
        return Err(ConnectError::Malformed);
    };
    if method == "CONNECT" {
        let destination = target.parse().map_err(|_| ConnectError::Target)?;
        return Ok(Some((Asked::Connect(destination), used)));
    }
    let target = Target::parse(target)?;
    let head = forwarded(method, &target, version, request.headers)?;
    Ok(Some((Asked::Forward(Box::new(head)), used)))
}

/// The parts of an address in absolute form.
struct Target<'a> {
    destination: Destination,
    authority: &'a str,
    path: &'a str,
}

impl<'a> Target<'a> {
    fn parse(target: &'a str) -> Result<Self, ConnectError> {
        const SCHEME: &str = "http://";
        let scheme = target.get(..SCHEME.len());
        if !scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME)) {
            return Err(ConnectError::Form);
        }
        let rest = &target[SCHEME.len()..];
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        // A name and password before `@` were to be read by the application itself (RFC 9110 §4.2.4).
        if authority.contains('@') || path.contains('#') {
            return Err(ConnectError::Target);
        }
        let named = authority
            .rsplit_once(':')
            .is_some_and(|(host, _)| !host.starts_with('[') || host.ends_with(']'));
        let with_port = match (named, authority.strip_suffix(':')) {
            (_, Some(host)) => format!("{host}:{HTTP_PORT}"),
            (true, None) => authority.to_owned(),
            (false, None) => format!("{authority}:{HTTP_PORT}"),
        };
        let destination = with_port.parse().map_err(|_| ConnectError::Target)?;
        Ok(Self {
            destination,
            authority: authority.strip_suffix(':').unwrap_or(authority),
            path,
        })
    }
}

fn forwarded(
    method: &str,
    target: &Target<'_>,
    version: u8,
    headers: &[Header<'_>],
) -> Result<RequestHead, ConnectError> {
    let fields = Fields::read(headers).ok_or(ConnectError::Malformed)?;
    // HTTP/1.0 knows no chunks, and whoever reads them otherwise takes the body for a request.
    if fields.chunked && version == 0 {
        return Err(ConnectError::Malformed);
    }
    let body = match (fields.coded, fields.chunked, fields.length) {
        (true, false, _) | (true, true, Some(_)) => return Err(ConnectError::Malformed),
        (true, true, None) => Framing::Chunked,
        (false, _, length) => Framing::Length(length.unwrap_or(0)),
    };
    let path = match (target.path, method) {
        ("", "OPTIONS") => "*".to_owned(),
        (path, _) if path.starts_with('/') => path.to_owned(),
        (query, _) => format!("/{query}"),
    };
    let upgrades = version == 1 && fields.upgrades;
    let mut head = format!(
        "{method} {path} HTTP/1.{version}\r\nHost: {}\r\n",
        target.authority
    )
    .into_bytes();
    write_fields(
        &mut head,
        headers,
        &fields,
        |name| name.eq_ignore_ascii_case("host"),
        upgrades,
    );
    let connection = if upgrades { "upgrade" } else { "close" };
    head.extend(format!("Via: 1.{version} bentpipe\r\nConnection: {connection}\r\n\r\n").bytes());
    Ok(RequestHead {
        destination: target.destination.clone(),
        head,
        body,
        is_head: method == "HEAD",
        upgrades,
        keeps: keeps(version, &fields),
    })
}

/// True if a message of this version leaves its connection open.
fn keeps(version: u8, fields: &Fields) -> bool {
    match version {
        0 => fields.keeps,
        _ => !fields.closes,
    }
}

/// Reads the head of a response to `request` and says how many bytes it took. `None`: more bytes are needed, never more
/// than [`MAX_RESPONSE_HEAD`].
///
/// # Errors
/// [`ConnectError`]: the origin's answer is none, or leaves open where it ends.
pub fn decode_response(
    buf: &[u8],
    request: &RequestHead,
) -> Result<Option<(ResponseHead, usize)>, ConnectError> {
    let mut headers = [EMPTY_HEADER; MAX_FIELDS];
    let mut response = Response::new(&mut headers);
    let used = match response.parse(buf) {
        Ok(Status::Complete(used)) if used <= MAX_RESPONSE_HEAD => used,
        Ok(Status::Partial) if buf.len() < MAX_RESPONSE_HEAD => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(ConnectError::TooLong),
        Err(_) => return Err(ConnectError::Malformed),
    };
    let (Some(status), Some(version)) = (response.code, response.version) else {
        return Err(ConnectError::Malformed);
    };
    let fields = Fields::read(response.headers).ok_or(ConnectError::Malformed)?;
    if status == 101 && !request.upgrades {
        return Err(ConnectError::Malformed);
    }
    let bodiless = request.is_head || status < 200 || status == 204 || status == 304;
    let body = match (fields.coded, fields.chunked, fields.length) {
        _ if bodiless => Framing::Length(0),
        (true, true, _) => Framing::Chunked,
        (true, false, _) | (false, _, None) => Framing::End,
        (false, _, Some(length)) => Framing::Length(length),
    };
    let keeps = request.keeps && body != Framing::End;
    let reason = response.reason.unwrap_or("");
    let mut head = format!("HTTP/1.{version} {status} {reason}\r\n").into_bytes();
    // A length beside a coding means nothing (RFC 9112 §6.3), and must not be passed on.
    let drops = |name: &str| fields.coded && name.eq_ignore_ascii_case("content-length");
    write_fields(&mut head, response.headers, &fields, drops, status == 101);
    let connection = match (status, keeps) {
        (101, _) => "Connection: upgrade\r\n",
        (100..200, _) => "",
        (_, true) => "Connection: keep-alive\r\n",
        (_, false) => "Connection: close\r\n",
    };
    head.extend_from_slice(connection.as_bytes());
    head.extend_from_slice(b"\r\n");
    Ok(Some((
        ResponseHead {
            head,
            status,
            body,
            keeps,
        },
        used,
    )))
}

#[cfg(test)]
mod tests;

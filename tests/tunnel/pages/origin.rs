//! A web server whose answers are functions of the path, and which remembers what it was asked.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use bentpipe_testbed::peer::{listen, payload};
use bentpipe_testbed::route::Place;
use rustls::ServerConfig;

use super::speech::Speech;

/// Length of an object, bytes.
pub(super) const OBJECT: usize = 10_000;

/// A running origin; its thread ends with the process.
pub(super) struct Origin {
    pub(super) address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Origin {
    /// Serves `address`, with `tls` where there is some; each connection, handshake and request costs a terrestrial round trip
    /// of `trip`.
    pub(super) fn start(
        place: &Place,
        address: SocketAddr,
        tls: Option<Arc<ServerConfig>>,
        trip: Duration,
    ) -> Result<Self> {
        let listener = place.at(|| listen(address))??;
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, tls) = (seen.clone(), tls.clone());
                thread::spawn(move || converse(stream, tls.as_ref(), trip, &seen));
            }
        });
        Ok(Self { address, asked })
    }

    /// Heads of the requests so far.
    pub(super) fn asked(&self) -> Vec<String> {
        lock(&self.asked).clone()
    }

    /// How often a path was asked for.
    pub(super) fn count(&self, path: &str) -> usize {
        let begins = format!("GET {path} ");
        let asked = lock(&self.asked);
        asked
            .iter()
            .filter(|head| head.starts_with(&begins))
            .count()
    }
}

fn lock(asked: &Mutex<Vec<String>>) -> std::sync::MutexGuard<'_, Vec<String>> {
    asked.lock().unwrap_or_else(PoisonError::into_inner)
}

fn converse(
    stream: TcpStream,
    tls: Option<&Arc<ServerConfig>>,
    trip: Duration,
    asked: &Mutex<Vec<String>>,
) -> Result<()> {
    let mut stream = Speech::origin(stream, tls, trip)?;
    let (mut unread, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        while let Some(end) = unread.windows(4).position(|four| four == b"\r\n\r\n") {
            let head: Vec<u8> = unread.drain(..end + 4).collect();
            let head = String::from_utf8_lossy(&head).into_owned();
            let body = if head.starts_with("POST") { 5 } else { 0 };
            while unread.len() < body {
                let read = stream.read(&mut buffer)?;
                unread.extend_from_slice(&buffer[..read]);
            }
            unread.drain(..body);
            lock(asked).push(head.clone());
            thread::sleep(trip);
            stream.write_all(&answer(&head))?;
            match target(&head) {
                "/upgrade" => return echo(stream),
                "/cut" => return Ok(stream.cut()?),
                _ if closes(&head) => return Ok(stream.finish()?),
                _ => {}
            }
        }
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            read => unread.extend_from_slice(&buffer[..read]),
        }
    }
}

/// Sends back what comes, and the end when it comes.
fn echo(mut stream: Speech) -> Result<()> {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(stream.finish()?),
            read => stream.write_all(&buffer[..read])?,
        }
    }
}

pub(super) fn target(head: &str) -> &str {
    head.split(' ').nth(1).unwrap_or_default()
}

/// True if the origin ends the connection with its answer.
fn closes(head: &str) -> bool {
    let ends = ["/until-close", "/short", "/malformed-chunks"];
    head.contains("Connection: close") || head.contains("HTTP/1.0") || ends.contains(&target(head))
}

/// The page of `n` objects, whose paths begin with `/o/`.
pub(super) fn page(name: &str, n: usize) -> String {
    let images: String = (0..n)
        .map(|i| format!("<img src='/o/{name}-{i}'>\n"))
        .collect();
    format!("<!doctype html><title>{name}</title>\n{images}<p>The end.</p>\n")
}

/// All bytes that answer a request.
pub(super) fn answer(head: &str) -> Vec<u8> {
    let target = target(head);
    let line = if head.starts_with("HEAD") { "" } else { "x" };
    let with = |status: &str, fields: &str, body: &[u8]| {
        let length = body.len();
        let mut bytes = format!(
            "HTTP/1.1 {status}\r\nX-Odd-CASE: 1\r\n{fields}Content-Length: {length}\r\n\r\n"
        )
        .into_bytes();
        if !line.is_empty() {
            bytes.extend_from_slice(body);
        }
        bytes
    };
    let html = "Content-Type: text/html; charset=utf-8\r\n";
    if let Some(rest) = target.strip_prefix("/page/") {
        let n = rest
            .rsplit('-')
            .next()
            .and_then(|n| n.parse().ok())
            .unwrap_or(0);
        return with("200 OK", html, page(rest, n).as_bytes());
    }
    if head.contains("\r\nRange: bytes=0-9\r\n") {
        let part = &payload(OBJECT)[..10];
        return with(
            "206 Partial Content",
            "Content-Range: bytes 0-9/10000\r\n",
            part,
        );
    }
    if head.contains("\r\nIf-None-Match: ") {
        return b"HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n".to_vec();
    }
    match target {
        "/mixed" => with("200 OK", html, MIXED.as_bytes()),
        "/redirect" => with("302 Found", "Location: /o/elsewhere\r\n", b""),
        "/sets-cookie" => with("200 OK", "Set-Cookie: b=2\r\n", b"cookie"),
        "/varies" => with("200 OK", "Vary: Accept\r\n", head_accept(head).as_bytes()),
        "/who" => with("200 OK", "", cookie(head).as_bytes()),
        "/chunked" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: T\r\n\r\n4;e=1\r\nWiki\r\n5\r\npedia\r\n0\r\nT: 1\r\n\r\n".to_vec(),
        "/malformed-chunks" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\nWiki".to_vec(),
        "/cut" => b"HTTP/1.1 200 OK\r\n\r\nuntil the end".to_vec(),
        "/until-close" => [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), payload(50_000)].concat(),
        "/short" => b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort".to_vec(),
        "/hints" => [b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n".to_vec(), with("200 OK", "", b"hinted")].concat(),
        "/empty" => b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(),
        "/large" => with("200 OK", "", &payload(5 << 20)),
        "/upgrade" => b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n".to_vec(),
        _ => with("200 OK", "", &payload(OBJECT)),
    }
}

/// A page whose objects may not, or cannot, be used ahead, and two that can.
pub(super) const MIXED: &str = "<link rel=stylesheet href=/o/style><img src=/redirect><img src=/sets-cookie>\
    <img src=/varies><img src=/who><img src=/chunked><img src=/short><img src=/until-close><img src=/large>\
    <img src=//192.0.2.9/elsewhere><img src=http://192.0.2.9/x>";

fn head_accept(head: &str) -> String {
    field(head, "accept")
}

fn cookie(head: &str) -> String {
    field(head, "cookie")
}

fn field(head: &str, name: &str) -> String {
    let named = |line: &&str| line.to_ascii_lowercase().starts_with(&format!("{name}:"));
    head.lines()
        .find(named)
        .unwrap_or_default()
        .to_ascii_lowercase()
}

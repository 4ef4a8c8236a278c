//! A web server whose answers are functions of the path, and which remembers what it was asked.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use bentpipe_testbed::peer::{listen, payload};
use bentpipe_testbed::route::Place;
use rustls::ServerConfig;

use super::odd_heads::odd_answer;
use super::packed::{costly, gzip, windowed};
use super::speech::Speech;

/// Time that objects below `/slow/` take if they are fetched ahead.
pub(super) const SLOW: Duration = Duration::from_secs(4);

/// Time that objects below `/late/` take, whoever asks.
const LATE: Duration = Duration::from_secs(2);

/// Length of an object, bytes.
pub(super) const OBJECT: usize = 10_000;

/// Time for which an answer without a length stops in its middle.
const PAUSE: Duration = Duration::from_secs(4);

/// Length of an object that a client holds for its browser, bytes.
pub(super) const LONG: usize = 200_000;

/// A running origin; its thread ends with the process.
pub(super) struct Origin {
    pub(super) address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    counts: Arc<Counts>,
}

/// Counts of what goes on at one time.
#[derive(Default)]
struct Counts {
    /// Connections that are open.
    open: AtomicUsize,
    /// Objects that are fetched ahead, and the most of them at one time.
    ahead: AtomicUsize,
    most_ahead: AtomicUsize,
    /// Requests that are answered no further, and whose client is still there.
    silent: AtomicUsize,
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
        let counts = Arc::new(Counts::default());
        let (seen, counted) = (asked.clone(), counts.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, tls, counts) = (seen.clone(), tls.clone(), counted.clone());
                thread::spawn(move || {
                    counts.open.fetch_add(1, Ordering::Relaxed);
                    let ended = converse(stream, tls.as_ref(), trip, &seen, &counts);
                    counts.open.fetch_sub(1, Ordering::Relaxed);
                    ended
                });
            }
        });
        Ok(Self {
            address,
            asked,
            counts,
        })
    }

    /// Heads of the requests so far.
    pub(super) fn asked(&self) -> Vec<String> {
        lock(&self.asked).clone()
    }

    /// Connections that are open.
    pub(super) fn open(&self) -> usize {
        self.counts.open.load(Ordering::Relaxed)
    }

    /// Requests that are answered no further, and whose client is still there.
    pub(super) fn silent(&self) -> usize {
        self.counts.silent.load(Ordering::Relaxed)
    }

    /// The most objects that were fetched ahead at one time.
    pub(super) fn most_ahead(&self) -> usize {
        self.counts.most_ahead.load(Ordering::Relaxed)
    }

    /// Number of requests for a path.
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
    counts: &Counts,
) -> Result<()> {
    let mut stream = Speech::origin(stream, tls, trip)?;
    let (mut unread, mut buffer) = (Vec::new(), [0; 4096]);
    // Authentication that holds for the connection, as NTLM's does.
    let mut user = "nobody".to_owned();
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
            if !speaks(&head, &mut stream, counts)? {
                return Ok(());
            }
            let mut lines = head.lines();
            if let Some(shown) = lines.find_map(|line| line.strip_prefix("Authorization: NTLM ")) {
                shown.clone_into(&mut user);
            }
            if target(&head) == "/whoami" {
                let length = user.len();
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{user}");
                stream.write_all(answer.as_bytes())?;
                continue;
            }
            let answer = answer(&head);
            let apart = if target(&head).starts_with("/pieces/") {
                PIECES
            } else {
                0
            };
            for byte in &answer[..apart] {
                stream.write_all(&[*byte])?;
                thread::sleep(Duration::from_millis(2));
            }
            stream.write_all(&answer[apart..])?;
            match target(&head) {
                "/more" => stream.write_all(b"and more than was promised")?,
                "/surprise" => {
                    thread::sleep(Duration::from_millis(200));
                    stream.write_all(UNASKED)?;
                }
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

/// Takes its time where the path says so, and is false where the origin says nothing more, until its client is gone.
fn speaks(head: &str, stream: &mut Speech, counts: &Counts) -> Result<bool> {
    let (target, ahead) = (target(head), head.contains("sec-purpose: prefetch"));
    if target.starts_with("/late/") {
        thread::sleep(LATE);
    }
    if ahead && target.starts_with("/slow/") {
        let now = 1 + counts.ahead.fetch_add(1, Ordering::Relaxed);
        counts.most_ahead.fetch_max(now, Ordering::Relaxed);
        thread::sleep(SLOW);
        counts.ahead.fetch_sub(1, Ordering::Relaxed);
    }
    if ahead && target.starts_with("/trickle/") {
        // As the picture of a camera comes, for as long as anybody looks.
        let whole = answer(head);
        let (first, rest) = whole.split_at(whole.len() - TRICKLE);
        stream.write_all(first)?;
        for byte in rest.chunks(1) {
            stream.write_all(byte)?;
            thread::sleep(Duration::from_secs(1));
        }
        return Ok(false);
    }
    if target == "/odd/pause" {
        let whole = answer(head);
        let (first, rest) = whole.split_at(whole.len() / 2);
        stream.write_all(first)?;
        thread::sleep(PAUSE);
        stream.write_all(rest)?;
        stream.finish()?;
        return Ok(false);
    }
    if target.starts_with("/camera/") {
        // A picture after another, for as long as anybody looks.
        stream.write_all(CAMERA)?;
        while stream.write_all(PICTURE).is_ok() {
            thread::sleep(Duration::from_millis(100));
        }
        return Ok(false);
    }
    if target == "/endless" || ahead && target.starts_with("/endless/") {
        // Until whoever asked has had enough.
        loop {
            stream.write_all(&INTERIM.repeat(100))?;
        }
    }
    if ahead && target.starts_with("/stall/") {
        let whole = answer(head);
        stream.write_all(&whole[..whole.len() / 2])?;
    } else if target != "/silent" && !(ahead && target.starts_with("/mute/")) {
        return Ok(true);
    }
    counts.silent.fetch_add(1, Ordering::Relaxed);
    while stream.read(&mut [0; 1]).is_ok_and(|read| read > 0) {}
    counts.silent.fetch_sub(1, Ordering::Relaxed);
    Ok(false)
}

/// Head of the pictures of a camera, which moves them in a browser.
pub(super) const CAMERA: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=next\r\n\r\n";

/// One of these pictures.
const PICTURE: &[u8] = b"--next\r\nContent-Type: image/jpeg\r\nContent-Length: 4\r\n\r\njpeg\r\n";

/// Bytes of an object that come a second apart.
const TRICKLE: usize = 120;

/// Bytes of a head that come each by itself.
const PIECES: usize = 400;

/// Interim response of which an origin may send any number.
pub(super) const INTERIM: &[u8] = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n";

/// Response that comes while a connection waits, as some origins say that they have waited long enough.
const UNASKED: &[u8] = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 4\r\n\r\nlate";

/// A response of `length` bytes in chunks of 4 kB with extensions.
fn chunks(length: usize) -> Vec<u8> {
    let mut bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for chunk in payload(length).chunks(4000) {
        bytes.extend_from_slice(format!("{:X};n=1\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
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
    let ends = [
        "/until-close",
        "/short",
        "/malformed-chunks",
        "/old",
        "/old-page",
    ];
    head.contains("Connection: close") || head.contains("HTTP/1.0") || ends.contains(&target(head))
}

/// The page of `n` objects, whose paths begin with `/o/`.
pub(super) fn page(name: &str, n: usize) -> String {
    let images: String = (0..n)
        .map(|i| format!("<img src='/o/{name}-{i}'>\n"))
        .collect();
    format!("<!doctype html><title>{name}</title>\n{images}<p>The end.</p>\n")
}

/// The page of these objects, with commas between; those whose names have `style` are style sheets.
fn named(objects: &str) -> String {
    let tag = |object: &str| match object.contains("style") {
        true => format!("<link rel=stylesheet href='/{object}'>"),
        false => format!("<img src='/{object}'>"),
    };
    let tags: String = objects.replace('+', "/").split(',').map(tag).collect();
    format!("<!doctype html>{tags}")
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
    if field(head, "range") == "range: bytes=0-9" {
        let part = &payload(OBJECT)[..10];
        return with(
            "206 Partial Content",
            "Content-Range: bytes 0-9/10000\r\n",
            part,
        );
    }
    if !field(head, "if-none-match").is_empty() {
        return b"HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n".to_vec();
    }
    if let Some(objects) = target.strip_prefix("/names/") {
        return with("200 OK", html, named(objects).as_bytes());
    }
    if let Some(kind) = target.strip_prefix("/odd/") {
        return odd_answer(kind);
    }
    if let Some(name) = target.strip_prefix("/costly/") {
        let fields = format!("{html}Content-Encoding: gzip\r\n");
        return with("200 OK", &fields, &gzip(&costly(name)));
    }
    if let Some(name) = target.strip_prefix("/window/") {
        let page = windowed(name);
        let head = format!(
            "HTTP/1.1 200 OK\r\n{html}Content-Encoding: zstd\r\nContent-Length: {}\r\n\r\n",
            page.len() + 1
        );
        return [head.into_bytes(), page].concat();
    }
    match target {
        _ if target.starts_with("/pieces/") => {
            let fields = format!("X: {}\r\n", "x".repeat(PIECES));
            with("200 OK", &format!("{html}{fields}"), b"whole")
        }
        _ if target.starts_with("/refused/") => with("403 Forbidden", "", b"not for you"),
        "/more" => with("200 OK", "", b"as promised"),
        _ if target.starts_with("/two/") => with("200 OK", "", &payload(2 << 20)),
        _ if target.starts_with("/three/") => with("200 OK", "", &payload(3 << 20)),
        "/long" => with("200 OK", "", &payload(LONG)),
        "/chunked-3m" => chunks(3 << 20),
        "/chunked-5m" => chunks(5 << 20),
        "/no-store" => with("200 OK", "Cache-Control: no-store\r\n", b"not to be kept"),
        "/vary-star" => with("200 OK", "Vary: *\r\n", b"varies by everything"),
        _ if target.starts_with("/language") => {
            let language = field(head, "accept-language");
            with("200 OK", "Vary: Accept-Language\r\n", language.as_bytes())
        }
        "/mixed" => with("200 OK", html, MIXED.as_bytes()),
        "/redirect" => with("302 Found", "Location: /o/elsewhere\r\n", b""),
        "/redirect-away" => with("302 Found", "Location: http://10.30.0.251/o/away\r\n", b""),
        "/sets-cookie" => with("200 OK", "Set-Cookie: b=2\r\n", b"cookie"),
        "/varies" => with("200 OK", "Vary: Accept\r\n", field(head, "accept").as_bytes()),
        "/who" => with("200 OK", "", field(head, "cookie").as_bytes()),
        "/chunked" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: T\r\n\r\n4;e=1\r\nWiki\r\n5\r\npedia\r\n0\r\nT: 1\r\n\r\n".to_vec(),
        "/malformed-chunks" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\nWiki".to_vec(),
        "/cut" => b"HTTP/1.1 200 OK\r\n\r\nuntil the end".to_vec(),
        "/old" => [b"HTTP/1.0 200 OK\r\nServer: old\r\n\r\n".to_vec(), payload(50_000)].concat(),
        "/old-page" => b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n<!doctype html><img src=/old><img src=/o/old>".to_vec(),
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
    <img src=//10.30.0.251/elsewhere><img src=http://10.30.0.251/x><img src=/redirect-away>";

/// Address that [`MIXED`] links and redirects to, which nobody has.
pub(super) const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(10, 30, 0, 251);

fn field(head: &str, name: &str) -> String {
    let named = |line: &&str| line.to_ascii_lowercase().starts_with(&format!("{name}:"));
    head.lines()
        .find(named)
        .unwrap_or_default()
        .to_ascii_lowercase()
}

//! What a browser does: a page, and its objects by as many connections as it has.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_testbed::peer::{PATIENCE, payload, read_to_the_end};
use bentpipe_testbed::route::Place;
use rustls::ClientConfig;

use super::origin::{OBJECT, page};
use super::speech::{NAME, Speech};

/// Fields of a page's request.
pub(super) const HTML: &str = "Accept: text/html,*/*;q=0.8\r\nUser-Agent: test\r\n";

/// Fields of an object's.
const IMAGE: &str = "Accept: image/*\r\nUser-Agent: test\r\n";

/// A user's browser.
#[derive(Clone)]
pub(super) struct Browser {
    pub(super) place: Place,
    pub(super) origin: SocketAddr,
    /// TLS, and the authorities that the browser trusts; `None`: in clear.
    pub(super) tls: Option<Arc<ClientConfig>>,
}

/// Head of a GET.
pub(super) fn get(target: &str, fields: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: {NAME}\r\n{fields}\r\n")
}

impl Browser {
    pub(super) fn connect(&self) -> Result<Speech> {
        self.connect_to(NAME)
    }

    /// Connects to the origin as the host `name`.
    pub(super) fn connect_to(&self, name: &str) -> Result<Speech> {
        let connecting = || TcpStream::connect_timeout(&self.origin, PATIENCE);
        Speech::browser(self.place.at(connecting)??, self.tls.as_ref(), name)
    }

    /// Says `words` on one connection, and gives all that comes and whether it ended in order.
    pub(super) fn hear(&self, words: &[u8]) -> Result<(Vec<u8>, bool)> {
        let mut stream = self.connect()?;
        stream.write_all(words)?;
        let (bytes, end) = read_to_the_end(&mut stream);
        Ok((bytes, end.is_ok()))
    }

    /// Loads the page `name` with its `n` objects over six connections; says how long that took.
    pub(super) fn load(&self, name: &str, n: usize) -> Result<Duration> {
        let began = Instant::now();
        let mut first = self.connect()?;
        let body = exchange(&mut first, &get(&format!("/page/{name}"), HTML))?;
        ensure!(body == page(name, n).as_bytes(), "another page");
        let mut first = Some(first);
        let workers: Vec<_> = (0..6.min(n))
            .map(|one| {
                let (browser, own, name) = (self.clone(), first.take(), name.to_owned());
                thread::spawn(move || -> Result<()> {
                    let mut stream = own.map_or_else(|| browser.connect(), Ok)?;
                    for i in (one..n).step_by(6) {
                        let head = get(&format!("/o/{name}-{i}"), IMAGE);
                        let body = exchange(&mut stream, &head)?;
                        ensure!(body == payload(OBJECT), "another object {i}");
                    }
                    Ok(())
                })
            })
            .collect();
        for worker in workers {
            worker.join().expect("no panic")?;
        }
        Ok(began.elapsed())
    }
}

/// Body of the answer to `head`, which says how long it is.
pub(super) fn exchange(stream: &mut Speech, head: &str) -> Result<Vec<u8>> {
    stream.write_all(head.as_bytes())?;
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 65_536]);
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length = text
                .lines()
                .find_map(|line| line.strip_prefix("Content-Length: "));
            let length: usize = length.context("a length")?.parse()?;
            if bytes.len() >= end + 4 + length {
                ensure!(bytes.len() == end + 4 + length, "more than was asked for");
                return Ok(bytes.split_off(end + 4));
            }
        }
        let read = stream.read(&mut buffer)?;
        ensure!(read > 0, "an end after {} bytes", bytes.len());
        bytes.extend_from_slice(&buffer[..read]);
    }
}

//! Processor time of an origin: what one client may take of it.

use std::io::Write as _;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bentpipe_sealed::dssl::{ALPN_K1, DsslHello};
use bentpipe_testbed::peer::read_exactly;
use bentpipe_tunnel::engine::identity::PrivateKey;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use super::browser::{HTML, get};
use super::origin::answer;
use super::origins::{Alone, SOON, connect_from};
use super::speech::NAME;

/// A client that has a hub, at this address.
pub(super) struct Terminal(StreamOwned<ClientConnection, TcpStream>);

impl Terminal {
    fn connect(alone: &Alone, from: [u8; 4]) -> Result<Self> {
        Self::connect_as(alone, from, &PrivateKey::generate()?)
    }

    /// Connects as the client with this key.
    pub(super) fn connect_as(alone: &Alone, from: [u8; 4], key: &PrivateKey) -> Result<Self> {
        let tls = alone.certified.trust_shown(key, ALPN_K1)?;
        let tcp = connect_from(from, alone.address)?;
        tcp.set_read_timeout(Some(SOON))?;
        let mut stream = StreamOwned::new(
            ClientConnection::new(tls, ServerName::try_from(NAME)?)?,
            tcp,
        );
        let hub = Some(alone.hub.public().to_bytes());
        stream.write_all(&DsslHello { hub }.encode())?;
        Ok(Self(stream))
    }

    /// Loads a page that is long to read.
    fn load_costly(&mut self, name: &str) -> Result<()> {
        self.load(&format!("/costly/{name}"))
    }

    /// Loads the page at `target`.
    pub(super) fn load(&mut self, target: &str) -> Result<()> {
        let head = get(target, HTML);
        let expected = answer(&head);
        self.0.write_all(head.as_bytes())?;
        ensure!(
            read_exactly(&mut self.0, expected.len())? == expected,
            "another page"
        );
        Ok(())
    }
}

/// Pages whose links were looked for no further.
fn unread(alone: &Alone) -> Result<u64> {
    let status = alone.status()?;
    let count = status.pointer("/origin/refused_total/unread");
    count
        .and_then(serde_json::Value::as_u64)
        .context("a number")
}

#[test]
fn a_client_of_an_origin_has_its_share_of_the_processor_and_takes_nobodys() -> Result<()> {
    let alone = Alone::start()?;
    let mut greedy = Terminal::connect(&alone, [127, 0, 0, 2])?;
    greedy.load_costly("first")?;
    ensure!(unread(&alone)? == 0, "the first page was not read");
    // All at one time, for the share comes back with it.
    let loaded: Vec<Result<()>> = thread::scope(|scope| {
        let load = |number: usize| {
            let mut terminal = Terminal::connect(&alone, [127, 0, 0, 2])?;
            (0..4).try_for_each(|page| terminal.load_costly(&format!("{number}-{page}")))
        };
        let all: Vec<_> = (0..6)
            .map(|number| scope.spawn(move || load(number)))
            .collect();
        let joined = all.into_iter();
        joined.map(|one| one.join().expect("no panic")).collect()
    });
    loaded.into_iter().collect::<Result<Vec<_>>>()?;
    let of_greedy = unread(&alone)?;
    println!("{of_greedy} of 25 pages of one client were not read to their end");
    ensure!(of_greedy > 0, "all of 25 pages were read");
    let mut modest = Terminal::connect(&alone, [127, 0, 0, 3])?;
    modest.load_costly("modest")?;
    let of_modest = unread(&alone)? - of_greedy;
    ensure!(of_modest == 0, "another client's page was not read");
    Ok(())
}

#[test]
fn a_head_in_many_pieces_is_read_by_the_web_server_alone() -> Result<()> {
    let alone = Alone::start()?;
    let mut terminal = Terminal::connect(&alone, [127, 0, 0, 2])?;
    let head = get("/o/1", &format!("X: {}\r\n", "x".repeat(400)));
    for byte in head.as_bytes().chunks(1) {
        terminal.0.write_all(byte)?;
        terminal.0.flush()?;
        thread::sleep(Duration::from_millis(3));
    }
    let expected = answer(&head);
    ensure!(read_exactly(&mut terminal.0, expected.len())? == expected);
    alone.wait_for_figure("/origin/sessions", 0)
}

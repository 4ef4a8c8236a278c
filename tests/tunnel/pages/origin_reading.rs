//! Processor time of an origin: what one client may take of it.

use std::io::Write as _;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use bentpipe_sealed::dssl::{ALPN_K1, DsslHello};
use bentpipe_testbed::peer::read_exactly;
use bentpipe_tunnel::engine::identity::PrivateKey;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use super::browser::get;
use super::origin::answer;
use super::origins::{Alone, SOON, connect_from};
use super::speech::NAME;

/// A client that has a hub, at this address.
struct Terminal(StreamOwned<ClientConnection, TcpStream>);

impl Terminal {
    fn connect(alone: &Alone, from: [u8; 4]) -> Result<Self> {
        let tls = alone
            .certified
            .trust_shown(&PrivateKey::generate()?, ALPN_K1)?;
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

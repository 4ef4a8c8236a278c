//! A named host that speaks HTTP/2 alone: the first page says so and loads itself again, and then the browser speaks with the host itself.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use bentpipe_emulator::topology::WEB;
use bentpipe_testbed::peer::listen;
use bentpipe_testbed::privileged;
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::Site;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned};

use super::browser::{Browser, HTML, get};
use super::cases::Trust;
use super::speech::{NAME, Over};
use super::trusted::trust_local;

/// Words of the host once TLS stands, in place of HTTP/2.
pub(super) const WORD: &[u8] = b"of the host";

/// A host that says [`WORD`] to whoever speaks HTTP/2.
pub(super) fn start_host(site: &Site, tls: &ServerConfig) -> Result<SocketAddr> {
    let mut tls = tls.clone();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let tls = Arc::new(tls);
    let address = SocketAddr::new(IpAddr::from(WEB), 443);
    let listener = Place::from(site.topology.web()).at(|| listen(address))??;
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let tls = tls.clone();
            thread::spawn(move || -> Result<()> {
                let mut stream = StreamOwned::new(ServerConnection::new(tls)?, socket);
                stream.write_all(WORD)?;
                stream.flush()?;
                let _ = stream.read(&mut [0; 64]);
                Ok(())
            });
        }
    });
    Ok(address)
}

/// Word of the host to a browser that trusts the host's own authority.
pub(super) fn hear_host(
    site: &Site,
    address: SocketAddr,
    tls: Arc<ClientConfig>,
) -> Result<Vec<u8>> {
    let place = Place::from(site.topology.user());
    let socket = place.at(|| TcpStream::connect(address))??;
    socket.set_read_timeout(Some(Duration::from_secs(20)))?;
    let connection = ClientConnection::new(tls, NAME.try_into()?)?;
    let mut stream = StreamOwned::new(connection, socket);
    let mut word = vec![0; WORD.len()];
    stream.read_exact(&mut word)?;
    ensure!(
        stream.conn.alpn_protocol() == Some(b"h2"),
        "another protocol"
    );
    Ok(word)
}

#[test]
fn a_host_that_speaks_http2_alone_loads_all_the_same() {
    if !privileged("a host of HTTP/2 alone") {
        return;
    }
    let trust = Trust::new();
    let site = Site::start(trust.config(Over::Trusted)).expect("a site");
    let result = loads(&site, &trust);
    assert!(result.is_ok(), "{:#}\n{}", result.unwrap_err(), site.logs());
}

fn loads(site: &Site, trust: &Trust) -> Result<()> {
    let origin = start_host(site, &*trust.authority.server_config([NAME])?)?;
    let browser = Browser {
        place: Place::from(site.topology.user()),
        origin,
        tls: Some(trust_local(site)?),
    };
    let mut own = (*trust.authority.http2_client_config()?).clone();
    // As browsers do: who offers HTTP/2 alone is not touched at all.
    own.alpn_protocols = [&b"h2"[..], b"http/1.1"].map(<[u8]>::to_vec).to_vec();
    let own = Arc::new(own);
    ensure!(
        hear_host(site, origin, own.clone()).is_err(),
        "nobody answers for the host"
    );
    let (bytes, in_order) = browser.hear(get("/", HTML).as_bytes())?;
    let text = String::from_utf8_lossy(&bytes);
    ensure!(text.starts_with("HTTP/1.1 502 ") && in_order, "{text}");
    ensure!(text.contains("http-equiv=refresh"), "{text}");
    ensure!(hear_host(site, origin, own)? == WORD, "another word");
    ensure!(
        site.logs().contains("speaks HTTP/2 alone"),
        "nothing in the log"
    );
    Ok(())
}

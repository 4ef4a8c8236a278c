//! The server's responder: through the tunnel for each client, past it for those who have a token, and within its bounds.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};

use bentpipe_emulator::topology::GATEWAY_SAT;
use bentpipe_testbed::peer::{PATIENCE, set_patience};
use bentpipe_testbed::privileged;
use bentpipe_testbed::proxy::{Proxy, SOCKS5};
use bentpipe_testbed::site::{Site, SiteConfig, near};

use crate::BENTPIPE;

/// Port of the responder past the tunnel.
const PORT: u16 = 4480;

/// Name of the responder inside.
const NAME: &str = "responder.bentpipe.internal";

fn site(bounds: &str) -> Site {
    Site::start(SiteConfig {
        scenario: near(),
        client_tables: format!("[socks5]\nlisten = \"{SOCKS5}\"\n"),
        server_tables: format!("[responder]\nlisten = \"{GATEWAY_SAT}:{PORT}\"\n{bounds}\n"),
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site")
}

fn inside(site: &Site) -> TcpStream {
    let (stream, answer) = Proxy::Socks5.connect(site, NAME, 80).expect("an answer");
    assert_eq!(answer, Proxy::Socks5.success());
    stream
}

fn outside(site: &Site) -> TcpStream {
    let address = SocketAddr::from((GATEWAY_SAT, PORT));
    let connect = || TcpStream::connect_timeout(&address, PATIENCE);
    let stream = site.topology.terminal().enter(connect);
    stream.expect("the namespace").expect("a connection")
}

/// The status and the body of the answer to one request.
fn ask(mut stream: TcpStream, request: &str, headers: &str, body: &[u8]) -> (u16, Vec<u8>) {
    set_patience(&stream, PATIENCE).expect("a time");
    let length = body.len();
    let head = format!(
        "{request} HTTP/1.1\r\nHost: responder\r\nContent-Length: {length}\r\n{headers}\r\n"
    );
    stream.write_all(head.as_bytes()).expect("a head");
    // A responder that refuses does not read on.
    let _ = stream.write_all(body);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let Some(end) = end else {
        return (0, Vec::new());
    };
    let status = std::str::from_utf8(&answer[9..12]).expect("a status");
    (status.parse().expect("a status"), answer.split_off(end + 4))
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

#[test]
fn clients_are_answered_inside_and_outside_who_has_a_token() {
    if !privileged("responder: both ways") {
        return;
    }
    let site = site("max_request = \"1 MB\"");
    let (status, body) = ask(inside(&site), "POST /token", "", b"");
    let told = String::from_utf8(body).expect("text");
    assert_eq!(status, 200, "{told}");
    assert!(told.contains(&format!("\"port\":{PORT}")), "{told}");
    let token = told.split("\"token\":\"").nth(1).expect("a token");
    let token = token.split('"').next().expect("a token");
    let own = bearer(token);
    for (open, headers) in [
        (inside as fn(&Site) -> TcpStream, ""),
        (outside, own.as_str()),
    ] {
        let (status, body) = ask(open(&site), "GET /bytes/300000", headers, b"");
        assert_eq!((status, body.len()), (200, 300_000));
        assert_ne!(body[..1000], body[1000..2000], "it does not compress");
        let (status, body) = ask(open(&site), "POST /sink", headers, &[7; 200_000]);
        assert_eq!((status, body.as_slice()), (200, &b"200000\n"[..]));
        for (request, sent, wanted) in [
            ("GET /bytes/1000001", &[][..], 413),
            ("POST /sink", &[7; 1_000_001][..], 413),
            ("GET /bytes/x", &[], 400),
            ("GET /", &[], 404),
        ] {
            assert_eq!(
                ask(open(&site), request, headers, sent).0,
                wanted,
                "{request}"
            );
        }
    }
    for headers in [
        "",
        &bearer(""),
        &bearer(&token[1..]),
        &bearer(&"0".repeat(32)),
    ] {
        let (status, _) = ask(outside(&site), "GET /bytes/1", headers, b"");
        assert_eq!(status, 401, "{headers}");
    }
    // Tokens come through the tunnel alone.
    let (status, _) = ask(outside(&site), "POST /token", &own, b"");
    assert_eq!(status, 404);
}

#[test]
fn no_more_connections_begin_outside_than_may_and_those_inside_have_their_own() {
    if !privileged("responder: bounds") {
        return;
    }
    let site = site("max_connections = 2\nmax_starts_per_s = 1");
    let silent = [outside(&site), outside(&site)];
    assert_eq!(ask(outside(&site), "GET /bytes/1", "", b"").0, 0, "closed");
    assert_eq!(ask(inside(&site), "GET /bytes/1", "", b"").0, 200);
    drop(silent);
    // Five at once: three of them were above.
    let answered = (0..8).filter(|_| ask(outside(&site), "GET /bytes/1", "", b"").0 == 401);
    assert!(answered.count() < 8, "all of them began at once");
}

#[test]
fn without_the_table_there_is_no_responder() {
    if !privileged("responder: none") {
        return;
    }
    let site = Site::start(SiteConfig {
        scenario: near(),
        client_tables: format!("[socks5]\nlisten = \"{SOCKS5}\"\n"),
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site");
    let refused = Proxy::Socks5.connect(&site, NAME, 80);
    let (mut stream, answer) = refused.expect("an answer");
    // A name is promised before the server has answered; then the connection ends.
    let mut rest = Vec::new();
    let ended = stream.read_to_end(&mut rest);
    assert!(
        answer != Proxy::Socks5.success() || ended.is_err() || rest.is_empty(),
        "{answer:?} {ended:?} {rest:?}"
    );
}

//! A real web server, Node's: early hints (status 103) cross as they come, and the page behind them has its objects ahead; and WebSockets.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use bentpipe_emulator::topology::{Process, WEB};
use bentpipe_testbed::peer::{read_exactly, read_to_the_end};
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::Site;
use bentpipe_testbed::{installed, privileged};

use super::S;
use super::answers::{shown, without_dates};
use super::browser::{Browser, HTML, get};
use super::cases::figure;
use super::certified::Certified;
use super::real::{Pair, pair_site};
use super::sealed::{AS_IT_SHOULD_BE, Sealed};
use super::sessions::second_origin;

/// Server of a page of two images, which is hinted at twice before it is there; each image is hinted at as well. On a WebSocket it repeats what
/// is said, the last word included.
const SERVER: &str = r#"
const [host, port, certificate, key] = process.argv.slice(1);
const fs = require('fs');
const answer = (request, response) => {
    response.writeEarlyHints({ link: '</o/1>; rel=preload; as=image' });
    if (request.url !== '/page') {
        return response.end('an image'.repeat(1000));
    }
    response.writeEarlyHints({ link: '</o/2>; rel=preload; as=image' });
    setTimeout(() => {
        response.setHeader('Content-Type', 'text/html');
        response.end('<!doctype html><img src=/o/1><img src=/o/2>');
    }, 100);
};
const server = key
    ? require('https').createServer({ cert: fs.readFileSync(certificate), key: fs.readFileSync(key) }, answer)
    : require('http').createServer(answer);
server.on('upgrade', (request, socket, first) => {
    const key = request.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
    const accept = require('crypto').createHash('sha1').update(key).digest('base64');
    socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n' +
        `Sec-WebSocket-Accept: ${accept}\r\n\r\n`);
    let held = Buffer.alloc(0);
    socket.on('data', (bytes) => {
        held = Buffer.concat([held, bytes]);
        while (held.length >= 6 && held.length >= 6 + (held[1] & 127)) {
            const length = held[1] & 127;
            const [mask, masked] = [held.subarray(2, 6), held.subarray(6, 6 + length)];
            socket.write(Buffer.from([held[0], length]));
            socket.write(Buffer.from(masked.map((byte, at) => byte ^ mask[at % 4])));
            if ((held[0] & 15) === 8) socket.end();
            held = held.subarray(6 + length);
        }
    });
    socket.unshift(first);
});
server.listen(Number(port), host, () => console.error('ready'));
"#;

/// Starts the server in the web, with TLS if its port is that of HTTPS.
fn start(site: &Site, certified: &Certified, listen: SocketAddr) -> Result<Process> {
    let mut command = Command::new("node");
    command.args(["-e", SERVER, "--"]);
    command.arg(listen.ip().to_string());
    command.arg(listen.port().to_string());
    if listen.port() == 443 {
        command.arg(certified.path("site.pem"));
        command.arg(certified.path("site.key"));
    }
    let server = site.topology.spawn_in(site.topology.web(), command)?;
    server.wait_for_line("ready", Duration::from_secs(20))?;
    Ok(server)
}

/// Loads the page and its objects by one connection, and beside the server: what is heard has to be the same.
fn expect_same(site: &Site, browser: &Browser, near: &Browser) -> Result<()> {
    let words = [
        get("/page", HTML),
        get("/o/1", "User-Agent: test\r\n"),
        get("/o/2", "User-Agent: test\r\n"),
        get("/end", "Connection: close\r\n"),
    ]
    .concat();
    let [through, direct] = [browser, near].map(|browser| browser.hear(words.as_bytes()));
    let (through, direct) = (through?, direct?);
    let hints = |bytes: &[u8]| {
        String::from_utf8_lossy(bytes)
            .matches(" 103 Early Hints")
            .count()
    };
    // Hints of an object that came ahead have nothing to say any more.
    ensure!(
        hints(&through.0) == 3 && hints(&direct.0) == 5,
        "{}",
        shown(&through)
    );
    let without_hints = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(&without_dates(bytes)).into_owned();
        let hinted = text
            .split("HTTP/1.1 ")
            .filter(|part| !part.starts_with("103 "));
        hinted.map(str::to_owned).collect::<Vec<_>>()
    };
    ensure!(
        (without_hints(&through.0), through.1) == (without_hints(&direct.0), direct.1),
        "{} instead of {}",
        shown(&through),
        shown(&direct)
    );
    ensure!(figure(site, "used_total")? == 2, "not both came ahead");
    Ok(())
}

/// Opens a WebSocket (RFC 6455), says a text, bytes, and that it closes, and hears each of them.
fn expect_websocket(browser: &Browser) -> Result<()> {
    let mut stream = browser.connect()?;
    // Key and answer are those of §1.3.
    let fields = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    stream.write_all(get("/socket", fields).as_bytes())?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(read_exactly(&mut stream, 1)?);
    }
    let head = String::from_utf8(head)?;
    ensure!(
        head.starts_with("HTTP/1.1 101 ")
            && head.contains("\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"),
        "{head}"
    );
    let words: [(u8, &[u8]); 3] = [
        (1, b"GET / HTTP/1.1"),
        (2, b"\0\r\n\r\n\xff"),
        (8, b"\x03\xe8"),
    ];
    for (kind, word) in words {
        let (kind, length, mask) = (0x80 | kind, u8::try_from(word.len())?, [7, 0, 0xff, 0x5c]);
        let mut frame = vec![kind, 0x80 | length];
        frame.extend(mask);
        frame.extend(
            word.iter()
                .zip(mask.iter().cycle())
                .map(|(byte, mask)| byte ^ mask),
        );
        stream.write_all(&frame)?;
        let heard = read_exactly(&mut stream, 2 + word.len())?;
        ensure!(heard == [&[kind, length], word].concat(), "{heard:?}");
        // A browser is in no hurry.
        thread::sleep(S);
    }
    let (more, _) = read_to_the_end(&mut stream);
    ensure!(more.is_empty(), "{more:?} behind the last word");
    Ok(())
}

#[test]
fn early_hints_and_web_sockets_of_a_real_server_cross_and_hinder_no_object() -> Result<()> {
    let name = "early hints of Node";
    if !privileged(name) || !installed(name, "node") {
        return Ok(());
    }
    for pair in [Pair::Clear, Pair::Trusted] {
        let (own, browser) = pair_site(pair)?;
        let _server = start(own.site(), own.certified(), browser.origin)?;
        let near = Browser {
            place: Place::from(own.site().topology.web()),
            origin: browser.origin,
            tls: match pair {
                Pair::Trusted => Some(own.certified().trust()?),
                _ => None,
            },
        };
        let result =
            expect_same(own.site(), &browser, &near).and_then(|()| expect_websocket(&browser));
        assert!(
            result.is_ok(),
            "{pair:?}: {:#}\n{}",
            result.unwrap_err(),
            own.site().logs()
        );
    }
    Sealed::start(&AS_IT_SHOULD_BE)?.run(|it| {
        let behind = SocketAddr::new(IpAddr::from([127, 0, 0, 1]), 8081);
        let _server = start(&it.site, &it.certified, behind)?;
        let (_origin, browser) = second_origin(it, behind)?;
        ensure!(browser.origin.ip() != IpAddr::from(WEB));
        let near = Browser {
            place: Place::from(it.site.topology.web()),
            origin: behind,
            tls: None,
        };
        expect_same(&it.site, &browser, &near)?;
        expect_websocket(&browser)
    });
    Ok(())
}

//! Pages that are fetched ahead: how long they take, that no byte is another than without, and what ends them. Needs root.

mod altering;
mod answers;
mod bound;
mod browser;
mod cases;
mod certified;
mod hard_pages;
mod hostile;
mod hostile_origin;
mod http2_alone;
mod hubs;
mod large;
mod multiplexed;
mod never_worse;
mod nginx;
mod node;
mod odd_heads;
mod old_servers;
mod origin;
mod origin_bounds;
mod origin_reading;
mod origins;
mod packed;
mod real;
mod sealed;
mod sealed_ends;
mod sessions;
mod speech;
mod stopping;
mod surprises;
mod trusted;

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bentpipe_testbed::peer::{read_exactly, read_to_reset};
use bentpipe_testbed::site::SiteConfig;

use crate::{BENTPIPE, alone};
use browser::{Browser, HTML, exchange, get};
use cases::{BOTH, as_it_is, count_elsewhere, figure, on_site, packets_elsewhere};
use origin::{ELSEWHERE, MIXED, OBJECT, Origin, answer};
use speech::Over;

/// Round trip of the emulated satellite.
const S: Duration = Duration::from_millis(500);

/// Terrestrial round trip.
const T: Duration = Duration::from_millis(40);

/// Rate of the link, bit/s.
const RATE: f64 = 20e6;

/// Time of a page of `n` objects: one satellite round trip, two terrestrial ones and one for every six objects, and the bytes. Over
/// TLS the page's handshake with the origin takes one more; those of its objects' connections are done meanwhile.
fn formula(over: Over, n: usize) -> Duration {
    let handshakes = match over {
        Over::Clear => 0,
        Over::Trusted => 1,
    };
    let trips = u32::try_from(2 + handshakes + n.div_ceil(6)).expect("few");
    let bytes = n * (OBJECT + 150);
    S + trips * T + Duration::from_secs_f64(bytes as f64 * 8.0 / RATE)
}

/// The origin was asked for each object of a page once.
fn expect_each_once(origin: &Origin, name: &str, n: usize) -> Result<()> {
    for i in 0..n {
        expect_once(origin, &[&format!("/o/{name}-{i}")])?;
    }
    Ok(())
}

/// The origin was asked once for each of these.
fn expect_once(origin: &Origin, targets: &[&str]) -> Result<()> {
    for target in targets {
        let count = origin.count(target);
        ensure!(count == 1, "{target}: asked for {count} times");
    }
    Ok(())
}

/// Times that a page is loaded until it takes as long as the formula says.
const TRIES: usize = 8;

#[test]
fn pages_take_one_round_trip_of_the_satellite() {
    let _alone = alone();
    for over in BOTH {
        pages_take_one_round_trip(over);
    }
}

fn pages_take_one_round_trip(over: Over) {
    on_site("pages ahead", over, as_it_is, T, |site, origin, browser| {
        // What the path needs to be known.
        browser.load("warm-1", 1)?;
        browser.load("warm-40", 40)?;
        let mut asked = 0;
        for n in [1, 10, 40] {
            let mut ratios = Vec::new();
            // A busy machine adds to one page and not to all.
            for load in 0..TRIES {
                let name = format!("{load}-{n}");
                let took = browser.load(&name, n)?;
                asked += n;
                expect_each_once(origin, &name, n)?;
                // Bytes cross while other objects are fetched: less than the sum is no fault, less than the way is.
                ensure!(took >= S + 2 * T, "{n} objects took {took:?}");
                ratios.push(took.as_secs_f64() / formula(over, n).as_secs_f64());
                if ratios[load] <= 1.15 {
                    break;
                }
            }
            println!("{over:?}, {n} objects: {ratios:.3?} of the formula");
            ensure!(
                ratios.iter().any(|ratio| *ratio <= 1.15),
                "{n} objects took {ratios:.3?} of the formula"
            );
        }
        let used = figure(site, "used_total")?;
        ensure!(used == asked as u64 + 41, "{used} objects used");
        Ok(())
    });
}

/// Words on a connection that the origin ends, so that all of the answer is heard.
fn conversations() -> Vec<(&'static str, String)> {
    let close = "Connection: close\r\n";
    let one = |target: &str| get(target, close);
    vec![
        ("a page", get("/page/x-3", &format!("{HTML}{close}"))),
        (
            "keep-alive",
            [get("/page/y-2", HTML), get("/o/y-2-0", ""), one("/o/y-2-1")].concat(),
        ),
        (
            "pipelining",
            [
                get("/o/1", ""),
                get("/chunked", ""),
                get("/empty", ""),
                one("/o/2"),
            ]
            .concat(),
        ),
        (
            "HEAD",
            format!("HEAD /o/1 HTTP/1.1\r\nHost: web.example\r\n{close}\r\n"),
        ),
        (
            "POST",
            format!(
                "POST /o/1 HTTP/1.1\r\nHost: web.example\r\nContent-Length: 5\r\n{close}\r\nhello"
            ),
        ),
        (
            "GET, then POST",
            [
                get("/o/1", ""),
                format!("POST /o/1 HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n{close}\r\nhello"),
            ]
            .concat(),
        ),
        (
            "a part",
            get("/o/1", &format!("Range: bytes=0-9\r\n{close}")),
        ),
        (
            "a condition",
            get("/o/1", &format!("If-None-Match: \"a\"\r\n{close}")),
        ),
        ("a redirect", one("/redirect")),
        ("a cookie", one("/sets-cookie")),
        ("chunks", one("/chunked")),
        ("many chunks", one("/chunked-5m")),
        ("no chunks", one("/malformed-chunks")),
        ("until the end", one("/until-close")),
        ("less than promised", one("/short")),
        ("a server of HTTP/1.0", one("/old")),
        (
            "a page of HTTP/1.0",
            get("/old-page", &format!("{HTML}{close}")),
        ),
        ("early hints", one("/hints")),
        ("HTTP/1.0", "GET /o/1 HTTP/1.0\r\n\r\n".into()),
        (
            "a password",
            get("/o/1", &format!("Authorization: Basic YTpi\r\n{close}")),
        ),
        ("a large one", one("/large")),
    ]
}

/// What the origin answers to `words`, all of them.
fn answers(words: &str) -> Vec<u8> {
    let heads = words.split_inclusive("\r\n\r\n");
    let heads = heads.filter(|head| head.contains("HTTP/1."));
    heads
        .flat_map(|head| answer(head.trim_start_matches("hello")))
        .collect()
}

#[test]
fn no_byte_is_another_than_without() {
    BOTH.into_iter().for_each(no_byte_is_another);
}

fn no_byte_is_another(over: Over) {
    on_site(
        "bytes of pages",
        over,
        as_it_is,
        Duration::ZERO,
        |_, _, browser| {
            let heard: Vec<_> = std::thread::scope(|scope| {
                let all: Vec<_> = conversations()
                    .into_iter()
                    .map(|(name, words)| {
                        let heard = scope.spawn({
                            let words = words.clone();
                            move || browser.hear(words.as_bytes())
                        });
                        (name, words, heard)
                    })
                    .collect();
                let joined = all.into_iter();
                joined
                    .map(|(name, words, heard)| (name, words, heard.join().expect("no panic")))
                    .collect()
            });
            for (name, words, heard) in heard {
                let (bytes, in_order) = heard?;
                let expected = answers(&words);
                ensure!(in_order, "{name}: reset after {} bytes", bytes.len());
                ensure!(
                    bytes == expected,
                    "{name}: {:?} instead of {:?}",
                    String::from_utf8_lossy(&bytes[..bytes.len().min(300)]),
                    String::from_utf8_lossy(&expected[..expected.len().min(300)])
                );
            }
            let mut stream = browser.connect()?;
            let head = get("/upgrade", "Connection: Upgrade\r\nUpgrade: echo\r\n");
            stream.write_all(head.as_bytes())?;
            let switched = answer(&head);
            ensure!(read_exactly(&mut stream, switched.len())? == switched);
            stream.write_all(b"\x00\x01web socket")?;
            ensure!(read_exactly(&mut stream, 12)? == b"\x00\x01web socket");
            Ok(())
        },
    );
}

#[test]
fn objects_answer_those_alone_who_ask_as_was_assumed() {
    BOTH.into_iter().for_each(objects_answer_those_alone);
}

fn objects_answer_those_alone(over: Over) {
    on_site(
        "objects of a mixed page",
        over,
        as_it_is,
        Duration::ZERO,
        |site, origin, browser| {
            count_elsewhere(site)?;
            let mut stream = browser.connect()?;
            let mine = "Cookie: a=1\r\n";
            let body = exchange(&mut stream, &get("/mixed", &format!("{HTML}{mine}")))?;
            ensure!(body == MIXED.as_bytes());
            // All that is promised has come, or failed.
            std::thread::sleep(3 * S);
            for (target, fields, times) in [
                ("/o/style", mine, 1),
                ("/o/style", mine, 2),
                ("/who", "Cookie: a=2\r\n", 2),
                ("/varies", "Cookie: a=1\r\nAccept: image/*\r\n", 2),
                ("/redirect", mine, 2),
                ("/sets-cookie", mine, 2),
                ("/large", mine, 2),
            ] {
                let head = get(target, fields);
                let expected = answer(&head);
                stream.write_all(head.as_bytes())?;
                let heard = read_exactly(&mut stream, expected.len())?;
                ensure!(
                    heard == expected,
                    "{target}: {:?}",
                    String::from_utf8_lossy(&heard[..100])
                );
                let asked = origin.count(target);
                ensure!(
                    asked == times,
                    "{target}: the origin was asked {asked} times"
                );
            }
            let used = figure(site, "used_total")?;
            ensure!(used == 1, "{used} objects used");
            let followed = |head: &String| head.contains("elsewhere");
            ensure!(
                !origin.asked().iter().any(followed),
                "a redirect was followed"
            );
            ensure!(
                packets_elsewhere(site)? == 0,
                "links or redirects to another host were followed"
            );
            // Whoever asks for that host is seen.
            let other = Browser {
                origin: SocketAddr::new(ELSEWHERE.into(), over.port()),
                ..browser.clone()
            };
            let _ = other.connect()?.write_all(get("/", HTML).as_bytes());
            let deadline = Instant::now() + Duration::from_secs(10);
            while packets_elsewhere(site)? == 0 {
                ensure!(Instant::now() < deadline, "no packet is counted");
                std::thread::sleep(Duration::from_millis(50));
            }
            Ok(())
        },
    );
}

#[test]
fn a_server_that_dies_in_a_page_resets_it() {
    BOTH.into_iter().for_each(a_server_that_dies_resets);
}

fn a_server_that_dies_resets(over: Over) {
    on_site(
        "death in a page",
        over,
        as_it_is,
        Duration::ZERO,
        |site, _, browser| {
            let mut stream = browser.connect()?;
            stream.write_all(get("/large", HTML).as_bytes())?;
            stream.read_exact(&mut [0; 100_000])?;
            site.kill_server()?;
            // A client waits for its server: what the new one does not know is reset.
            site.start_server()?;
            read_to_reset(&mut stream)?;
            let began = Instant::now();
            browser.load("again-3", 3)?;
            println!("a page after the restart: {:?}", began.elapsed());
            Ok(())
        },
    );
}

#[test]
fn what_a_client_may_not_reach_is_not_fetched_for_it() {
    BOTH.into_iter().for_each(what_may_not_be_reached);
}

fn what_may_not_be_reached(over: Over) {
    on_site(
        "a page that is denied",
        over,
        |config| config.grants = "only = [\"192.0.2.0/24\"]".into(),
        Duration::ZERO,
        |_, origin, browser| {
            let mut stream = browser.connect()?;
            stream.write_all(get("/page/x-3", HTML).as_bytes())?;
            read_to_reset(&mut stream)?;
            ensure!(origin.asked().is_empty(), "{:?}", origin.asked());
            Ok(())
        },
    );
}

#[test]
fn pages_load_where_one_side_alone_fetches_ahead() {
    let sides: [fn(&mut SiteConfig); 2] = [
        |config| config.server_tables.clear(),
        |config| config.client_tables = SiteConfig::new(BENTPIPE).client_tables,
    ];
    for clear in sides {
        on_site(
            "one side alone",
            Over::Clear,
            clear,
            Duration::ZERO,
            |site, _, browser| {
                browser.load("x-7", 7)?;
                let requests = figure(site, "requests_total")?;
                ensure!(requests == 0, "{requests} requests by streams");
                Ok(())
            },
        );
    }
}

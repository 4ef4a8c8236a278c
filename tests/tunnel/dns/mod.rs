//! DNS at the terminal, with real daemons: hits are answered there, misses cross the satellite once, and whoever lies to the
//! server's resolver is not believed.
mod beside;
mod crowd;
mod dnsmasq;
mod own_name;
pub(crate) mod resolver;

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bentpipe_emulator::topology::{TERMINAL_LAN, WEB};
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{Site, SiteConfig};
use bentpipe_testbed::{expect_tunnel_alone, privileged};
use resolver::{Resolver, TRUE, question_end};

use crate::BENTPIPE;

/// Where the client answers.
pub(crate) const LISTEN: &str = "127.0.0.1:5300";

/// One miss may take so much longer than the bare path.
const SLACK: Duration = Duration::from_millis(100);

pub(crate) fn web() -> SocketAddr {
    SocketAddr::new(WEB.into(), 53)
}

fn site() -> Site {
    Site::start(SiteConfig {
        server_tables: format!("[dns]\nservers = \"{WEB}\"\n"),
        client_tables: format!(
            "[socks5]\nlisten = \"127.0.0.1:1080\"\n[dns]\nlisten = \"{LISTEN}\"\nmax_stale = \"1 h\"\n"
        ),
        unprivileged: true,
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site")
}

/// A host that asks.
pub(crate) struct Host(UdpSocket);

impl Host {
    pub(crate) fn at(site: &Site) -> Self {
        let place: Place = site.topology.terminal().into();
        let socket = place
            .at(|| UdpSocket::bind("0.0.0.0:0"))
            .expect("the place");
        let socket = socket.expect("a socket");
        let patience = Some(Duration::from_secs(12));
        socket.set_read_timeout(patience).expect("a timeout");
        Self(socket)
    }

    /// Asks `server` and returns the answer, and how long it took.
    pub(crate) fn ask(&self, server: SocketAddr, name: &str) -> Result<(Vec<u8>, Duration)> {
        let query = query(name);
        let start = Instant::now();
        self.0.send_to(&query, server)?;
        let mut buffer = [0; 4096];
        loop {
            let n = self
                .0
                .recv(&mut buffer)
                .with_context(|| format!("no answer for {name}"))?;
            if buffer[..2] == query[..2] {
                return Ok((buffer[..n].to_vec(), start.elapsed()));
            }
        }
    }

    /// Asks the client.
    fn client(&self, name: &str) -> (Vec<u8>, Duration) {
        let server = LISTEN.parse().expect("an address");
        self.ask(server, name).expect("an answer")
    }
}

/// A query for an address, with EDNS; its identifier is made of the name.
fn query(name: &str) -> Vec<u8> {
    let sum = name
        .bytes()
        .fold(7_u16, |sum, b| sum.wrapping_mul(31).wrapping_add(b.into()));
    let mut bytes = sum.to_be_bytes().to_vec();
    bytes.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).expect("a label"));
        bytes.extend(label.bytes());
    }
    bytes.extend([0, 0, 1, 0, 1]);
    bytes.extend([0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 0]);
    bytes
}

/// The response code and the first address.
pub(crate) fn verdict(answer: &[u8]) -> (u8, Option<Ipv4Addr>) {
    let record = question_end(answer) + 12;
    let found = answer.get(6..8) != Some(&[0, 0]);
    let address = answer.get(record..).and_then(<[u8]>::first_chunk::<4>);
    (
        answer[3] & 15,
        address.filter(|_| found).map(|four| Ipv4Addr::from(*four)),
    )
}

/// Code of the extended error, which ends the answer if it has no text.
fn extended(answer: &[u8]) -> Option<u16> {
    let at = answer.windows(2).rposition(|pair| pair == [0, 15])?;
    let code = answer.get(at + 4..)?.first_chunk::<2>()?;
    Some(u16::from_be_bytes(*code))
}

/// The least of these times: a busy machine adds to one and not to all.
fn least(times: Vec<Duration>) -> Duration {
    times.into_iter().min().unwrap_or_default()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
fn hits_stay_here_and_misses_take_one_round_trip() {
    if !privileged("dns: hits and misses") {
        return;
    }
    let site = site();
    let resolver = Resolver::start(&site.topology.web().into(), web()).expect("a resolver");
    let host = Host::at(&site);
    let (mut bare, mut misses, mut hits) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..9 {
        let name = format!("Name-{number}.Example.com");
        bare.push(host.ask(web(), &name).expect("an answer").1);
        let before = resolver.asked();
        let (answer, miss) = host.client(&name);
        assert_eq!(verdict(&answer), (0, Some(TRUE)));
        assert_eq!(
            answer[12..33],
            query(&name)[12..33],
            "the letters are the host's own"
        );
        misses.push(miss);
        let (answer, hit) = host.client(&name);
        assert_eq!(verdict(&answer), (0, Some(TRUE)));
        hits.push(hit);
        assert_eq!(resolver.asked(), before + 1, "the second is answered here");
    }
    let (bare, miss, hit) = (least(bare), least(misses), least(hits));
    println!("bare path {bare:?}, miss {miss:?}, hit {hit:?}");
    assert!(
        miss < bare + SLACK,
        "a miss takes {miss:?}, the bare path {bare:?}"
    );
    assert!(hit < SLACK, "a hit takes {hit:?}");
}

/// Names that were asked for one after the other, as a page's objects bring them, and again once their answers have expired.
#[test]
fn names_of_a_page_seen_before_take_one_round_trip() {
    if !privileged("dns: companions") {
        return;
    }
    let site = site();
    let _resolver = Resolver::start(&site.topology.web().into(), web()).expect("a resolver");
    let host = Host::at(&site);
    let page = ["short-a.example", "short-b.example", "short-c.example"];
    let load = || page.map(|name| host.client(name).1);
    let [first, second, third] = load();
    println!("seen for the first time: {first:?}, {second:?}, {third:?}");
    thread::sleep(Duration::from_secs(6));
    let [one, two, three] = load();
    println!("and again: {one:?}, {two:?}, {three:?}");
    assert!(second.min(third) > first / 2, "each crosses the first time");
    assert!(two.max(three) < one / 2, "all cross with the first one");
}

/// Many at once take no longer than one.
#[test]
fn misses_cross_beside_each_other_and_nothing_but_the_tunnel_does() {
    if !privileged("dns: in parallel") {
        return;
    }
    let site = site();
    let _resolver = Resolver::start(&site.topology.web().into(), web()).expect("a resolver");
    let host = Host::at(&site);
    host.client("warm.example");
    let capture = site.watch().expect("a capture");
    let server: SocketAddr = LISTEN.parse().expect("an address");
    let misses = |round: usize| {
        let start = Instant::now();
        for number in 0..100 {
            let query = query(&format!("parallel-{round}-{number}.example"));
            host.0.send_to(&query, server).expect("sent");
        }
        let mut buffer = [0; 4096];
        for _ in 0..100 {
            let n = host.0.recv(&mut buffer).expect("an answer");
            assert_eq!(verdict(&buffer[..n]), (0, Some(TRUE)));
        }
        start.elapsed()
    };
    let mut took = (0..3).map(misses);
    assert!(
        took.any(|took| took < Duration::from_millis(900)),
        "100 misses took longer each of three times"
    );
    expect_tunnel_alone(capture).expect("no DNS in clear");
}

/// Hosts ask whom they like, the router or somebody far away, and hear from there.
#[test]
fn intercepted_queries_are_answered_in_the_resolvers_place() {
    if !privileged("dns: interception") {
        return;
    }
    let site = Site::start(SiteConfig {
        server_tables: format!("[dns]\nservers = \"{WEB}\"\n"),
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site");
    let _resolver = Resolver::start(&site.topology.web().into(), web()).expect("a resolver");
    let capture = site.watch().expect("a capture");
    let user: Place = site.topology.user().into();
    let router = IpAddr::from(TERMINAL_LAN);
    let far = ["198.51.100.53", "2001:db8:53::53"].map(|text| text.parse().expect("an address"));
    for (number, address) in [router, far[0], far[1]].into_iter().enumerate() {
        let server = SocketAddr::new(address, 53);
        let asked = query(&format!("host-{number}.example"));
        let socket = user.at(|| {
            let any = if server.is_ipv4() {
                "0.0.0.0:0"
            } else {
                "[::]:0"
            };
            let socket = UdpSocket::bind(any)?;
            // Connected: takes no answer from anywhere else.
            socket.connect(server)?;
            socket.set_read_timeout(Some(Duration::from_secs(5)))?;
            Ok::<_, std::io::Error>(socket)
        });
        let socket = socket.expect("the place").expect("a socket");
        let mut buffer = [0; 1024];
        for _ in 0..2 {
            socket.send(&asked).expect("sent");
            let n = socket
                .recv(&mut buffer)
                .unwrap_or_else(|error| panic!("{server}: {error}\n{}", site.logs()));
            assert_eq!(verdict(&buffer[..n]), (0, Some(TRUE)), "{server}");
        }
        let stream = user.at(|| TcpStream::connect(server)).expect("the place");
        let mut stream = stream.expect("a connection");
        let length = u16::try_from(asked.len()).expect("short").to_be_bytes();
        stream
            .write_all(&[&length, asked.as_slice()].concat())
            .expect("sent");
        stream.shutdown(std::net::Shutdown::Write).expect("ended");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("an answer");
        assert_eq!(verdict(&bytes[2..]), (0, Some(TRUE)), "{server} over TCP");
    }
    expect_tunnel_alone(capture).expect("no DNS in clear");
}

#[test]
fn who_lies_to_the_resolver_is_not_believed() {
    if !privileged("dns: hostile answers") {
        return;
    }
    let site = site();
    let _resolver = Resolver::start(&site.topology.web().into(), web()).expect("a resolver");
    let host = Host::at(&site);
    for label in ["spoofed", "malformed", "oversized", "lower"] {
        let (answer, _) = host.client(&format!("{label}.example"));
        assert_eq!(verdict(&answer), (0, Some(TRUE)), "{label}");
    }
    // Nobody else answers either, and that is said in bounded time.
    let (answer, took) = host.client("silent.example");
    assert_eq!((verdict(&answer), extended(&answer)), ((2, None), Some(22)));
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn long_answers_are_had_over_tcp() {
    if !privileged("dns: TCP") {
        return;
    }
    let site = site();
    let _resolver = Resolver::start(&site.topology.web().into(), web()).expect("a resolver");
    let host = Host::at(&site);
    let (cut, _) = host.client("big.example");
    assert_eq!((cut[2] & 2, verdict(&cut)), (2, (0, None)), "truncated");
    let place: Place = site.topology.terminal().into();
    let stream = place.at(|| TcpStream::connect(LISTEN)).expect("the place");
    let mut stream = stream.expect("a connection");
    // Two at once, and the end before the answers.
    for name in ["big.example", "small.example"] {
        let query = query(name);
        let length = u16::try_from(query.len()).expect("short").to_be_bytes();
        stream
            .write_all(&[&length, query.as_slice()].concat())
            .expect("sent");
    }
    stream.shutdown(std::net::Shutdown::Write).expect("ended");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("answers");
    let length = usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
    let (first, second) = bytes[2..].split_at(length);
    assert_eq!(verdict(first), (0, Some(TRUE)));
    assert!(
        length > 3000 && first[2] & 2 == 0,
        "{length} bytes, not truncated"
    );
    assert_eq!(verdict(&second[2..]), (0, Some(TRUE)));
}

#[test]
fn an_outage_leaves_stale_answers_and_short_waits() {
    if !privileged("dns: outage") {
        return;
    }
    let mut site = site();
    let _resolver = Resolver::start(&site.topology.web().into(), web()).expect("a resolver");
    let host = Host::at(&site);
    host.client("short.example");
    site.stop_server().expect("it stops");
    // Its goodbye takes half a round trip; the answer's second is over then, too.
    thread::sleep(Duration::from_millis(1500));
    let (answer, took) = host.client("short.example");
    assert_eq!(
        (verdict(&answer), extended(&answer)),
        ((0, Some(TRUE)), Some(3))
    );
    assert!(
        took < Duration::from_millis(400),
        "a stale answer after {took:?}"
    );
    let (answer, took) = host.client("unknown.example");
    assert_eq!(verdict(&answer), (2, None));
    assert!(took < Duration::from_secs(5), "{took:?}");
    site.start_server().expect("it starts");
    let until = Instant::now() + Duration::from_secs(20);
    while verdict(&host.client("later.example").0) != (0, Some(TRUE)) {
        assert!(
            Instant::now() < until,
            "no answers after the outage\n{}",
            site.logs()
        );
    }
}

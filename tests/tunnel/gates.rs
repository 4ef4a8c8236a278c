//! Connections that are not accepted before the server has connected: `connect` itself tells the truth.
//!
//! Ports 25 and 179 always, others by rule; from the LAN and from the terminal, over IPv4 and IPv6. Needs root.

use std::io::{ErrorKind, Result};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_emulator::topology::{GATEWAY_WAN, GATEWAY_WAN6, USER, USER6, WEB, WEB6, host};
use bentpipe_testbed::peer::{PATIENCE, Service, read_to_eof, set_patience, who};
use bentpipe_testbed::privileged;
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{Carried, Site, SiteConfig};
use socket2::{Domain, Socket, Type};

use crate::BENTPIPE;

const RTT: Duration = Duration::from_millis(500);

/// A refusal takes one RTT, and the host's second attempt a second after the first.
const REFUSED_BY: Duration = Duration::from_secs(3);

/// Time for which a host of both families tries IPv6 alone (RFC 8305 §5).
const HEAD_START: Duration = Duration::from_millis(250);

/// Connections that begin together.
const TOGETHER: usize = 20;

const CLIENT: &str = "[intercept]\ninterfaces = [\"lan0\"]\nlocal = true\nbypass = [\"10.30.0.11\"]\n\
    [[rule]]\ndestinations = [\"10.30.0.12\"]\noptimistic = true\n[[rule]]\nports = [8025]\noptimistic = false\n";

fn site() -> Site {
    Site::start(SiteConfig {
        client_tables: CLIENT.into(),
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site")
}

/// How `connect` ends, and how long it takes.
fn connect(place: &Place, address: SocketAddr) -> (Result<TcpStream>, Duration) {
    let connecting = || {
        let began = Instant::now();
        (
            TcpStream::connect_timeout(&address, PATIENCE),
            began.elapsed(),
        )
    };
    place.at(connecting).expect("the namespace is there")
}

fn seen(stream: TcpStream) -> IpAddr {
    let mut stream = stream;
    set_patience(&stream, PATIENCE).expect("a socket");
    let line = read_to_eof(&mut stream).expect("a line");
    String::from_utf8(line)
        .expect("text")
        .trim()
        .parse()
        .expect("an address")
}

#[test]
fn connect_succeeds_and_fails_as_at_the_destination() {
    if !privileged("gates: connect") {
        return;
    }
    let site = site();
    let web: Place = site.topology.web().into();
    let places: [Place; 2] = [site.topology.user().into(), site.topology.terminal().into()];
    for (address, gateway) in [
        (IpAddr::from(WEB), IpAddr::from(GATEWAY_WAN)),
        (WEB6.into(), GATEWAY_WAN6.into()),
    ] {
        for port in [25, 8025] {
            let service =
                Service::start(&web, SocketAddr::new(address, port), who).expect("a server");
            for place in &places {
                let (stream, took) = connect(place, service.address);
                let stream = stream.unwrap_or_else(|error| panic!("{}: {error}", service.address));
                assert!(
                    took >= RTT,
                    "accepted after {took:?}, before the server can have answered"
                );
                assert_eq!(seen(stream), gateway);
            }
        }
        // Nobody listens: from the LAN first, then the kernel knows for both.
        let closed = SocketAddr::new(address, 179);
        for place in &places {
            let (stream, took) = connect(place, closed);
            assert_eq!(
                stream.expect_err("nobody listens").kind(),
                ErrorKind::ConnectionRefused
            );
            assert!(took <= REFUSED_BY, "{took:?}");
        }
    }
}

#[test]
fn what_is_left_alone_and_what_a_rule_excepts_does_not_wait() {
    if !privileged("gates: exceptions") {
        return;
    }
    let site = site();
    let (user, web): (Place, Place) = (site.topology.user().into(), site.topology.web().into());
    let bypassed =
        Service::start(&web, SocketAddr::new(host(1).into(), 25), who).expect("a server");
    let (stream, _) = connect(&user, bypassed.address);
    assert_eq!(
        seen(stream.expect("a direct connection")),
        IpAddr::from(USER)
    );
    let excepted =
        Service::start(&web, SocketAddr::new(host(2).into(), 8025), who).expect("a server");
    let (stream, took) = connect(&user, excepted.address);
    assert_eq!(
        seen(stream.expect("a connection")),
        IpAddr::from(GATEWAY_WAN)
    );
    assert!(
        took < RTT,
        "an earlier rule accepts it at once, not after {took:?}"
    );
}

/// A table that is put back has forgotten whom it was to admit.
#[test]
fn an_admission_that_another_program_flushes_is_given_again() {
    if !privileged("gates: flushed") {
        return;
    }
    let site = site();
    let (user, web): (Place, Place) = (site.topology.user().into(), site.topology.web().into());
    let service = Service::start(&web, SocketAddr::new(WEB.into(), 25), who).expect("a server");
    let (stream, took) = thread::scope(|scope| {
        let connecting = scope.spawn(|| connect(&user, service.address));
        // After the server's answer, before the host's second attempt.
        thread::sleep(RTT + Duration::from_millis(250));
        let flush = ["flush", "set", "inet", "bentpipe_client", "admitted4"];
        site.topology.terminal().run("nft", &flush).expect("a set");
        connecting.join().expect("an outcome")
    });
    let stream = stream.unwrap_or_else(|error| panic!("{error} after {took:?}"));
    assert!(took <= Duration::from_secs(5), "{took:?}");
    assert_eq!(seen(stream), IpAddr::from(GATEWAY_WAN));
}

/// As when a gate opens while a host's first attempt is on its way: what the server is asked for then is the one connection.
#[test]
fn what_is_let_in_before_the_servers_answer_is_one_connection() {
    if !privileged("gates: let in before the answer") {
        return;
    }
    let site = site();
    let (user, web): (Place, Place) = (site.topology.user().into(), site.topology.web().into());
    for (address, own, gateway, set) in [
        (
            IpAddr::from(WEB),
            IpAddr::from(USER),
            IpAddr::from(GATEWAY_WAN),
            "admitted4",
        ),
        (WEB6.into(), USER6.into(), GATEWAY_WAN6.into(), "admitted6"),
    ] {
        let at = SocketAddr::new(address, 25);
        let service = Service::start(&web, at, who).expect("a server");
        let from = SocketAddr::new(own, 40_025);
        let element = format!("{{ {own} . {} . {address} . 25 timeout 10s }}", from.port());
        let admit = ["add", "element", "inet", "bentpipe_client", set, &element];
        site.topology.terminal().run("nft", &admit).expect("a set");
        let connecting = || {
            let socket = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
            socket.bind(&from.into())?;
            let began = Instant::now();
            socket.connect_timeout(&at.into(), PATIENCE)?;
            Result::Ok((TcpStream::from(socket), began.elapsed()))
        };
        let connected = user.at(connecting).expect("the namespace is there");
        let (stream, took) = connected.expect("a connection");
        assert!(took < RTT, "not let in at once, but after {took:?}");
        assert_eq!(seen(stream), gateway);
        thread::sleep(RTT);
        assert_eq!(service.accepted(), 1, "connections to {address}");
    }
}

/// IPv6 that is broken behind the server: what hosts send there vanishes. Who is told "connected" at once does not fall back to IPv4.
#[test]
fn ipv6_waits_for_the_servers_answer_until_it_has_led_somewhere() {
    if !privileged("gates: IPv6 that leads nowhere") {
        return;
    }
    let site = doubtful_site();
    let (user, web): (Place, Place) = (site.topology.user().into(), site.topology.web().into());
    let at = |address: IpAddr, port| SocketAddr::new(address, port);
    let void = "add table ip6 void; add chain ip6 void in { type filter hook input priority filter; }; \
         add rule ip6 void in meta l4proto tcp drop";
    site.topology.web().run("nft", &[void]).expect("a table");
    let service = |address, port| Service::start(&web, at(address, port), who).expect("a server");
    // The first host: it tries IPv6 for a quarter of a second, then IPv4.
    let v6_alone = || TcpStream::connect_timeout(&at(WEB6.into(), 8101), HEAD_START);
    let silence = user.at(v6_alone).expect("the namespace is there");
    assert_eq!(silence.expect_err("accepted").kind(), ErrorKind::TimedOut);
    let v4 = service(WEB.into(), 8103);
    let (stream, took) = connect(&user, v4.address);
    assert_eq!(seen(stream.expect("IPv4")), IpAddr::from(GATEWAY_WAN));
    assert!(took < RTT, "IPv4 has nothing to do with it: {took:?}");
    await_line(&site, "the server does not reach an IPv6 destination");
    let (stream, took) = connect(&user, at(WEB6.into(), 8102));
    assert!(stream.is_err() && took > RTT, "accepted after {took:?}");
    // It works again: the first waits for the answer, and the next does not.
    let remove = ["delete", "table", "ip6", "void"];
    site.topology
        .web()
        .run("nft", &remove)
        .expect("it is there");
    let v6 = service(WEB6.into(), 8104);
    let (stream, took) = connect(&user, v6.address);
    assert_eq!(seen(stream.expect("IPv6")), IpAddr::from(GATEWAY_WAN6));
    assert!(took >= RTT, "{took:?}");
    await_line(&site, "IPv6 destinations are reached");
    expect_at_once(&user, v6.address);
}

/// IPv6 that leads somewhere: of hosts that begin together, the first that is reached ends the doubt while the others wait.
#[test]
fn ipv6_is_accepted_at_once_from_the_second_connection_on() {
    if !privileged("gates: IPv6 that leads somewhere") {
        return;
    }
    let site = doubtful_site();
    let (user, web): (Place, Place) = (site.topology.user().into(), site.topology.web().into());
    let at = SocketAddr::new(WEB6.into(), 8105);
    let service = Service::start(&web, at, who).expect("a server");
    thread::scope(|scope| {
        let hosts = (0..TOGETHER).map(|_| scope.spawn(|| connect(&user, at)));
        for host in hosts.collect::<Vec<_>>() {
            let (stream, took) = host.join().expect("an outcome");
            assert_eq!(seen(stream.expect("IPv6")), IpAddr::from(GATEWAY_WAN6));
            assert!(took >= RTT, "{took:?}");
        }
    });
    thread::sleep(RTT);
    assert_eq!(service.accepted(), TOGETHER, "connections at the web");
    expect_at_once(&user, at);
}

/// Site whose server gives up soon.
fn doubtful_site() -> Site {
    let site = Site::start(SiteConfig {
        client_tables: "[intercept]\ninterfaces = [\"lan0\"]\n".into(),
        server_tables: "connect_timeout = \"2 s\"\n".into(),
        ..SiteConfig::new(BENTPIPE)
    });
    site.expect("a site")
}

/// The gate opens a moment after the first is reached, and on a busy machine a longer one.
fn expect_at_once(user: &Place, address: SocketAddr) {
    let at_once = |_| {
        let (stream, took) = connect(user, address);
        assert_eq!(seen(stream.expect("IPv6")), IpAddr::from(GATEWAY_WAN6));
        took < RTT
    };
    assert!((0..10).any(at_once), "none is accepted at once");
}

fn await_line(site: &Site, line: &str) {
    let found = || site.logs().contains(line);
    let tried = (0..100).any(|_| {
        thread::sleep(Duration::from_millis(50));
        found()
    });
    assert!(tried, "`{line}` is not in\n{}", site.logs());
}

#[test]
fn behind_splitters_connections_wait_as_well() {
    if !privileged("gates: splitters") {
        return;
    }
    let waits =
        "[intercept]\ninterfaces = [\"lan0\"]\n[[rule]]\nports = [8025]\noptimistic = false\n";
    for carried in [Carried::IntegratedAtTerminal, Carried::Distributed] {
        let site = Site::start(SiteConfig {
            carried,
            client_tables: waits.into(),
            ..SiteConfig::new(BENTPIPE)
        });
        let site = site.expect("a site");
        let (user, web): (Place, Place) = (site.topology.user().into(), site.topology.web().into());
        for address in [IpAddr::from(WEB), WEB6.into()] {
            let service = Service::start(&web, SocketAddr::new(address, 8025), who);
            let service = service.expect("a server");
            let (stream, took) = connect(&user, service.address);
            let last = seen(stream.expect("a connection"));
            assert_ne!(last, IpAddr::from(USER), "{carried:?}: nobody has split it");
            assert!(
                took >= RTT,
                "{carried:?} {address}: accepted after {took:?}"
            );
            drop(service);
            let (stream, took) = connect(&user, SocketAddr::new(address, 8025));
            assert!(
                stream.is_err() && took >= RTT,
                "{carried:?} {address}: {took:?}"
            );
        }
    }
}

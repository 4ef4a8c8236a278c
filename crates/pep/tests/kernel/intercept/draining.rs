//! A client that drains: what hosts begin is neither refused nor let out, and the next client takes it in.

use std::io::Read as _;
use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use bentpipe_pep::client::intercept::{DnsInterception, Interception, Other};
use bentpipe_testbed::privileged;

use super::inside::Inside;
use super::net::{Echo, Net, V4, V6, connect_within, exchange, send_other};
use super::packets::{Far, expect_conversation};
use super::upkeep::mend;

const PORT: u16 = 15_082;

/// Longer than a host takes for its fifth attempt, after 15 s: a busy machine misses some.
const PATIENCE: Duration = Duration::from_secs(40);

fn interception() -> Interception {
    Interception {
        interfaces: vec!["lan0".into()],
        ..Interception::new(PORT)
    }
}

#[test]
fn what_hosts_begin_while_a_client_drains_reaches_the_next_one() {
    if !privileged("what_hosts_begin_while_a_client_drains_reaches_the_next_one") {
        return;
    }
    for fail_open in [false, true] {
        let net = Net::new();
        let it = Interception {
            fail_open,
            ..interception()
        };
        let echo = Echo::start(&net.router, PORT, it.routing.own_mark());
        let mut installed = Inside::install(&net.router, &it);
        let mut open = connect_within(&net.lan, V4, PATIENCE).unwrap();
        installed.at(|installed| installed.drain()).unwrap();
        thread::scope(|scope| {
            let late = [V4, V6].map(|to| scope.spawn(|| connect_within(&net.lan, to, PATIENCE)));
            thread::sleep(Duration::from_millis(300));
            // As its relays end, and whatever changes meanwhile.
            let changed = Interception {
                bypass: vec!["203.0.113.0/24".parse().unwrap()],
                ..it.clone()
            };
            installed
                .at(|installed| installed.update(&changed))
                .unwrap();
            net.router.run("nft", &["flush", "ruleset"]).unwrap();
            mend(&mut installed);
            thread::sleep(Duration::from_millis(1200));
            assert!(
                late.iter().all(|late| !late.is_finished()),
                "taken in, or refused"
            );
            std::io::Write::write_all(&mut open, b"ping").unwrap();
            let mut answer = String::new();
            open.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, format!("{V4} ping"), "what was open goes on");
            drop(echo);
            assert_eq!(net.leaked(), 0, "{it:?}");
            installed.remove();
            let _echo = Echo::start(&net.router, PORT, it.routing.own_mark());
            let next = Inside::install(&net.router, &it);
            for late in late {
                late.join().unwrap().expect("the next client's connection");
            }
            assert_eq!(exchange(&net.lan, V4), format!("{V4} ping"));
            next.remove();
        });
        assert_eq!(net.leaked(), 0);
    }
}

#[test]
fn new_flows_and_lookups_wait_while_those_that_there_are_go_on() {
    if !privileged("new_flows_and_lookups_wait_while_those_that_there_are_go_on") {
        return;
    }
    let net = Net::new();
    let it = Interception {
        other: Other::Tunnel,
        dns: Some(DnsInterception::at(15_054)),
        ..interception()
    };
    let mut installed = Inside::install(&net.router, &it);
    let far = Far::behind(&net.router);
    installed.at(|installed| installed.attach()).unwrap();
    expect_conversation(&net.lan, &far);
    let open = || {
        let socket = net
            .lan
            .enter(|| UdpSocket::bind("0.0.0.0:0").unwrap())
            .unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(300)))
            .unwrap();
        socket
    };
    let old = open();
    // One that nobody answers: it is new to the kernel for ever.
    let sink = far
        .0
        .enter(|| UdpSocket::bind("192.0.2.1:7007").unwrap())
        .unwrap();
    sink.set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let arrives = |socket: &UdpSocket| {
        socket.send_to(b"x", "192.0.2.1:7007").unwrap();
        sink.recv_from(&mut [0; 8]).is_ok()
    };
    assert!(arrives(&old));
    installed.at(|installed| installed.drain()).unwrap();
    assert!(arrives(&old), "a flow that is there");
    let new = open();
    assert!(!arrives(&new), "a new one");
    let resolver = net.router.enter(|| {
        bentpipe_sys::socket::transparent_udp(
            "0.0.0.0:15054".parse().unwrap(),
            it.routing.own_mark(),
        )
    });
    let resolver = resolver.unwrap().unwrap();
    resolver.set_nonblocking(true).unwrap();
    new.send_to(b"?", "192.0.2.1:53").unwrap();
    thread::sleep(Duration::from_millis(100));
    assert!(resolver.recv_from(&mut [0; 8]).is_err(), "a lookup");
    send_other(&net.lan);
    assert_eq!(net.leaked(), 0);
}

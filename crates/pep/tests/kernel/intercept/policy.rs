//! Rules of the user's, the guard, and what happens on failure where the user wants it to go on in clear.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_pep::client::intercept::{
    Action, Carrying, Interception, LearnedAddress, Other, Rule, guard_listing, guard_off,
};
use bentpipe_sys::netns::NetNs;
use bentpipe_sys::socket::set_mark;
use bentpipe_testbed::privileged;
use socket2::SockRef;

use super::inside::Inside;
use super::net::{Echo, Net, OTHERS, V4, V6, connect, exchange, send_other};
use super::packets::{Far, expect_conversation, socket};

const PORT: u16 = 15_080;
const UDP: u8 = 17;

fn interception(rules: Vec<Rule>) -> Interception {
    Interception {
        interfaces: vec!["lan0".into()],
        local: true,
        rules,
        ..Interception::new(PORT)
    }
}

/// A datagram to `to`, with a DSCP.
fn send(from: &NetNs, to: &str, dscp: u32) {
    let to: SocketAddr = to.parse().unwrap();
    let socket = socket(from, if to.is_ipv4() { "0.0.0.0" } else { "::" });
    let options = SockRef::from(&socket);
    match to {
        SocketAddr::V4(_) => options.set_tos_v4(dscp << 2).unwrap(),
        SocketAddr::V6(_) => options.set_tclass_v6(dscp << 2).unwrap(),
    }
    let _ = socket.send_to(b"x", to);
    // For neighbour discovery.
    std::thread::sleep(Duration::from_millis(20));
}

#[test]
fn the_first_rule_that_matches_decides_and_counts() {
    if !privileged("the_first_rule_that_matches_decides_and_counts") {
        return;
    }
    let net = Net::new();
    let rules = vec![
        Rule {
            ports: vec![81, 9998],
            destinations: vec![
                "192.0.2.0/25".parse().unwrap(),
                "2001:db8::/33".parse().unwrap(),
            ],
            ..Rule::for_all(Action::Block)
        },
        Rule {
            protocols: vec![UDP],
            ports: vec![9998, 9999],
            ..Rule::for_all(Action::Direct)
        },
        Rule {
            protocols: vec![UDP],
            dscp: vec![46],
            ..Rule::for_all(Action::Direct)
        },
        Rule {
            interfaces: vec!["lan0".into()],
            sources: vec!["10.1.0.0/24".parse().unwrap()],
            protocols: vec![UDP],
            ports: vec![7777],
            ..Rule::for_all(Action::Direct)
        },
    ];
    let it = interception(rules);
    let _echo = Echo::start(&net.router, PORT, it.routing.own_mark());
    let mut installed = Inside::install(&net.router, &it);
    let mut leaked = 0;
    let mut expect = |more: u64, what: &str| {
        leaked += more;
        assert_eq!(net.leaked(), leaked, "{what}");
    };
    for (from, lan) in [(&net.lan, 1), (&net.router, 0)] {
        for (to, v4) in [("192.0.2.1", 1), ("[2001:db8::1]", 0)] {
            let at = |port: u16| format!("{to}:{port}");
            let error = connect(from, &at(81)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            send(from, &at(9998), 0);
            expect(0, "blocked before it is direct");
            send(from, &at(9999), 0);
            expect(1, "direct by its port");
            send(from, &at(5060), 0);
            expect(0, "named by no rule");
            send(from, &at(5060), 46);
            expect(1, "direct by its DSCP");
            send(from, &at(7777), 0);
            expect(lan * v4, "direct for one interface's IPv4");
            assert_eq!(exchange(from, &at(80)), format!("{to}:80 ping"));
            expect(0, "TCP is carried");
        }
    }
    // The table is made anew, and goes on counting.
    installed.at(|installed| installed.update(&it)).unwrap();
    let counts = installed.at(|installed| installed.counts()).unwrap();
    let packets: Vec<u64> = counts.iter().map(|count| count.packets).collect();
    assert_eq!(packets, [8, 4, 4, 1], "{counts:?}");
    assert_eq!(counts[3].bytes, 29, "{counts:?}");
}

#[test]
fn learned_addresses_are_destinations_of_their_rule() {
    if !privileged("learned_addresses_are_destinations_of_their_rule") {
        return;
    }
    let net = Net::new();
    let it = interception(vec![
        rule_for_names(Action::Block, 81),
        rule_for_names(Action::Direct, 80),
    ]);
    let mut installed = Inside::install(&net.router, &it);
    for to in [V4, V6] {
        connect(&net.lan, to).unwrap_err();
        assert_eq!(net.leaked(), 0, "{to} is nobody's");
        let address = to.parse::<SocketAddr>().unwrap().ip();
        let learn = |rule| {
            move |installed: &mut bentpipe_pep::client::intercept::Installed| {
                let time = Duration::from_secs(60);
                let lesson = |time| LearnedAddress {
                    rule,
                    address,
                    time,
                };
                installed.learn(&[lesson(time), lesson(2 * time)])
            }
        };
        installed.at(learn(1)).unwrap();
        for what in ["learned", "kept"] {
            let error = connect(&net.lan, to).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{to} is {what}");
            assert_eq!(net.leaked(), 1, "{to} is {what}");
            net.uplink.run("nft", &["reset", "counters"]).unwrap();
            installed.at(|installed| installed.update(&it)).unwrap();
        }
        let other = to.replace(":80", ":81");
        assert_eq!(
            connect(&net.lan, &other).unwrap_err().kind(),
            ErrorKind::TimedOut
        );
        installed.at(learn(0)).unwrap();
        assert_eq!(
            connect(&net.lan, &other).unwrap_err().kind(),
            ErrorKind::ConnectionRefused
        );
        assert_eq!(net.leaked(), 0);
    }
}

fn rule_for_names(action: Action, port: u16) -> Rule {
    Rule {
        learned: true,
        ports: vec![port],
        ..Rule::for_all(action)
    }
}

/// The guard, removed with the test.
struct Guard<'a>(&'a NetNs);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let _ = self.0.enter(guard_off);
    }
}

/// Packets of the LAN that the guard says it has held back.
fn held_back(router: &NetNs) -> u64 {
    let listing = router.enter(guard_listing).unwrap().unwrap();
    let listing = listing.expect("the guard is on");
    let line = listing.lines().find(|line| line.contains("held back"));
    let count = line.and_then(|line| line.split_whitespace().nth(2));
    count.expect("a counter").parse().expect("a number")
}

#[test]
fn the_guard_holds_without_a_client_and_does_not_disturb_one() {
    if !privileged("the_guard_holds_without_a_client_and_does_not_disturb_one") {
        return;
    }
    let net = Net::new();
    let it = Interception {
        other: Other::Tunnel,
        bypass: vec!["198.51.100.0/24".parse().unwrap()],
        ..interception(vec![Rule {
            protocols: vec![UDP],
            ports: vec![9999],
            ..Rule::for_all(Action::Direct)
        }])
    };
    let nowhere = Interception {
        interfaces: vec!["lan0".into(), "later0".into()],
        ..it.clone()
    };
    net.router.enter(|| nowhere.guard()).unwrap().unwrap();
    let guard = Guard(&net.router);
    for from in [&net.lan, &net.router] {
        send_other(from);
        for to in [V4, V6] {
            connect(from, to).unwrap_err();
        }
        assert_eq!(net.leaked(), 0);
        for to in ["192.0.2.1:9999", "[2001:db8::1]:9999", "198.51.100.1:5"] {
            send(from, to, 0);
        }
        assert_eq!(net.leaked(), 3, "direct rules and `bypass`");
        net.uplink.run("nft", &["reset", "counters"]).unwrap();
    }
    // Several connections' attempts besides.
    let held = held_back(&net.router);
    assert!(held >= OTHERS, "{held} held back");
    let tunnel = socket(&net.router, "0.0.0.0");
    set_mark(&tunnel, it.routing.own_mark()).unwrap();
    tunnel.send_to(b"quic", "192.0.2.1:4433").unwrap();
    assert_eq!(net.leaked(), 1, "the client's own");
    // With a client everything is carried as without the guard.
    let echo = Echo::start(&net.router, PORT, it.routing.own_mark());
    let mut installed = Inside::install(&net.router, &it);
    let far = Far::behind(&net.router);
    installed.at(|installed| installed.attach()).unwrap();
    for from in [&net.lan, &net.router] {
        expect_conversation(from, &far);
        for to in [V4, V6] {
            assert_eq!(exchange(from, to), format!("{to} ping"));
        }
    }
    assert_eq!(net.leaked(), 1);
    assert_eq!(
        held_back(&net.router),
        held,
        "a client carries what it takes in"
    );
    // It outlives the client's own table.
    drop(echo);
    installed.remove();
    for from in [&net.lan, &net.router] {
        send_other(from);
    }
    assert_eq!(net.leaked(), 1);
    assert!(net.router.enter(guard_listing).unwrap().unwrap().is_some());
    drop(guard);
    assert!(net.router.enter(guard_listing).unwrap().unwrap().is_none());
    send_other(&net.lan);
    assert_eq!(net.leaked(), 1 + OTHERS, "the guard is what held it");
}

#[test]
fn what_cannot_be_carried_goes_in_clear_where_that_is_asked_for() {
    if !privileged("what_cannot_be_carried_goes_in_clear_where_that_is_asked_for") {
        return;
    }
    let net = Net::new();
    let mut it = Interception {
        fail_open: true,
        other: Other::Tunnel,
        ..interception(vec![Rule {
            ports: vec![81],
            ..Rule::for_all(Action::Block)
        }])
    };
    let mut installed = Inside::install(&net.router, &it);
    let echo = Echo::start(&net.router, PORT, it.routing.own_mark());
    for from in [&net.lan, &net.router] {
        for to in [V4, V6] {
            assert_eq!(exchange(from, to), format!("{to} ping"));
        }
    }
    assert_eq!(net.leaked(), 0, "it can be carried");
    it.carrying = Carrying::No;
    installed.at(|installed| installed.update(&it)).unwrap();
    for from in [&net.lan, &net.router] {
        send_other(from);
        for to in [V4, V6] {
            assert_eq!(
                connect(from, to).unwrap_err().kind(),
                ErrorKind::ConnectionRefused
            );
        }
        assert_eq!(net.leaked(), OTHERS + 2, "it cannot");
        net.uplink.run("nft", &["reset", "counters"]).unwrap();
        connect(from, "192.0.2.1:81").unwrap_err();
        assert_eq!(net.leaked(), 0, "what is blocked stays so");
    }
    it.carrying = Carrying::Yes;
    installed.at(|installed| installed.update(&it)).unwrap();
    drop(echo);
    send_other(&net.lan);
    for to in [V4, V6] {
        assert_eq!(
            connect(&net.lan, to).unwrap_err().kind(),
            ErrorKind::ConnectionRefused
        );
    }
    assert_eq!(net.leaked(), OTHERS + 2, "nobody is there to carry it");
}

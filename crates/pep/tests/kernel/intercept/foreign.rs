//! Rules and routes of other programs: those that are in the way of the LAN's traffic are named and let nothing out, and the others
//! raise no alarm.

use bentpipe_pep::client::intercept::{Foreign, ForeignLook, Interception};
use bentpipe_sys::netns::NetNs;
use bentpipe_testbed::privileged;

use super::inside::Inside;
use super::net::{Echo, Net, V4, V6, connect, exchange};

const PORT: u16 = 15_086;

fn look(installed: &mut Inside<'_>) -> Foreign {
    installed.at(|installed| ForeignLook::default().look(&installed.wanted()).unwrap())
}

fn ip(place: &NetNs, line: &str) {
    place
        .run("ip", &line.split(' ').collect::<Vec<_>>())
        .unwrap_or_else(|error| panic!("ip {line}: {error}"));
}

/// An interception of `lan0` in `net`, and what is to be heard of it.
fn interception() -> Interception {
    Interception {
        interfaces: vec!["lan0".into()],
        bypass: vec!["198.51.100.0/24".parse().unwrap()],
        ..Interception::new(PORT)
    }
}

/// A router with its neighbours, what is taken in there, and the service that takes it.
fn site() -> (Net, Interception, Echo) {
    let (net, it) = (Net::new(), interception());
    let echo = Echo::start(&net.router, PORT, it.routing.own_mark());
    (net, it, echo)
}

#[test]
fn a_rule_before_ours_is_named_and_what_it_takes_does_not_leave() {
    if !privileged("a_rule_before_ours_is_named") {
        return;
    }
    let (net, it, _echo) = site();
    // Before the start, of our own priority: it is asked first.
    let router = &net.router;
    ip(router, "route add default via 10.2.0.2 table 50");
    ip(router, "-6 route add default via fd00:2::2 table 50");
    ip(router, "route add 192.0.2.0/24 via 10.2.0.2 table 51");
    ip(router, "route add blackhole default table 52");
    ip(router, "rule add priority 99 from 10.1.0.0/24 lookup 50");
    let mut installed = Inside::install(router, &it);
    let thefts = [
        ("", "from 10.1.0.0/24 lookup 50", 99, V4),
        ("", "from all iif lan0 lookup 50", 98, V4),
        ("", "from all lookup 51", 1, V4),
        ("", "from all lookup 52", 50, V4),
        (
            "",
            "from 10.1.0.2/32 ipproto tcp dport 80 lookup 50",
            50,
            V4,
        ),
        ("", "from all to 192.0.2.1/32 blackhole", 50, V4),
        ("", "from all to 192.0.0.0/8 lookup main", 50, V4),
        ("", "from all goto 32766", 50, V4),
        ("-6 ", "from all iif lan0 lookup 50", 50, V6),
    ];
    for (family, rule, priority, to) in thefts {
        if priority != 99 {
            ip(
                router,
                &format!("{family}rule add priority {priority} {rule}"),
            );
        }
        net.uplink.run("nft", &["reset", "counters"]).unwrap();
        let seen = look(&mut installed).ahead;
        assert_eq!(seen.len(), 1, "{rule}: {seen:?}");
        let [why, mend] = seen[0].faults();
        assert!(
            why.contains("comes in by lan0")
                && why.contains("lookup") | why.contains("blackhole") | why.contains("goto"),
            "{why}"
        );
        assert!(
            mend.contains(&format!("rule del priority {priority}")),
            "{mend}"
        );
        assert!(connect(&net.lan, to).is_err(), "{rule}");
        assert_eq!(net.leaked(), 0, "{rule}");
        ip(
            router,
            &format!("{family}rule del priority {priority} {rule}"),
        );
        assert_eq!(
            exchange(&net.lan, to),
            format!("{to} ping"),
            "without {rule}"
        );
    }
}

#[test]
fn rules_that_take_nothing_of_ours_raise_no_alarm() {
    if !privileged("rules_that_take_nothing_of_ours") {
        return;
    }
    let (net, it, _echo) = site();
    let router = &net.router;
    ip(router, "route add default via 10.2.0.2 table 50");
    ip(router, "route add 10.1.0.0/24 dev lan0 table 51");
    ip(router, "route add 198.51.100.0/24 via 10.2.0.2 table 51");
    let mut installed = Inside::install(router, &it);
    for rule in [
        "from all lookup 99",
        "from all lookup 51",
        "from all to 10.1.0.0/24 lookup main",
        "from all to 198.51.100.0/24 lookup 50",
        "from all iif wan0 lookup 50",
        "from all oif wan0 lookup 50",
        "from 10.2.0.0/24 lookup 50",
        "from all fwmark 0x1 lookup 50",
        "from all fwmark 0x50000000/0xf0000000 lookup 50",
        "from all lookup main suppress_prefixlength 0",
    ] {
        ip(router, &format!("rule add priority 50 {rule}"));
        assert_eq!(look(&mut installed), Foreign::default(), "{rule}");
        assert_eq!(exchange(&net.lan, V4), format!("{V4} ping"), "{rule}");
        ip(router, "rule del priority 50");
    }
}

#[test]
fn routes_to_hosts_with_addresses_of_the_lan_raise_no_alarm_unless_they_lead_over_the_uplink() {
    if !privileged("routes_to_hosts_with_addresses_of_the_lan") {
        return;
    }
    let net = Net::new();
    let router = &net.router;
    ip(router, "link add dial0 type veth peer name dial1");
    ip(router, "link set dial0 up");
    ip(router, "link set dial1 up");
    let mut installed = Inside::install(router, &interception());
    for (route, stray) in [
        ("10.1.0.128/25 via 10.1.0.2", false),
        ("10.1.0.77/32 dev dial0", false),
        ("fd00:1::77/128 dev dial0", false),
        ("10.1.0.77/32 dev dial0 proto dhcp", true),
        ("10.1.0.77/32 via 10.2.0.2", true),
        ("fd00:1::77/128 via fd00:2::2", true),
        ("blackhole 10.1.0.77/32", false),
    ] {
        ip(router, &format!("route add {route}"));
        let seen = look(&mut installed).strays;
        assert_eq!(!seen.is_empty(), stray, "{route}: {seen:?}");
        ip(router, &format!("route del {route}"));
    }
}

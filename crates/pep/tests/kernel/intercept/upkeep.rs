//! What other programs take away is seen and put back, and what the LAN sends meanwhile does not leave.

use std::io::ErrorKind;

use bentpipe_pep::client::intercept::{
    ForeignLook, Interception, Lack, SeenInKernel, guard_off, lacking,
};
use bentpipe_sys::hold::HOLD_TABLE;
use bentpipe_sys::watch::{Object, Watch};
use bentpipe_testbed::privileged;

use super::inside::Inside;
use super::net::{Echo, Net, OTHERS, V4, V6, connect, exchange, send_other};

const PORT: u16 = 15_081;

pub(super) fn interception() -> Interception {
    let mut interception = Interception::new(PORT);
    interception.interfaces = vec!["lan0".into()];
    interception
}

pub(super) fn lacks(installed: &mut Inside<'_>) -> Vec<Lack> {
    installed.at(|installed| {
        let wanted = installed.wanted();
        assert!(installed.is_current(&wanted));
        let mut lacks = lacking(&wanted, &SeenInKernel::look(&wanted).unwrap());
        let foreign = ForeignLook::default().look(&wanted).unwrap();
        lacks.extend(foreign.passages.into_iter().map(Lack::Passage));
        lacks
    })
}

/// Puts back what is missing, as often as that brings to light.
pub(super) fn mend(installed: &mut Inside<'_>) {
    for _ in 0..5 {
        for lack in lacks(installed) {
            installed
                .at(|installed| installed.mend(&lack))
                .unwrap_or_else(|error| panic!("{lack}: {error}"));
        }
    }
    assert_eq!(lacks(installed), []);
}

#[test]
fn what_is_taken_away_is_seen_and_put_back_and_meanwhile_nothing_leaves() {
    if !privileged("what_is_taken_away_is_seen_and_put_back") {
        return;
    }
    let net = Net::new();
    let it = interception();
    let _echo = Echo::start(&net.router, PORT, it.routing.own_mark());
    let mut installed = Inside::install(&net.router, &it);
    assert_eq!(lacks(&mut installed), []);
    let watch = net.router.enter(|| Watch::open().unwrap()).unwrap();
    let thefts = [
        ("nft flush ruleset", "table inet bentpipe_client"),
        (
            "nft flush table inet bentpipe_client",
            "table inet bentpipe_client",
        ),
        (
            "nft flush set inet bentpipe_client exempt6",
            "table inet bentpipe_client",
        ),
        (
            "ip rule del priority 99",
            "IPv4 rule 99 for lan0 to routing table 25200",
        ),
        (
            "ip -6 rule del priority 99",
            "IPv6 rule 99 for lan0 to routing table 25200",
        ),
        ("ip rule del priority 100", "IPv4 rule 100 for lan0"),
        ("ip -6 rule del priority 100", "IPv6 rule 100 for lan0"),
        (
            "ip route flush table 25200",
            "IPv4 route to this machine in routing table 25200",
        ),
        (
            "ip -6 route flush table 25200",
            "IPv6 route to this machine in routing table 25200",
        ),
        (
            "ip addr add 10.9.0.1/24 dev lan0",
            "addresses of the intercepted interfaces",
        ),
    ];
    for (theft, part) in thefts {
        // Not by `run`, whose children count as this process.
        let done = net.router.command("sh").args(["-c", theft]).status();
        assert!(done.unwrap().success(), "{theft}");
        send_other(&net.lan);
        connect_briefly(&net);
        let seen = lacks(&mut installed);
        assert!(
            seen.iter().any(|lack| lack.to_string() == part),
            "{theft}: {seen:?}"
        );
        mend(&mut installed);
        for to in [V4, V6] {
            assert_eq!(exchange(&net.lan, to), format!("{to} ping"), "{theft}");
        }
    }
    assert_eq!(net.leaked(), 0);
    // And who did it is known.
    let changes = net.router.enter(|| watch.take()).unwrap();
    let flushed = Object::Table("bentpipe_client".to_owned());
    let by = changes
        .iter()
        .find(|change| change.object == flushed && change.removed);
    let name = by.and_then(|change| change.by.as_ref()?.name.clone());
    assert_eq!(name.as_deref(), Some("nft"), "{changes:?}");
}

/// A connection that nobody takes in; most thefts leave the table in force, which takes it in.
pub(super) fn connect_briefly(net: &Net) {
    let _ = connect(&net.lan, V4);
}

#[test]
fn a_flushed_guard_keeps_the_lan_in_and_lets_neighbours_pass() {
    if !privileged("a_flushed_guard_keeps_the_lan_in") {
        return;
    }
    let net = Net::new();
    let it = interception();
    let before = net.state();
    net.router.enter(|| it.guard()).unwrap().unwrap();
    send_other(&net.lan);
    net.router.run("nft", &["flush", "ruleset"]).unwrap();
    send_other(&net.lan);
    assert_eq!(net.leaked(), 0);
    // A client puts it back.
    let mut installed = Inside::install(&net.router, &it);
    let seen = lacks(&mut installed);
    assert!(seen.contains(&Lack::Guard), "{seen:?}");
    mend(&mut installed);
    installed.remove();
    send_other(&net.lan);
    assert_eq!(net.leaked(), 0);
    net.router.enter(guard_off).unwrap().unwrap();
    assert_eq!(net.state(), before);
    send_other(&net.lan);
    assert_eq!(net.leaked(), OTHERS, "nothing else kept it in");
}

#[test]
fn a_flushed_guard_of_a_machines_own_traffic_is_put_back() {
    if !privileged("a_flushed_guard_of_a_machines_own_traffic_is_put_back") {
        return;
    }
    let net = Net::new();
    let it = Interception {
        interfaces: Vec::new(),
        local: true,
        ..interception()
    };
    let before = net.state();
    net.router.enter(|| it.guard()).unwrap().unwrap();
    let mut installed = Inside::install(&net.router, &it);
    assert_eq!(lacks(&mut installed), []);
    net.router.run("nft", &["flush", "ruleset"]).unwrap();
    let seen = lacks(&mut installed);
    assert!(seen.contains(&Lack::Guard), "{seen:?}");
    mend(&mut installed);
    installed.remove();
    send_other(&net.router);
    assert_eq!(net.leaked(), 0);
    // And what was told to go is not put back.
    let mut installed = Inside::install(&net.router, &it);
    net.router.enter(guard_off).unwrap().unwrap();
    assert_eq!(lacks(&mut installed), []);
    installed.remove();
    assert_eq!(net.state(), before);
    send_other(&net.router);
    assert_eq!(net.leaked(), OTHERS, "nothing else kept it in");
}

#[test]
fn a_firewall_that_drops_what_is_forwarded_is_given_a_way_for_the_device() {
    if !privileged("a_firewall_that_drops_what_is_forwarded") {
        return;
    }
    let net = Net::new();
    let mut it = interception();
    it.other = bentpipe_pep::client::intercept::Other::Tunnel;
    let firewall = "table ip filter {\n chain FORWARD {\n type filter hook forward priority 0; policy drop;\n }\n}\n";
    net.router
        .enter(|| bentpipe_sys::nft::apply(firewall).unwrap())
        .unwrap();
    let before = net.state();
    let mut installed = Inside::install(&net.router, &it);
    let seen = lacks(&mut installed);
    assert!(
        seen.iter().any(|lack| matches!(lack, Lack::Passage(_))),
        "{seen:?}"
    );
    mend(&mut installed);
    let list = || {
        net.router
            .run("nft", &["list", "table", "ip", "filter"])
            .unwrap()
    };
    assert_eq!(list().matches("bentpipe0").count(), 2, "{}", list());
    installed.remove();
    assert_eq!(net.state(), before);
}

#[test]
fn a_flush_lets_nothing_of_the_machine_itself_leave() {
    if !privileged("a_flush_lets_nothing_of_the_machine_itself_leave") {
        return;
    }
    let net = Net::new();
    let mut it = interception();
    it.local = true;
    it.bypass = vec!["198.51.100.0/24".parse().unwrap()];
    let before = net.state();
    let _echo = Echo::start(&net.router, PORT, it.routing.own_mark());
    let mut installed = Inside::install(&net.router, &it);
    assert!(!installed.at(|installed| installed.lacks_hold()));
    // What may leave passes the second line while the table is there.
    let bypassed = || connect(&net.router, "198.51.100.1:80").unwrap_err().kind();
    assert_eq!(bypassed(), ErrorKind::ConnectionRefused);
    net.uplink.run("nft", &["reset", "counters"]).unwrap();
    for theft in ["flush ruleset", "delete table inet bentpipe_client"] {
        net.router
            .run("sh", &["-c", &format!("nft {theft}")])
            .unwrap();
        send_other(&net.router);
        for to in [V4, V6] {
            assert!(connect(&net.router, to).is_err(), "{to} after {theft}");
        }
        let denied = net
            .router
            .run("nft", &["delete", "table", "inet", HOLD_TABLE]);
        assert!(
            denied.is_err(),
            "another program removes what it does not own"
        );
        mend(&mut installed);
        for to in [V4, V6] {
            assert_eq!(exchange(&net.router, to), format!("{to} ping"), "{theft}");
        }
    }
    assert_eq!(net.leaked(), 0);
    // A reload that takes in the LAN alone gives the machine back its own way.
    it.local = false;
    installed.at(|installed| installed.update(&it).unwrap());
    send_other(&net.router);
    assert_eq!(net.leaked(), OTHERS);
    installed.remove();
    assert_eq!(net.state(), before);
}

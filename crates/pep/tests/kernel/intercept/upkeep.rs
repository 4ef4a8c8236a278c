//! What other programs take away is seen and put back, and what the LAN sends meanwhile does not leave.

use std::io::ErrorKind;

use bentpipe_pep::client::intercept::{
    ForeignLook, Interception, Lack, SeenInKernel, guard_listing, guard_off, lacking,
};
use bentpipe_sys::hold::HOLD_TABLE;
use bentpipe_sys::watch::{Object, Watch};
use bentpipe_testbed::privileged;

use super::inside::Inside;
use super::net::{Echo, Net, OTHERS, V4, V6, connect, exchange, send_other};

const PORT: u16 = 15_081;

fn interception() -> Interception {
    let mut interception = Interception::new(PORT);
    interception.interfaces = vec!["lan0".into()];
    interception
}

fn lacks(installed: &mut Inside<'_>) -> Vec<Lack> {
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
fn mend(installed: &mut Inside<'_>) {
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
            "IPv4 rule 99 to routing table 25200",
        ),
        (
            "ip -6 rule del priority 99",
            "IPv6 rule 99 to routing table 25200",
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
fn connect_briefly(net: &Net) {
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

fn ip(net: &Net, line: &str) {
    let words: Vec<_> = line.split(' ').collect();
    net.router.run("ip", &words).unwrap();
}

/// Makes `lan0` a port of a bridge that gets its addresses, as a network manager does.
fn bridge(net: &Net) {
    ip(net, "link add br-lan type bridge");
    ip(net, "link set br-lan up");
    ip(net, "link add share0 link br-lan type macvlan");
    ip(net, "link set lan0 master br-lan");
    for address in ["10.1.0.1/24", "fd00:1::1/64"] {
        ip(net, &format!("addr del {address} dev lan0"));
        ip(net, &format!("addr add {address} dev br-lan"));
    }
    // Until the bridge forwards and the neighbours know each other.
    let pings = || net.lan.run("ping", &["-c1", "-W1", "10.1.0.1"]).is_ok();
    assert!((0..20).any(|_| pings()), "the bridge forwards");
}

#[test]
fn a_lan_behind_a_bridge_that_is_not_named_is_kept_in() {
    if !privileged("a_lan_behind_a_bridge_that_is_not_named_is_kept_in") {
        return;
    }
    let net = Net::new();
    let it = interception();
    net.router.enter(|| it.guard()).unwrap().unwrap();
    let mut installed = Inside::install(&net.router, &it);
    assert_eq!(lacks(&mut installed), []);
    bridge(&net);
    net.uplink.run("nft", &["reset", "counters"]).unwrap();
    mend(&mut installed);
    let ports = installed.at(|installed| installed.ports().to_vec());
    assert_eq!((&*ports[0].name, &*ports[0].master), ("lan0", "br-lan"));
    assert_eq!(ports[0].surfaces, ["br-lan", "share0"]);
    let silent = |when: &str| {
        send_other(&net.lan);
        connect_briefly(&net);
        assert_eq!(net.leaked(), 0, "{when}");
    };
    silent("with a client");
    // The client's own lines alone, without its table, and the guard alone.
    net.router.run("nft", &["flush", "ruleset"]).unwrap();
    silent("without tables");
    mend(&mut installed);
    installed.remove();
    silent("with the guard");
    // Nor does one begin that would take in nothing; the guard that was on before the bridge is told of it.
    net.router.enter(guard_off).unwrap().unwrap();
    ip(&net, "link set lan0 nomaster");
    net.router.enter(|| it.guard()).unwrap().unwrap();
    ip(&net, "link set lan0 master br-lan");
    let refused = net.router.enter(|| it.install().map(drop)).unwrap();
    let said = refused.unwrap_err().to_string();
    let wanted = "lan0 is a port of br-lan: name br-lan in `interfaces`";
    assert!(said.contains(wanted), "{said}");
    let pings = || net.lan.run("ping", &["-c1", "-W1", "10.1.0.1"]).is_ok();
    assert!((0..20).any(|_| pings()), "the bridge forwards again");
    net.uplink.run("nft", &["reset", "counters"]).unwrap();
    silent("with the guard after a client that did not start");
    // With the bridge's own name all is well, whatever its ports are.
    let named = Interception {
        interfaces: ["br-lan", "share0", "lan0"].map(String::from).into(),
        ..it
    };
    let mut installed = Inside::install(&net.router, &named);
    assert!(installed.at(|installed| installed.ports().is_empty()));
    installed.remove();
    net.router.enter(guard_off).unwrap().unwrap();
    send_other(&net.lan);
    assert_ne!(net.leaked(), 0, "nothing else kept it in");
}

#[test]
fn a_bridge_that_is_made_after_the_guard_lets_nothing_out() {
    if !privileged("a_bridge_that_is_made_after_the_guard") {
        return;
    }
    let net = Net::new();
    let before = net.router.run("nft", &["list", "ruleset"]).unwrap();
    let it = interception();
    net.router.enter(|| it.guard()).unwrap().unwrap();
    bridge(&net);
    net.uplink.run("nft", &["reset", "counters"]).unwrap();
    send_other(&net.lan);
    connect_briefly(&net);
    assert_eq!(net.leaked(), 0, "what the bridge gives to the router");
    let shown = net.router.enter(guard_listing).unwrap().unwrap().unwrap();
    assert!(shown.contains("table bridge bentpipe_guard"), "{shown}");
    // The routing rule alone, without the table of IP.
    net.router
        .run("nft", &["delete", "table", "inet", "bentpipe_guard"])
        .unwrap();
    send_other(&net.lan);
    assert_eq!(net.leaked(), 0, "what the table of IP does not see");
    net.router.enter(|| it.guard()).unwrap().unwrap();
    // Where bridge and port are both named, what may pass does.
    let both = Interception {
        interfaces: ["br-lan", "lan0"].map(String::from).into(),
        bypass: vec!["192.0.2.1/32".parse().unwrap()],
        ..it.clone()
    };
    net.router.enter(|| both.guard()).unwrap().unwrap();
    let reached = connect(&net.lan, V4).unwrap_err().kind();
    assert_eq!(reached, ErrorKind::ConnectionRefused);
    net.uplink.run("nft", &["reset", "counters"]).unwrap();
    net.router.enter(|| it.guard()).unwrap().unwrap();
    // The uplink as another port of the same bridge.
    ip(&net, "link set wan0 master br-lan");
    let address = ["addr", "add", "10.1.0.9/24", "dev", "up0"];
    net.uplink.run("ip", &address).unwrap();
    let ping = || net.lan.run("ping", &["-c1", "-W1", "10.1.0.9"]);
    assert!((0..3).all(|_| ping().is_err()));
    assert_eq!(net.leaked(), 0, "what the bridge hands on");
    net.router.enter(guard_off).unwrap().unwrap();
    assert_eq!(net.router.run("nft", &["list", "ruleset"]).unwrap(), before);
    assert!((0..20).any(|_| ping().is_ok()), "nothing else kept it in");
    ip(&net, "link set wan0 nomaster");
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

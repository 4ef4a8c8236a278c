//! LANs behind bridges: what hosts send leaves in clear by none, and they reach each other.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};

use bentpipe_pep::client::intercept::{Interception, guard_listing, guard_off};
use bentpipe_testbed::privileged;

use super::inside::Inside;
use super::net::{Net, V4, connect, send_other};
use super::upkeep::{connect_briefly, interception, lacks, mend};

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
    // A client that starts then keeps it in as well; the guard that was on before the bridge is told of it.
    net.router.enter(guard_off).unwrap().unwrap();
    ip(&net, "link set lan0 nomaster");
    net.router.enter(|| it.guard()).unwrap().unwrap();
    ip(&net, "link set lan0 master br-lan");
    let mut installed = Inside::install(&net.router, &it);
    let ports = installed.at(|installed| installed.ports().to_vec());
    assert_eq!((&*ports[0].name, &*ports[0].master), ("lan0", "br-lan"));
    let pings = || net.lan.run("ping", &["-c1", "-W1", "10.1.0.1"]).is_ok();
    assert!((0..20).any(|_| pings()), "the bridge forwards again");
    net.uplink.run("nft", &["reset", "counters"]).unwrap();
    silent("with a client that started then");
    net.router.run("nft", &["flush", "ruleset"]).unwrap();
    silent("without tables of a client that started then");
    mend(&mut installed);
    installed.remove();
    silent("with the guard after that client");
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

/// Hosts behind two ports of a bridge that is named itself are one LAN: they reach each other whatever the router does.
#[test]
fn hosts_of_a_named_bridge_reach_each_other_with_guard_and_client() {
    if !privileged("hosts_of_a_named_bridge_reach_each_other") {
        return;
    }
    let net = Net::new();
    bridge(&net);
    ip(&net, "link set wan0 master br-lan");
    for address in ["10.1.0.9/24", "fd00:1::9/64"] {
        let line = ["addr", "add", address, "dev", "up0"];
        net.uplink.run("ip", &line).unwrap();
    }
    // As Docker has it: frames cross the tables of IP.
    let heeded = || {
        for family in ["iptables", "ip6tables"] {
            let setting = format!("net.bridge.bridge-nf-call-{family}=1");
            net.router.run("sysctl", &["-qw", &setting]).unwrap();
        }
    };
    heeded();
    let ping = |to: &str| net.lan.run("ping", &["-c1", "-W1", to]).is_ok();
    let reached = |when: &str| {
        for to in ["10.1.0.9", "fd00:1::9"] {
            assert!((0..5).any(|_| ping(to)), "{to} {when}");
            let closed = SocketAddr::new(to.parse::<IpAddr>().unwrap(), 9);
            let refused = connect(&net.lan, &closed.to_string()).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{to} {when}");
        }
    };
    reached("without either");
    let it = Interception {
        interfaces: vec!["br-lan".into()],
        ..interception()
    };
    net.router.enter(|| it.guard()).unwrap().unwrap();
    reached("with the guard, whose table frames cross");
    let mut installed = Inside::install(&net.router, &it);
    reached("with guard and client, whose tables they cross");
    mend(&mut installed);
    reached("with guard and client");
    net.router.enter(guard_off).unwrap().unwrap();
    heeded();
    reached("with a client alone, whose table they cross");
    net.router.enter(|| it.guard()).unwrap().unwrap();
    installed.kill();
    reached("with the guard, after the client was killed");
    net.router.enter(guard_off).unwrap().unwrap();
    net.router.enter(|| it.remove()).unwrap().unwrap();
    ip(&net, "link set wan0 nomaster");
}

//! Two LANs that are taken in: they reach each other if the machine is a router without a client, and only then.

use std::io::ErrorKind;

use bentpipe_pep::client::intercept::{Interception, Other, guard_off};
use bentpipe_sys::netns::{NetNs, NetNsGuard};
use bentpipe_testbed::namespace::namespace;
use bentpipe_testbed::privileged;

use super::inside::Inside;
use super::net::{Net, V4, connect};
use super::packets::{Far, expect_conversation};
use super::upkeep::{lacks, mend};

/// Host of the second LAN, where nobody listens.
const OTHER_LAN: &str = "10.3.0.2:9";

/// The network with a second LAN at the router.
fn with_another_lan() -> (Net, NetNsGuard) {
    let net = Net::new();
    let other = another_lan(&net);
    (net, other)
}

/// Second LAN at the router, which comes now.
pub(super) fn another_lan(net: &Net) -> NetNsGuard {
    let other = namespace("lan1");
    let link = format!(
        "ip link add lan1 type veth peer name eth0 netns {}",
        other.name()
    );
    let lines = [
        (&net.router, link.as_str()),
        (&net.router, "ip addr add 10.3.0.1/24 dev lan1"),
        (&net.router, "ip link set lan1 up"),
        (&other, "ip addr add 10.3.0.2/24 dev eth0"),
        (&other, "ip link set eth0 up"),
        (&other, "ip route add default via 10.3.0.1"),
    ];
    for (namespace, line) in lines {
        let words: Vec<_> = line.split(' ').collect();
        namespace.run(words[0], &words[1..]).unwrap();
    }
    other
}

pub(super) fn of_both() -> Interception {
    Interception {
        interfaces: vec!["lan0".into(), "lan1".into()],
        other: Other::Tunnel,
        ..Interception::new(15_080)
    }
}

pub(super) fn set(net: &Net, setting: &str) {
    net.router.run("sysctl", &["-qw", setting]).unwrap();
}

/// Outcome of a connection from the first LAN to the second, where a host refuses it.
fn crossing(net: &Net) -> ErrorKind {
    connect(&net.lan, OTHER_LAN).unwrap_err().kind()
}

#[test]
fn hosts_of_two_lans_reach_each_other_where_sources_are_checked() {
    if !privileged("hosts_of_two_lans_reach_each_other_where_sources_are_checked") {
        return;
    }
    for strictness in ["0", "1", "2"] {
        let (net, _other) = with_another_lan();
        set(&net, "net.ipv4.conf.all.src_valid_mark=0");
        set(&net, &format!("net.ipv4.conf.all.rp_filter={strictness}"));
        let it = of_both();
        let _installed = Inside::install(&net.router, &it);
        let outcome = crossing(&net);
        assert_eq!(
            outcome,
            ErrorKind::ConnectionRefused,
            "rp_filter={strictness}"
        );
    }
}

#[test]
fn two_lans_that_a_machine_keeps_apart_stay_apart() {
    if !privileged("two_lans_that_a_machine_keeps_apart_stay_apart") {
        return;
    }
    let (net, _other) = with_another_lan();
    set(&net, "net.ipv4.ip_forward=0");
    assert_eq!(crossing(&net), ErrorKind::TimedOut);
    let it = of_both();
    let mut installed = Inside::install(&net.router, &it);
    let far = Far::behind(&net.router);
    installed.at(|installed| installed.attach()).unwrap();
    // Forwarding was opened for what goes into the device.
    expect_conversation(&net.lan, &far);
    assert_eq!(crossing(&net), ErrorKind::TimedOut);
    // Another program makes a router of the machine.
    set(&net, "net.ipv4.ip_forward=1");
    mend(&mut installed);
    assert_eq!(crossing(&net), ErrorKind::ConnectionRefused);
    set(&net, "net.ipv4.ip_forward=0");
    mend(&mut installed);
    assert_eq!(crossing(&net), ErrorKind::TimedOut);
    expect_conversation(&net.lan, &far);
}

#[test]
fn a_device_whose_sources_are_checked_strictly_is_made_loose_again() {
    if !privileged("a_device_whose_sources_are_checked_strictly_is_made_loose_again") {
        return;
    }
    let (net, _other) = with_another_lan();
    let it = of_both();
    let mut installed = Inside::install(&net.router, &it);
    let far = Far::behind(&net.router);
    installed.at(|installed| installed.attach()).unwrap();
    mend(&mut installed);
    // As `sysctl --system` does with `net.ipv4.conf.*.rp_filter = 1`.
    set(&net, "net.ipv4.conf.bentpipe0.rp_filter=1");
    let seen = lacks(&mut installed);
    let names = seen.iter().map(ToString::to_string);
    let name = "setting net.ipv4.conf.bentpipe0.rp_filter = 2";
    assert_eq!(names.collect::<Vec<_>>(), [name]);
    mend(&mut installed);
    expect_conversation(&net.lan, &far);
}

#[test]
fn a_guard_of_fewer_interfaces_follows_the_client_that_starts() {
    if !privileged("a_guard_of_fewer_interfaces_follows_the_client_that_starts") {
        return;
    }
    let (net, _other) = with_another_lan();
    let before = net
        .router
        .run("sysctl", &["-ar", "src_valid_mark"])
        .unwrap();
    let of_one = Interception {
        interfaces: vec!["lan0".into()],
        ..of_both()
    };
    net.router.enter(|| of_one.guard()).unwrap().unwrap();
    let it = of_both();
    let mut installed = Inside::install(&net.router, &it);
    assert_eq!(lacks(&mut installed), [], "nobody has taken anything away");
    // An interface that comes while both are there, as a radio's does.
    let link = "ip link add late0 type veth peer name late1";
    let words: Vec<_> = link.split(' ').collect();
    net.router.run(words[0], &words[1..]).unwrap();
    mend(&mut installed);
    installed.remove();
    net.router.enter(guard_off).unwrap().unwrap();
    net.router.run("ip", &["link", "del", "late0"]).unwrap();
    let after = net
        .router
        .run("sysctl", &["-ar", "src_valid_mark"])
        .unwrap();
    assert_eq!(after, before, "settings are put back by whoever goes last");
}

#[test]
fn networks_behind_another_router_of_the_lan_are_left_alone() {
    if !privileged("networks_behind_another_router_of_the_lan_are_left_alone") {
        return;
    }
    let (net, other) = with_another_lan();
    let ip = |namespace: &NetNs, line: &str| {
        namespace
            .run("ip", &line.split(' ').collect::<Vec<_>>())
            .unwrap();
    };
    for number in [77, 78] {
        ip(&net.lan, &format!("addr add 10.{number}.0.2/32 dev lo"));
    }
    ip(&net.router, "route add 10.77.0.0/24 via 10.1.0.2");
    // As DHCP would tell of it: of such the LAN's router may be wrong.
    ip(
        &net.router,
        "route add 10.79.0.0/24 via 10.1.0.2 proto dhcp",
    );
    let it = of_both();
    let mut installed = Inside::install(&net.router, &it);
    let reached = |to: &str| connect(&other, to).unwrap_err().kind();
    assert_eq!(reached("10.77.0.2:9"), ErrorKind::ConnectionRefused);
    assert_eq!(reached("10.78.0.2:9"), ErrorKind::TimedOut);
    ip(&net.router, "route add 10.78.0.0/24 via 10.1.0.2");
    mend(&mut installed);
    assert_eq!(reached("10.78.0.2:9"), ErrorKind::ConnectionRefused);
    let exempt = || {
        let set = ["list", "set", "inet", "bentpipe_client", "exempt4"];
        net.router.run("nft", &set).unwrap()
    };
    assert!(
        exempt().contains("10.77.0.0/24") && !exempt().contains("10.79"),
        "{}",
        exempt()
    );
    // Whatever leads by an uplink is the tunnel's, although the LAN is there, too.
    ip(&net.router, "route add default via 10.1.0.2 metric 4000");
    mend(&mut installed);
    assert!(!exempt().contains("10.77"), "{}", exempt());
}

/// What docs/deploy/router.md says of them.
#[test]
fn networks_at_interfaces_that_are_not_named_are_as_far_as_the_internet() {
    if !privileged("networks_at_interfaces_that_are_not_named_are_as_far_as_the_internet") {
        return;
    }
    let (net, other) = with_another_lan();
    let it = Interception {
        interfaces: vec!["lan0".into()],
        ..of_both()
    };
    let mut installed = Inside::install(&net.router, &it);
    let reached = |from: &NetNs, to: &str| connect(from, to).unwrap_err().kind();
    assert_eq!(reached(&net.lan, OTHER_LAN), ErrorKind::TimedOut);
    let own = reached(&net.lan, "10.3.0.1:9");
    assert_eq!(
        own,
        ErrorKind::ConnectionRefused,
        "the router's own address"
    );
    assert_eq!(
        reached(&other, V4),
        ErrorKind::ConnectionRefused,
        "in clear"
    );
    assert_ne!(net.leaked(), 0);
    assert_eq!(reached(&other, "10.1.0.2:9"), ErrorKind::TimedOut);
    let bypass = vec!["10.3.0.0/24".parse().unwrap()];
    let it = Interception { bypass, ..it };
    installed.at(|installed| installed.update(&it)).unwrap();
    assert_eq!(reached(&net.lan, OTHER_LAN), ErrorKind::ConnectionRefused);
    let back = reached(&other, "10.1.0.2:9");
    assert_eq!(back, ErrorKind::ConnectionRefused);
}

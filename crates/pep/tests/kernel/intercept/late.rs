//! Interfaces that come late, or go: those that are there are intercepted, and what comes in by the others never leaves in clear.

use bentpipe_pep::client::intercept::{Interception, Lack, Other, guard_off};
use bentpipe_sys::netns::NetNsGuard;
use bentpipe_testbed::privileged;

use super::inside::Inside;
use super::lans::{another_lan, of_both, set};
use super::net::{Echo, Net, V4, connect, exchange, send_other};
use super::packets::{Far, expect_conversation};
use super::upkeep::{lacks, mend};

fn missing(installed: &mut Inside<'_>) -> Vec<String> {
    installed.at(|installed| installed.missing().to_vec())
}

#[test]
fn a_missing_interface_keeps_no_other_without_the_client_and_is_taken_in_when_it_comes() {
    if !privileged("a_missing_interface_keeps_no_other_without_the_client") {
        return;
    }
    for other in [Other::Drop, Other::Tunnel] {
        let net = Net::new();
        let it = Interception { other, ..of_both() };
        let _echo = Echo::start(&net.router, it.port, it.routing.own_mark());
        let mut installed = Inside::install(&net.router, &it);
        assert_eq!(missing(&mut installed), ["lan1"]);
        assert_eq!(lacks(&mut installed), []);
        let answer = format!("{V4} ping");
        assert_eq!(exchange(&net.lan, V4), answer);
        // It comes, and nobody has looked yet.
        let late = another_lan(&net);
        send_other(&late);
        assert_eq!(exchange(&late, V4), answer);
        assert_eq!(net.leaked(), 0, "before the rules follow");
        let change = Lack::Lan { of_lan: true };
        assert!(lacks(&mut installed).contains(&change));
        installed.at(|installed| installed.mend(&change)).unwrap();
        assert!(missing(&mut installed).is_empty());
        // The defaults of a new interface are nobody's theft.
        let left = lacks(&mut installed);
        assert!(left.iter().all(Lack::is_change), "{left:?}");
        assert_eq!(exchange(&late, V4), answer);
        net.router.run("ip", &["link", "del", "lan1"]).unwrap();
        mend(&mut installed);
        assert_eq!(missing(&mut installed), ["lan1"]);
        assert_eq!(exchange(&net.lan, V4), answer);
        // And again.
        let late = another_lan(&net);
        send_other(&late);
        mend(&mut installed);
        assert_eq!(exchange(&late, V4), answer);
        assert_eq!(net.leaked(), 0);
    }
}

#[test]
fn what_comes_in_by_a_late_interface_is_forwarded_into_the_device() {
    if !privileged("what_comes_in_by_a_late_interface_is_forwarded_into_the_device") {
        return;
    }
    let net = Net::new();
    set(&net, "net.ipv4.ip_forward=0");
    set(&net, "net.ipv6.conf.all.forwarding=0");
    let settings = || net.router.run("sysctl", &["-a"]).unwrap();
    let of_ipv6 = |all: &str| {
        let lines = all.lines();
        let whole = lines.filter(|line| line.starts_with("net.ipv6.conf.all.forwarding"));
        whole.map(str::to_owned).collect::<Vec<_>>()
    };
    let before = of_ipv6(&settings());
    let it = of_both();
    let mut installed = Inside::install(&net.router, &it);
    let forces = std::path::Path::new("/proc/sys/net/ipv6/conf/all/force_forwarding").exists();
    if forces {
        assert_eq!(
            of_ipv6(&settings()),
            before,
            "a missing interface opens the machine"
        );
    }
    let far = Far::behind(&net.router);
    installed.at(|installed| installed.attach()).unwrap();
    let late = late_lan(&net);
    let change = Lack::Lan { of_lan: true };
    installed.at(|installed| installed.mend(&change)).unwrap();
    expect_conversation(&late, &far);
    installed.remove();
    assert_eq!(of_ipv6(&settings()), before);
}

/// Second LAN that comes now, with addresses of both families.
fn late_lan(net: &Net) -> NetNsGuard {
    let late = another_lan(net);
    for (namespace, line) in [
        (&net.router, "-6 addr add fd00:3::1/64 dev lan1 nodad"),
        (&late, "-6 addr add fd00:3::2/64 dev eth0 nodad"),
        (&late, "-6 route add default via fd00:3::1"),
    ] {
        let words: Vec<_> = line.split(' ').collect();
        namespace.run("ip", &words).unwrap();
    }
    late
}

#[test]
fn the_guard_blocks_what_comes_in_by_an_interface_from_when_it_comes() {
    if !privileged("the_guard_blocks_what_comes_in_by_an_interface_from_when_it_comes") {
        return;
    }
    let net = Net::new();
    let it = of_both();
    net.router.enter(|| it.guard()).unwrap().unwrap();
    let late = another_lan(&net);
    send_other(&late);
    assert!(connect(&late, V4).is_err());
    assert_eq!(net.leaked(), 0);
    net.router.enter(guard_off).unwrap().unwrap();
    send_other(&late);
    assert_ne!(net.leaked(), 0, "nothing else kept it in");
}

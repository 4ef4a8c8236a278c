//! A PEP's rules, routes and devices that other programs take away: put back while flows are relayed, told, and counted.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bentpipe_testbed::transfer::{Transfer, Way};

use super::site::{Pep, PepSite, SOON, on_site};
use super::{LENGTH, joined};
use crate::talk::{exchange, half_close, talk};

/// Ways in which another program takes something away, as a shell's words, and the parts that go with it.
const THEFTS: [(&str, &[&str]); 9] = [
    ("nft flush ruleset", &["table inet bentpipe_pep"]),
    (
        // The machine's own rules come back, as its network daemon would bring them back.
        "for family in -4 -6; do ip $family rule flush; ip $family rule add lookup main priority 32766; done",
        &[
            "routing rule of bentpipe-lan",
            "routing rule of bentpipe-wan",
        ],
    ),
    (
        "nft flush chain inet bentpipe_pep take",
        &["table inet bentpipe_pep"],
    ),
    (
        "ip -4 route flush table 25202; ip -6 route flush table 25203",
        &["route into bentpipe-lan", "route into bentpipe-wan"],
    ),
    ("ip link set bentpipe-lan down", &["device bentpipe-lan"]),
    (
        // As at the start of a machine that drops what comes in elsewhere than answers would leave.
        "for all in all default bentpipe-lan bentpipe-wan; do echo 1 > /proc/sys/net/ipv4/conf/$all/rp_filter; done",
        &["settings of bentpipe-lan", "settings of bentpipe-wan"],
    ),
    (
        "ip addr flush dev bentpipe-wan",
        &["address of bentpipe-wan"],
    ),
    (
        // A source that the kernel would give to programs of this machine.
        "printf 'addr del 192.0.0.8/32 dev bentpipe-lan\naddr add 192.0.0.8/32 dev bentpipe-lan\n' | ip -batch - || true",
        &["address of bentpipe-lan"],
    ),
    (
        "ip link set bentpipe-wan mtu 1500",
        &["device bentpipe-wan"],
    ),
];

/// Times that a PEP says it has put `part` back; none while it is not as it should be.
fn repairs(site: &PepSite, pep: Pep, part: &str) -> Result<u64> {
    let status = site.status(pep)?;
    let mut parts = status["kernel"].as_array().into_iter().flatten();
    let told = parts.find(|told| told["part"] == part && told["fault"].is_null());
    Ok(told
        .and_then(|told| told["repairs_total"].as_u64())
        .unwrap_or_default())
}

/// Takes something away from a PEP, and waits until it is there again.
fn steal(site: &PepSite, pep: Pep, (words, parts): (&str, &[&str])) -> Result<()> {
    let before = parts.iter().map(|part| repairs(site, pep, part));
    let before = before.collect::<Result<Vec<_>>>()?;
    let place = match pep {
        Pep::Gateway => site.topology.gateway(),
        Pep::Terminal => site.topology.terminal(),
    };
    place.run("sh", &["-c", words])?;
    let deadline = Instant::now() + SOON;
    for (part, before) in parts.iter().zip(before) {
        while repairs(site, pep, part)? <= before {
            ensure!(
                Instant::now() < deadline,
                "{part} was not put back at {pep:?} after {words}"
            );
            thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}

#[test]
fn what_others_take_away_is_put_back_while_flows_are_relayed() {
    on_site("PEPs among other programs", joined, |site| {
        let routes = site.routes();
        for ((words, parts), pep) in THEFTS.into_iter().zip(Pep::BOTH.into_iter().cycle()) {
            let mut idle = talk(&routes[0])?;
            let transfers = routes
                .each_ref()
                .map(|route| Transfer::start(route, Way::Upload, LENGTH));
            steal(site, pep, (words, parts))?;
            for transfer in transfers {
                transfer?.finish_whole()?;
            }
            exchange(&mut idle)?;
            // Flows that begin afterwards are relayed as before.
            let relayed = site.figure(pep, "/relayed_total")?;
            half_close(&routes[1])?;
            let after = site.figure(pep, "/relayed_total")?;
            ensure!(after > relayed, "nothing is relayed after {words}");
        }
        let told = "table inet bentpipe_pep is gone and was put back";
        ensure!(site.logs().contains(told), "no line tells of it");
        Ok(())
    });
}

#[test]
fn an_interface_that_is_renamed_is_missed() {
    on_site("a PEP and an interface that is renamed", joined, |site| {
        let terminal = site.topology.terminal();
        let rename = |from: &str, to: &str| {
            let words = format!(
                "ip link set {from} down; ip link set {from} name {to}; ip link set {to} up"
            );
            terminal.run("sh", &["-c", &words])
        };
        rename("lan0", "lan9")?;
        until_told(site, "no interface lan0, which `lan` or `wan` names")?;
        rename("lan9", "lan0")?;
        until_told(site, "every interface of `lan` and `wan` is there again")
    });
}

#[test]
fn flows_are_relayed_where_sources_are_checked_by_mark() {
    on_site("PEPs and strict checks of sources", joined, |site| {
        for pep in [site.topology.terminal(), site.topology.gateway()] {
            // As `wg-quick` and distributions set it.
            let words = "cd /proc/sys/net/ipv4/conf; for one in all lan0 wan0; do \
                 [ -e $one ] || continue; echo 1 > $one/rp_filter; echo 1 > $one/src_valid_mark; done";
            pep.run("sh", &["-c", words])?;
        }
        for (number, route) in site.routes().iter().enumerate() {
            let relayed = site.figure(Pep::Terminal, "/relayed_total")?;
            half_close(route)?;
            let after = site.figure(Pep::Terminal, "/relayed_total")?;
            ensure!(after > relayed, "route {number}: nothing is relayed");
        }
        Ok(())
    });
}

/// Waits until a log has `line`.
fn until_told(site: &PepSite, line: &str) -> Result<()> {
    let deadline = Instant::now() + SOON;
    while !site.logs().contains(line) {
        ensure!(Instant::now() < deadline, "not told: {line}");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

#[test]
fn a_pep_whose_device_is_deleted_ends_and_says_so() {
    on_site("a PEP without its device", joined, |site| {
        let routes = site.routes();
        let _idle = talk(&routes[0])?;
        site.topology
            .gateway()
            .run("ip", &["link", "delete", "bentpipe-wan"])?;
        let deadline = Instant::now() + SOON;
        while site.pid(Pep::Gateway).is_some_and(is_alive) {
            ensure!(Instant::now() < deadline, "the PEP goes on");
            thread::sleep(Duration::from_millis(20));
        }
        let told = "the device bentpipe-wan was taken away";
        ensure!(
            site.logs().contains(told),
            "no line tells of it: {}",
            site.logs()
        );
        // Without it, packets pass.
        half_close(&routes[1])
    });
}

/// True while the process with this number has not ended.
fn is_alive(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    status.is_ok_and(|status| !status.contains("State:\tZ"))
}

//! Kernel settings, links, addresses and routes of the topology.
//!
//! Settings are written under /proc/sys/net by a thread inside the namespace (no `sysctl` needed); everything
//! else is one `ip -batch` per namespace. Offloads of the veth pairs are left as the kernel makes them.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result};
use bentpipe_sys::command::run_with_input;
use bentpipe_sys::netns::NetNs;

use super::{Topology, addresses as a};

/// Of every namespace. No duplicate address detection: addresses are usable at once, and the link stays quiet.
/// The congestion control is named, so that the machine's default does not decide what "plain TCP" means.
const SETTINGS: [(&str, &str); 7] = [
    ("ipv4/tcp_congestion_control", "cubic"),
    // End hosts use them; 64 MB is several BDP of any link here.
    ("ipv4/tcp_rmem", "4096 131072 67108864"),
    ("ipv4/tcp_wmem", "4096 16384 67108864"),
    // What one experiment learnt must not help the next.
    ("ipv4/tcp_no_metrics_save", "1"),
    ("ipv6/conf/all/disable_ipv6", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
];

const ROUTER_SETTINGS: [(&str, &str); 2] =
    [("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1")];

/// Applies the settings of every namespace. Before its links exist, for `default` to reach them.
pub(super) fn tune(namespace: &NetNs) -> Result<()> {
    set(namespace, &SETTINGS)
}

/// Makes the veth pairs, then addresses and routes; `sat0` must exist at both ends.
pub(super) fn connect(topology: &Topology, hosts: u8) -> Result<()> {
    let [user, terminal, gateway, web] = topology.namespaces();
    veth(user, terminal, "lan0")?;
    veth(web, gateway, "wan0")?;
    set(terminal, &ROUTER_SETTINGS)?;
    set(gateway, &ROUTER_SETTINGS)?;

    let host = |address4, gateway4, address6, gateway6| {
        format!(
            "addr add {address4}/24 dev eth0\naddr add {address6}/64 dev eth0 nodad\nlink set eth0 up\n\
             route add default via {gateway4}\n-6 route add default via {gateway6}\n"
        )
    };
    let router = |lan: &str, lan4, lan6, sat4, sat6, peer4, peer6| {
        format!(
            "addr add {lan4}/24 dev {lan}\naddr add {lan6}/64 dev {lan} nodad\nlink set {lan} up\n\
             addr add {sat4}/24 dev sat0\naddr add {sat6}/64 dev sat0 nodad\nlink set sat0 up\n\
             route add default via {peer4}\n-6 route add default via {peer6}\n"
        )
    };
    batch(
        user,
        &host(a::USER, a::TERMINAL_LAN, a::USER6, a::TERMINAL_LAN6),
    )?;
    batch(
        terminal,
        &router(
            "lan0",
            a::TERMINAL_LAN,
            a::TERMINAL_LAN6,
            a::TERMINAL_SAT,
            a::TERMINAL_SAT6,
            a::GATEWAY_SAT,
            a::GATEWAY_SAT6,
        ),
    )?;
    batch(
        gateway,
        &router(
            "wan0",
            a::GATEWAY_WAN,
            a::GATEWAY_WAN6,
            a::GATEWAY_SAT,
            a::GATEWAY_SAT6,
            a::TERMINAL_SAT,
            a::TERMINAL_SAT6,
        ),
    )?;
    let mut lines = host(a::WEB, a::GATEWAY_WAN, a::WEB6, a::GATEWAY_WAN6);
    for i in 0..hosts {
        // Writing into a String cannot fail.
        let _ = writeln!(lines, "addr add {}/24 dev eth0", a::host(i));
        let _ = writeln!(lines, "addr add {}/64 dev eth0 nodad", a::host6(i));
    }
    batch(web, &lines)
}

/// A pair: `eth0` in `end`, `name` in `router`.
fn veth(end: &NetNs, router: &NetNs, name: &str) -> Result<()> {
    let end = end.name();
    let args = [
        "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", end,
    ];
    router
        .run("ip", &args)
        .map(drop)
        .with_context(|| format!("cannot connect {end} with {}", router.name()))
}

fn batch(namespace: &NetNs, lines: &str) -> Result<()> {
    run_with_input(namespace.command("ip").args(["-batch", "-"]), lines)
        .map(drop)
        .with_context(|| {
            format!(
                "cannot configure addresses and routes in {}",
                namespace.name()
            )
        })
}

fn set(namespace: &NetNs, settings: &[(&str, &str)]) -> Result<()> {
    // The thread sees the files of the namespace it is in.
    namespace.enter(|| {
        settings.iter().try_for_each(|(key, value)| {
            fs::write(format!("/proc/sys/net/{key}"), value)
                .with_context(|| format!("cannot set /proc/sys/net/{key} to `{value}`"))
        })
    })?
}

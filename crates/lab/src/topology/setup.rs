//! Kernel settings, links, addresses and routes of the topology.
//!
//! Settings are written under /proc/sys/net by a thread inside the namespace (no `sysctl` needed); everything
//! else is one `ip -batch` per namespace. Offloads of the veth pairs are left as the kernel makes them.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::{Context as _, Result};
use bentpipe_sys::command::run_with_input;
use bentpipe_sys::netns::NetNs;

use super::{LINK_DEVICE, Topology, addresses as a};

/// Of every namespace. No duplicate address detection: addresses are usable at once, and the link stays quiet.
const SETTINGS: [(&str, &str); 6] = [
    // End hosts use them; 64 MB is several BDP of any link here.
    ("ipv4/tcp_rmem", "4096 131072 67108864"),
    ("ipv4/tcp_wmem", "4096 16384 67108864"),
    // What one experiment learnt must not help the next.
    ("ipv4/tcp_no_metrics_save", "1"),
    ("ipv6/conf/all/disable_ipv6", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
];

/// On every route, so that the machine's default does not decide what "plain TCP" means. Not by the setting: where the
/// machine's list of allowed algorithms lacks CUBIC, its namespaces may not choose it.
const CONGESTION_CONTROL: &str = "congctl cubic";

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

    let lan = interface("lan0", a::TERMINAL_LAN, a::TERMINAL_LAN6);
    let wan = interface("wan0", a::GATEWAY_WAN, a::GATEWAY_WAN6);
    let terminal_sat = interface(LINK_DEVICE, a::TERMINAL_SAT, a::TERMINAL_SAT6);
    let gateway_sat = interface(LINK_DEVICE, a::GATEWAY_SAT, a::GATEWAY_SAT6);
    batch(
        user,
        &(interface("eth0", a::USER, a::USER6) + &default(a::TERMINAL_LAN, a::TERMINAL_LAN6)),
    )?;
    batch(
        terminal,
        &(lan + &terminal_sat + &default(a::GATEWAY_SAT, a::GATEWAY_SAT6)),
    )?;
    batch(
        gateway,
        &(wan + &gateway_sat + &default(a::TERMINAL_SAT, a::TERMINAL_SAT6)),
    )?;
    let mut lines = interface("eth0", a::WEB, a::WEB6) + &default(a::GATEWAY_WAN, a::GATEWAY_WAN6);
    for i in 0..hosts {
        // Writing into a String cannot fail.
        let _ = writeln!(lines, "addr add {}/24 dev eth0 noprefixroute", a::host(i));
        let _ = writeln!(
            lines,
            "addr add {}/64 dev eth0 nodad noprefixroute",
            a::host6(i)
        );
    }
    batch(web, &lines)
}

/// Addresses of `device` and the routes to its networks. Made by hand for the routes to name the congestion control.
fn interface(device: &str, v4: Ipv4Addr, v6: Ipv6Addr) -> String {
    let prefix4 = v4 & Ipv4Addr::new(255, 255, 255, 0);
    let prefix6 = v6 & Ipv6Addr::from_bits(u128::MAX << 64);
    format!(
        "addr add {v4}/24 dev {device} noprefixroute\naddr add {v6}/64 dev {device} nodad noprefixroute\n\
         link set {device} up\n\
         route add {prefix4}/24 dev {device} src {v4} {CONGESTION_CONTROL}\n\
         route add {prefix6}/64 dev {device} {CONGESTION_CONTROL}\n"
    )
}

fn default(via4: Ipv4Addr, via6: Ipv6Addr) -> String {
    format!(
        "route add default via {via4} {CONGESTION_CONTROL}\nroute add ::/0 via {via6} {CONGESTION_CONTROL}\n"
    )
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

//! Kernel settings, links, addresses and routes of the topology.
//!
//! Settings are written under /proc/sys/net by a thread inside the namespace (no `sysctl` needed); everything
//! else is one `ip -batch` per namespace. Offloads of the veth pairs are left as the kernel makes them.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result};
use bentpipe_sys::command::run_with_input;
use bentpipe_sys::netns::NetNs;

use super::addresses::{Addresses, Pair};
use super::{LINK_DEVICE, Topology};

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
pub(super) fn connect(topology: &Topology, at: &Addresses, hosts: u8) -> Result<()> {
    let (gateway, web) = (topology.gateway(), topology.web());
    veth(web, gateway, "wan0")?;
    set(gateway, &ROUTER_SETTINGS)?;
    let mut behind_terminals = String::new();
    for (index, (user, terminal)) in topology.sites().enumerate() {
        veth(user, terminal, "lan0")?;
        set(terminal, &ROUTER_SETTINGS)?;
        let (lan, sat) = (at.terminal_lan(index), at.terminal_sat(index));
        batch(user, &(interface("eth0", at.user(index)) + &default(lan)))?;
        let router =
            interface("lan0", lan) + &interface(LINK_DEVICE, sat) + &default(at.gateway_sat());
        batch(terminal, &router)?;
        // The only terminal is the way to everything that is not the web.
        behind_terminals += &if at.several() {
            via(lan, sat)
        } else {
            default(sat)
        };
    }
    let router = interface("wan0", at.gateway_wan()) + &interface(LINK_DEVICE, at.gateway_sat());
    batch(gateway, &(router + &behind_terminals))?;
    let mut lines = interface("eth0", at.web()) + &default(at.gateway_wan());
    for i in 0..hosts {
        let (v4, v6) = at.host(i);
        // Writing into a String cannot fail.
        let _ = writeln!(lines, "addr add {v4} dev eth0 noprefixroute");
        let _ = writeln!(lines, "addr add {v6} dev eth0 nodad noprefixroute");
    }
    batch(web, &lines)
}

/// Addresses of `device` and the routes to its networks. Made by hand for the routes to name the congestion control.
fn interface(device: &str, (v4, v6): Pair) -> String {
    let source = v4.addr();
    let (prefix4, prefix6) = (v4.trunc(), v6.trunc());
    format!(
        "addr add {v4} dev {device} noprefixroute\naddr add {v6} dev {device} nodad noprefixroute\n\
         link set {device} up\n\
         route add {prefix4} dev {device} src {source} {CONGESTION_CONTROL}\n\
         route add {prefix6} dev {device} {CONGESTION_CONTROL}\n"
    )
}

/// The routes to the networks of a `lan` through `router`.
fn via((lan4, lan6): Pair, (router4, router6): Pair) -> String {
    let (lan4, lan6) = (lan4.trunc(), lan6.trunc());
    let (router4, router6) = (router4.addr(), router6.addr());
    format!(
        "route add {lan4} via {router4} {CONGESTION_CONTROL}\nroute add {lan6} via {router6} {CONGESTION_CONTROL}\n"
    )
}

fn default((v4, v6): Pair) -> String {
    let (via4, via6) = (v4.addr(), v6.addr());
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

//! Kernel settings, links, addresses and routes of the topology.
//!
//! Settings are written under /proc/sys/net by a thread inside the namespace (no `sysctl` needed); everything
//! else is one `ip -batch` per namespace. Offloads of the veth pairs are left as the kernel makes them.

use std::fmt::Write as _;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_sys::command::run_with_input;
use bentpipe_sys::netns::NetNs;
use bentpipe_units::ByteCount;

use super::{LINK_DEVICE, Topology};
use crate::addresses::{Addresses, Pair};

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

/// Congestion control of TCP. It stands on every route, so that the machine's default does not decide what "plain TCP" means; not
/// in a setting, because where the machine's list of allowed algorithms lacks one, its namespaces may not choose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Congestion {
    /// The kernel's CUBIC.
    #[default]
    Cubic,
    /// CUBIC without HyStart, which whoever builds the topology has to turn off: it is the whole machine's.
    CubicNoHystart,
    /// The kernel's BBR, whichever version that is.
    Bbr,
    /// The kernel's NewReno.
    Reno,
}

impl Congestion {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Cubic, Self::CubicNoHystart, Self::Bbr, Self::Reno];

    /// As experiments call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::CubicNoHystart => "cubic-no-hystart",
            Self::Bbr => "bbr",
            Self::Reno => "reno",
        }
    }

    /// As the kernel calls it.
    #[must_use]
    pub fn kernel(self) -> &'static str {
        match self {
            Self::CubicNoHystart => Self::Cubic.name(),
            other => other.name(),
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// For the kernel to activate an interface.
const COMES_UP: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);

/// Of end hosts whose windows are bounded: a window of 16 bits then says what it is.
const UNSCALED: [(&str, &str); 1] = [("ipv4/tcp_window_scaling", "0")];

const ROUTER_SETTINGS: [(&str, &str); 2] =
    [("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1")];

/// Applies the settings of every namespace. Before its links exist, for `default` to reach them.
pub(super) fn tune(namespace: &NetNs) -> Result<()> {
    set(namespace, &SETTINGS)
}

/// Makes the users' veth pairs, then addresses and routes; `sat0` must exist at both ends, and `wan0` and `eth0` of the web.
pub(super) fn connect(topology: &Topology, at: &Addresses, hosts: u8) -> Result<()> {
    let route = |namespace: &NetNs, lines: &str| topology.configure(namespace, lines);
    let end = |namespace: &NetNs, lines: &str| {
        if let Some(window) = topology.ground.end_hosts.window {
            bound_window(namespace, window)?;
        }
        topology.configure(namespace, lines)
    };
    let (gateway, web) = (topology.gateway(), topology.web());
    set(gateway, &ROUTER_SETTINGS)?;
    let mut behind_terminals = String::new();
    for (index, (user, terminal)) in topology.sites().enumerate() {
        veth((user, "eth0"), (terminal, "lan0"))?;
        set(terminal, &ROUTER_SETTINGS)?;
        let (lan, sat) = (at.terminal_lan(index), at.terminal_sat(index));
        end(user, &(interface("eth0", at.user(index)) + &default(lan)))?;
        let router =
            interface("lan0", lan) + &interface(LINK_DEVICE, sat) + &default(at.gateway_sat());
        route(terminal, &router)?;
        // The only terminal is the way to everything that is not the web.
        behind_terminals += &if at.several() {
            via(lan, sat)
        } else {
            default(sat)
        };
    }
    let router = interface("wan0", at.gateway_wan()) + &interface(LINK_DEVICE, at.gateway_sat());
    route(gateway, &(router + &behind_terminals))?;
    let mut lines = interface("eth0", at.web()) + &default(at.gateway_wan());
    let further = (0..hosts).map(|i| at.host(i));
    for (v4, v6) in further.chain([at.resolver()]) {
        // Writing into a String cannot fail.
        let _ = writeln!(lines, "addr add {v4} dev eth0 noprefixroute");
        let _ = writeln!(lines, "addr add {v6} dev eth0 nodad noprefixroute");
    }
    end(web, &lines)?;
    let ends = topology
        .sites()
        .flat_map(|(user, terminal)| [(user, "eth0"), (terminal, "lan0")]);
    for (namespace, device) in ends.chain([(gateway, "wan0"), (web, "eth0")]) {
        wait_until_up(namespace, device)?;
    }
    Ok(())
}

/// Has no connection of `namespace` offer to receive more than `window`. Not by the routes' attribute `window`: Linux 6.6 and
/// later raise that bound when they have seen how much memory packets take.
fn bound_window(namespace: &NetNs, window: ByteCount) -> Result<()> {
    set(namespace, &UNSCALED)?;
    let text = format!(
        "table inet bentpipe_lab_window {{\n  chain output {{\n    type filter hook output priority mangle; policy accept;\n    \
         tcp window > {0} tcp window set {0}\n  }}\n}}\n",
        window.as_u64()
    );
    run_with_input(namespace.command("nft").args(["-f", "-"]), &text)
        .map(drop)
        .with_context(|| format!("cannot bound TCP windows in {}", namespace.name()))
}

/// The kernel activates an interface when it gets round to it, up to a second after the other end is up; what is sent until
/// then is lost in silence, and a lost SYN costs whoever is measured a second.
fn wait_until_up(namespace: &NetNs, device: &str) -> Result<()> {
    let deadline = Instant::now() + COMES_UP;
    while !namespace
        .run("ip", &["link", "show", "dev", device])?
        .contains("state UP")
    {
        ensure!(
            Instant::now() < deadline,
            "{device} in {} does not come up",
            namespace.name()
        );
        thread::sleep(POLL);
    }
    Ok(())
}

/// Addresses of `device` and the routes to its networks. Made by hand for the routes to say how TCP sends.
fn interface(device: &str, (v4, v6): Pair) -> String {
    let source = v4.addr();
    let (prefix4, prefix6) = (v4.trunc(), v6.trunc());
    format!(
        "addr add {v4} dev {device} noprefixroute\naddr add {v6} dev {device} nodad noprefixroute\n\
         link set {device} up\n\
         route add {prefix4} dev {device} src {source}\n\
         route add {prefix6} dev {device}\n"
    )
}

/// The routes to the networks of a `lan` through `router`.
fn via((lan4, lan6): Pair, (router4, router6): Pair) -> String {
    let (lan4, lan6) = (lan4.trunc(), lan6.trunc());
    let (router4, router6) = (router4.addr(), router6.addr());
    format!("route add {lan4} via {router4}\nroute add {lan6} via {router6}\n")
}

fn default((v4, v6): Pair) -> String {
    let (via4, via6) = (v4.addr(), v6.addr());
    format!("route add default via {via4}\nroute add ::/0 via {via6}\n")
}

/// A pair of interfaces, each in its namespace and by its name.
pub(super) fn veth((one, device): (&NetNs, &str), (other, peer): (&NetNs, &str)) -> Result<()> {
    let there = one.name();
    let args = [
        "link", "add", peer, "type", "veth", "peer", "name", device, "netns", there,
    ];
    other
        .run("ip", &args)
        .map(drop)
        .with_context(|| format!("cannot connect {there} with {}", other.name()))
}

pub(super) fn batch(namespace: &NetNs, lines: &str) -> Result<()> {
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

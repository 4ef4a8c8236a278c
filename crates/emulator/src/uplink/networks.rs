//! Addresses of the uplink, and those that the emulation and the machine's network both have.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context as _, Result};
use bentpipe_link::Network;
use bentpipe_sys::command::run;
use ipnet::IpNet;

use crate::addresses::{Addresses, Pair};

use super::GATEWAY_DEVICE;

/// Networks of four addresses for the way, the first free one of them: of the blocks for measurements (RFC 2544) and for providers
/// (RFC 6598).
const CANDIDATES: [[u8; 3]; 3] = [[198, 18, 255], [198, 19, 255], [100, 127, 255]];

/// Routes that are named for each network of the emulation: a router has thousands.
const MOST_NAMED: usize = 8;

/// Addresses of the two ends of the way, with a prefix of 30 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Transfer {
    pub(super) machine: Ipv4Addr,
    pub(super) gateway: Ipv4Addr,
}

impl Transfer {
    /// Addresses that this machine has no route for but the default one.
    pub(super) fn free() -> Result<Self> {
        Self::beside(&routed()?)
    }

    fn beside(taken: &[IpNet]) -> Result<Self> {
        let free = CANDIDATES.iter().find(|candidate| {
            let [a, b, c] = **candidate;
            let last = IpNet::from(IpAddr::from([a, b, c, 253]));
            !taken.iter().any(|network| network.contains(&last))
        });
        let [a, b, c] = free.context(
            "this machine has routes for 198.18.255.252/30, 198.19.255.252/30 and 100.127.255.252/30; the uplink needs one of them",
        )?;
        let address = |last| Ipv4Addr::new(*a, *b, *c, last);
        Ok(Self {
            machine: address(253),
            gateway: address(254),
        })
    }
}

/// Networks that this machine has routes for, in IPv4, without the default route.
fn routed() -> Result<Vec<IpNet>> {
    let text = run("ip", &["-4", "route", "show"]).context("cannot list this machine's routes")?;
    Ok(text.lines().filter_map(destination).collect())
}

/// Destination of a route as `ip` shows it: a prefix or an address, for some behind what becomes of packets.
fn destination(line: &str) -> Option<IpNet> {
    let words = line.split_whitespace().take(2);
    let mut read = words.filter_map(|word| {
        let address = || word.parse::<IpAddr>().map(IpNet::from);
        word.parse().or_else(|_| address()).ok()
    });
    read.next()
}

/// A line for each network of the emulation that hides addresses of the machine's.
pub(super) fn collisions(network: &Network) -> Result<Vec<String>> {
    Ok(hidden(network, &routed()?))
}

fn hidden(network: &Network, routed: &[IpNet]) -> Vec<String> {
    let own = [
        ("lan", network.lan.0),
        ("satellite", network.satellite.0),
        ("web", network.web.0),
    ];
    let mut lines = Vec::new();
    for (name, own) in own {
        let own = IpNet::V4(own);
        let both = |other: &&IpNet| own.contains(*other) || other.contains(&own);
        let colliding: Vec<&IpNet> = routed.iter().filter(both).collect();
        for other in colliding.iter().take(MOST_NAMED) {
            lines.push(format!(
                "{own} of the emulation and {other} of this machine collide: from the emulated LAN their common addresses are the \
                 emulation's; give the scenario's `[network]` another `{name}`"
            ));
        }
        let more = colliding.len().saturating_sub(MOST_NAMED);
        if more > 0 {
            lines.push(format!(
                "{more} more of this machine's routes collide with {own} of the emulation"
            ));
        }
    }
    lines
}

/// Lines of `ip -batch` for the gateway: its end of the way at `own`, and all that is nobody's goes to `machine`. IPv6 is refused
/// at once, so that hosts take IPv4.
pub(super) fn routes(addresses: &Addresses, own: Ipv4Addr, machine: Ipv4Addr) -> String {
    let mut lines =
        format!("addr add {own}/30 dev {GATEWAY_DEVICE}\nlink set {GATEWAY_DEVICE} up\n");
    if !addresses.several() {
        // Its only terminal was the way to everything.
        let (lan, router): (Pair, Pair) = (addresses.terminal_lan(0), addresses.terminal_sat(0));
        let ((lan4, lan6), (router4, router6)) = (lan, router);
        // Writing into a String cannot fail.
        let _ = write!(
            lines,
            "route add {} via {}\nroute add {} via {}\n",
            lan4.trunc(),
            router4.addr(),
            lan6.trunc(),
            router6.addr()
        );
    }
    lines + &format!("route replace default via {machine}\nroute add unreachable ::/0 metric 1\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn the_way_has_addresses_that_the_machine_does_not_use() {
        let beside = |taken: &[&str]| Transfer::beside(&networks(taken));
        let usual = beside(&["10.0.0.0/8"]).unwrap();
        assert_eq!(usual.gateway.to_string(), "198.18.255.254");
        let other = beside(&["198.18.0.0/15"]).unwrap();
        assert_eq!(other.machine.to_string(), "100.127.255.253");
        let fault = beside(&["198.18.0.0/15", "100.64.0.0/10"]).unwrap_err();
        assert!(fault.to_string().contains("100.127.255.252/30"), "{fault}");
    }

    #[test]
    fn destinations_are_read_as_ip_shows_them() {
        let read = |line| destination(line).map(|to| to.to_string());
        for (line, to) in [
            ("default via 203.0.113.2 dev out0", None),
            (
                "10.30.0.0/25 via 203.0.113.2 dev out0",
                Some("10.30.0.0/25"),
            ),
            ("192.0.2.1 dev out0 scope link", Some("192.0.2.1/32")),
            ("unreachable 10.0.0.0/8 metric 5", Some("10.0.0.0/8")),
            ("", None),
        ] {
            assert_eq!(read(line).as_deref(), to, "{line}");
        }
    }

    #[test]
    fn addresses_that_both_have_are_named() {
        let hidden = |routed: &[&str]| hidden(&Network::default(), &networks(routed));
        assert!(hidden(&["192.168.0.0/24", "10.40.0.0/16"]).is_empty());
        let lines = hidden(&["10.0.0.0/8"]);
        assert_eq!(lines.len(), 3);
        assert!(
            lines[2].starts_with(
                "10.30.0.0/24 of the emulation and 10.0.0.0/8 of this machine collide"
            ),
            "{lines:?}"
        );
        assert_eq!(hidden(&["10.10.7.0/24"]).len(), 1);
        let many = hidden(&["10.30.0.0/28"; 11]);
        assert_eq!(many.len(), 9);
        assert!(
            many[8].starts_with("3 more of this machine's routes"),
            "{many:?}"
        );
    }
}

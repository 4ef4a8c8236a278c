//! Routes, name servers, and other programs of the network.

use std::net::IpAddr;

use bentpipe_sys::nftables::BaseChain;

use super::{MachineNeeds, fail, finding, ok, warn};
use crate::doctor::Finding;
use crate::doctor::facts::{NetworkFacts, SocketHolder};

pub(super) fn judge(network: &NetworkFacts, needs: &MachineNeeds) -> Vec<Finding> {
    let mut findings = vec![routes(network, needs)];
    findings.extend(names(network));
    findings.extend(others(network));
    findings.extend(chains(network, needs));
    findings
}

fn routes(network: &NetworkFacts, needs: &MachineNeeds) -> Finding {
    let add = || {
        Some(
            "bring the uplink up, or `ip route add default via GATEWAY` (`ip -6 route` for IPv6)"
                .to_owned(),
        )
    };
    match (network.ipv4, network.ipv6) {
        (true, true) => ok("routes", "IPv4 and IPv6 have a way to the internet"),
        (true, false) => ok("routes", "IPv4 has a way to the internet, IPv6 has none"),
        (false, true) => warn(
            "routes",
            "IPv6 has a way to the internet, IPv4 has none",
            add(),
        ),
        (false, false) => finding(
            MachineNeeds::lack(needs.internet),
            "routes",
            "no default route, neither of IPv4 nor of IPv6",
            add(),
        ),
    }
}

fn names(network: &NetworkFacts) -> Vec<Finding> {
    let write = || Some("name a resolver there: `nameserver ADDRESS`".to_owned());
    let resolvers = match &network.resolvers {
        Err(error) => warn("dns", format!("/etc/resolv.conf: {error}"), write()),
        Ok(resolvers) if resolvers.is_empty() => {
            warn("dns", "/etc/resolv.conf names no resolver", write())
        }
        Ok(resolvers) => {
            let has_port = |address: &IpAddr| {
                let answers = |holder: &SocketHolder| {
                    holder.address.ip() == *address || holder.address.ip().is_unspecified()
                };
                network.port_53.iter().any(answers)
            };
            let silent = resolvers.iter().filter(|(_, answers)| !answers);
            let silent: Vec<_> = silent.map(|(address, _)| address).collect();
            let own = silent.iter().find(|address| address.is_loopback());
            match own.filter(|address| !has_port(address)) {
                Some(address) => fail(
                    "dns",
                    format!("/etc/resolv.conf names {address}, where nobody has UDP port 53"),
                    Some("start that name server, or name another one".into()),
                ),
                None if silent.is_empty() => {
                    let named: Vec<_> = resolvers.iter().map(|(address, _)| address).collect();
                    ok("dns", format!("/etc/resolv.conf names {}", list(&named)))
                }
                None => warn(
                    "dns",
                    format!(
                        "/etc/resolv.conf names {}, from where no answer comes by UDP",
                        list(&silent)
                    ),
                    Some(
                        "name a resolver there that answers, or open UDP port 53 towards it; a server may also have `servers` in `[dns]`"
                            .into(),
                    ),
                ),
            }
        }
    };
    let holders: Vec<_> = network.port_53.iter().map(ToString::to_string).collect();
    let port = match holders.is_empty() {
        true => "nobody has UDP port 53".to_owned(),
        false => format!("UDP port 53: {}", holders.join(", ")),
    };
    vec![resolvers, ok("dns", port)]
}

impl std::fmt::Display for SocketHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let program = self
            .program
            .as_deref()
            .unwrap_or("a program that may not be looked at");
        write!(f, "{program} at {}", self.address)
    }
}

fn others(network: &NetworkFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (device, kind) in &network.tunnels {
        if network.uplinks.contains(device) {
            let mend =
                "what bentpipe sends crosses that tunnel too: give the server a route past it";
            findings.push(warn(
                "vpn",
                format!("a default route leads into {device} ({kind})"),
                Some(mend.into()),
            ));
        } else {
            findings.push(ok(
                "vpn",
                format!("{device} ({kind}) is there, and not the default route"),
            ));
        }
    }
    if let Some(Ok(firewalls)) = &network.firewalls
        && !firewalls.is_empty()
    {
        findings.push(ok("firewall", format!("found: {}", list(firewalls))));
    }
    findings
}

fn chains(network: &NetworkFacts, needs: &MachineNeeds) -> Vec<Finding> {
    let mut findings = Vec::new();
    match &network.forward_chains {
        None => {}
        Some(Err(error)) => findings.push(warn("firewall", error.clone(), None)),
        Some(Ok(chains)) if chains.is_empty() => {
            findings.push(ok("firewall", "no other chain drops what is forwarded"));
        }
        Some(Ok(chains)) => findings.extend(
            chains
                .iter()
                .map(|(chain, passes)| one(chain, *passes, needs)),
        ),
    }
    if network.legacy_tables {
        let mut mends = Vec::new();
        if needs.device {
            mends.push("if they drop what is forwarded: `iptables-legacy -I FORWARD -o bentpipe0 -j ACCEPT`, and the same with `-i`");
        }
        if needs.open_port {
            mends.push("if they drop what comes in: `iptables -I INPUT -p udp --dport PORT -j ACCEPT` for each port of `listen`, with `-p tcp` for TCP");
        }
        let text = "iptables-legacy has tables, which cannot be seen here";
        findings.push(match mends.is_empty() {
            true => ok("firewall", text),
            false => warn("firewall", text, Some(mends.join("; "))),
        });
    }
    findings
}

fn one(chain: &BaseChain, passes: bool, needs: &MachineNeeds) -> Finding {
    let name = format!("{} {} {}", chain.family, chain.table, chain.name);
    let text = format!("chain `{name}` drops what is forwarded");
    match (passes, needs) {
        (true, _) => ok("firewall", format!("{text}, and lets bentpipe0 pass")),
        (
            _,
            MachineNeeds {
                server_table: true, ..
            },
        ) => ok(
            "firewall",
            format!("{text}; the server lets its clients' packets pass while it runs"),
        ),
        (_, MachineNeeds { device: true, .. }) => ok(
            "firewall",
            format!("{text}; the client lets itself pass while it runs"),
        ),
        (_, MachineNeeds { pep: true, .. }) => ok(
            "firewall",
            format!("{text}; what the PEP needs of it is looked at below"),
        ),
        _ => ok("firewall", format!("{text}; nothing of bentpipe's is")),
    }
}

pub(super) fn list<T: ToString>(items: &[T]) -> String {
    crate::process::join(items)
}

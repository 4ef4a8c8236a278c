//! The server's table `inet bentpipe_server`: what clients' packets may do on this machine, and its silence when it is killed.
//!
//! ```text
//!   bentpipe0 ─► forward: not to bentpipe0 ─► postrouting: masquerade ─► internet
//!   bentpipe0 ◄─ forward: answers, and what is for a routed prefix ◄─── internet
//!   bentpipe0 ◄─ forward: published ports ◄─ prerouting: to the client ◄─ internet
//! ```
//!
//! Clients keep sending to a server that was killed. Without a socket the kernel answers every datagram with an ICMP error
//! across the satellite link, where nothing but the tunnel is to be seen: the table outlives SIGKILL. The next start
//! replaces it and a clean stop removes it. Which destinations a client may reach is checked before its packets come here.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::device::NAME;
use crate::nft::Table;

/// The table's name.
pub const TABLE: &str = "bentpipe_server";

const FORWARD4: &str = "/proc/sys/net/ipv4/ip_forward";
const FORWARD6: &str = "/proc/sys/net/ipv6/conf/all/forwarding";
const CONF6: &str = "/proc/sys/net/ipv6/conf";

/// What is forwarded between the tunnel's device and the world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forwarding {
    /// Clients' addresses: what comes from them leaves with an address of this machine.
    pub translated: Vec<IpNet>,
    /// Prefixes that are routed to clients as they are: what comes from them keeps its address, unless it is a private one
    /// and bound for the internet.
    pub routed: Vec<IpNet>,
    /// UDP ports of this machine, and the client's address that each leads to.
    pub published: Vec<(u16, IpAddr)>,
}

/// The table in force; dropping it removes it.
#[derive(Debug)]
pub struct ServerTable {
    table: Table,
    ports: Vec<u16>,
    opened: Opened,
}

/// Families whose forwarding was off and is on for us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Opened {
    ipv4: bool,
    ipv6: bool,
}

impl ServerTable {
    /// Drops the kernel's own "port unreachable" about datagrams to these UDP `ports`; forwards nothing yet.
    ///
    /// # Errors
    /// `nft` or the privilege is missing; nothing has changed then.
    pub fn install(ports: &[u16]) -> io::Result<Self> {
        let table = Table::new(TABLE);
        // A killed server's settings are still in force, and its table says so.
        let opened = Opened::of_table(&table);
        table.replace(&body(ports, None, opened))?;
        Ok(Self {
            table,
            ports: ports.to_vec(),
            opened,
        })
    }

    /// Forwards, from now on, what `forwarding` says. Where this machine did not forward before, it forwards that only.
    ///
    /// # Errors
    /// `nft` or the privilege is missing, or the settings of the kernel cannot be changed; the text says which.
    pub fn forward(&mut self, forwarding: &Forwarding) -> io::Result<()> {
        self.opened.ipv4 |= is_off(FORWARD4);
        self.opened.ipv6 |= is_off(FORWARD6);
        // The rules first: nothing of others' is forwarded for a moment.
        self.table
            .replace(&body(&self.ports, Some(forwarding), self.opened))?;
        if is_off(FORWARD4) {
            write(FORWARD4, "1")?;
        }
        if is_off(FORWARD6) {
            // A router takes no router's advice, unless it is told to: this machine would lose its own address and route.
            listen_to_routers("1", "2")?;
            write(FORWARD6, "1")?;
        }
        Ok(())
    }
}

impl Drop for ServerTable {
    fn drop(&mut self) {
        // What stays is found and mended by the next start.
        if self.opened.ipv4 {
            let _ = write(FORWARD4, "0");
        }
        if self.opened.ipv6 {
            let _ = write(FORWARD6, "0");
            let _ = listen_to_routers("2", "1");
        }
        let _ = self.table.remove();
    }
}

impl Opened {
    /// What the table of a killed server says.
    fn of_table(table: &Table) -> Self {
        let text = table.list().unwrap_or_default();
        Self {
            ipv4: text.contains(&only_ours("ipv4")),
            ipv6: text.contains(&only_ours("ipv6")),
        }
    }
}

fn is_off(path: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.trim() == "0")
}

fn write(path: &str, value: &str) -> io::Result<()> {
    fs::write(path, value).map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("cannot set {path} to {value}: {error}"),
        )
    })
}

/// Interfaces whose `accept_ra` is `from` get `to`.
fn listen_to_routers(from: &str, to: &str) -> io::Result<()> {
    for entry in fs::read_dir(CONF6)? {
        let path = entry?.path().join("accept_ra");
        if fs::read_to_string(&path).is_ok_and(|text| text.trim() == from) {
            fs::write(&path, to)?;
        }
    }
    Ok(())
}

/// The chain that stands for "this machine did not forward before".
fn only_ours(family: &str) -> String {
    format!("chain only_ours_{family}")
}

fn body(ports: &[u16], forwarding: Option<&Forwarding>, opened: Opened) -> String {
    let mut text = quiet(ports);
    for (family, opened) in [("ipv4", opened.ipv4), ("ipv6", opened.ipv6)] {
        if opened {
            // Writing into a String cannot fail.
            let _ = writeln!(
                text,
                "  {} {{\n    meta nfproto {family} iifname != \"{NAME}\" oifname != \"{NAME}\" counter drop\n  }}",
                only_ours(family)
            );
        }
    }
    if forwarding.is_none() && opened == Opened::default() {
        return text;
    }
    text.push_str(
        "  chain forward {\n    type filter hook forward priority filter; policy accept;\n",
    );
    for (family, opened) in [("ipv4", opened.ipv4), ("ipv6", opened.ipv6)] {
        if opened {
            let _ = writeln!(text, "    jump only_ours_{family}");
        }
    }
    let _ = writeln!(
        text,
        "    iifname \"{NAME}\" oifname \"{NAME}\" counter drop"
    );
    let Forwarding {
        translated,
        routed,
        published,
    } = forwarding.cloned().unwrap_or_default();
    // Not "established": what others begin passes only for as long as its port is published.
    for (port, to) in &published {
        let _ = writeln!(
            text,
            "    oifname \"{NAME}\" ct direction original meta l4proto udp ct original proto-dst {port} {} daddr {to} udp dport {port} accept",
            family(*to)
        );
    }
    for (family, prefixes) in by_family(&translated) {
        let _ = writeln!(
            text,
            "    oifname \"{NAME}\" ct direction original ct status dnat {family} daddr {prefixes} counter drop"
        );
    }
    let _ = writeln!(
        text,
        "    oifname \"{NAME}\" ct state established,related accept"
    );
    for (family, prefixes) in by_family(&routed) {
        let _ = writeln!(
            text,
            "    oifname \"{NAME}\" {family} daddr {prefixes} accept"
        );
    }
    let _ = writeln!(text, "    oifname \"{NAME}\" counter drop\n  }}");
    text.push_str(&inbound(&published));
    text.push_str(
        "  chain postrouting {\n    type nat hook postrouting priority srcnat; policy accept;\n",
    );
    for (family, prefixes) in by_family(&translated) {
        let _ = writeln!(
            text,
            "    oifname != \"{NAME}\" {family} saddr {prefixes} masquerade"
        );
    }
    for (family, private) in PRIVATE {
        let of_family = routed
            .iter()
            .filter(|prefix| self::family(prefix.addr()) == family);
        let of_family: Vec<_> = of_family.copied().collect();
        for (_, prefixes) in by_family(&of_family) {
            let _ = writeln!(
                text,
                "    oifname != \"{NAME}\" {family} saddr {prefixes} {family} saddr {private} {family} daddr != {private} masquerade"
            );
        }
    }
    text.push_str("  }\n");
    text
}

/// Addresses that mean something to neighbours alone. Hosts in a routed prefix of these are themselves to others of these;
/// the internet could not answer them.
const PRIVATE: [(&str, &str); 2] = [
    (
        "ip",
        "{ 10.0.0.0/8, 100.64.0.0/10, 172.16.0.0/12, 192.168.0.0/16 }",
    ),
    ("ip6", "{ fc00::/7 }"),
];

/// Published ports, on every address of this machine and for everybody but clients.
fn inbound(published: &[(u16, IpAddr)]) -> String {
    let mut text = String::from(
        "  chain prerouting {\n    type nat hook prerouting priority dstnat; policy accept;\n",
    );
    for (port, to) in published {
        let family = family(*to);
        let (nfproto, shown) = match to {
            IpAddr::V4(to) => ("ipv4", to.to_string()),
            IpAddr::V6(to) => ("ipv6", format!("[{to}]")),
        };
        let _ = writeln!(
            text,
            "    iifname != \"{NAME}\" meta nfproto {nfproto} udp dport {port} fib daddr type local dnat {family} to {shown}:{port}"
        );
    }
    text.push_str("  }\n");
    text
}

fn family(address: IpAddr) -> &'static str {
    match address {
        IpAddr::V4(_) => "ip",
        IpAddr::V6(_) => "ip6",
    }
}

/// The prefixes of each family that has any, as an anonymous set.
fn by_family(prefixes: &[IpNet]) -> impl Iterator<Item = (&'static str, String)> {
    [("ip", false), ("ip6", true)]
        .into_iter()
        .filter_map(|(family, ipv6)| {
            let of_family = prefixes
                .iter()
                .filter(|prefix| prefix.addr().is_ipv6() == ipv6);
            // Overlapping ones are refused in a set.
            let joined = IpNet::aggregate(&of_family.copied().collect());
            let list: Vec<_> = joined.iter().map(ToString::to_string).collect();
            (!list.is_empty()).then(|| (family, format!("{{ {} }}", list.join(", "))))
        })
}

/// The error quotes the datagram: its destination port stands behind 8 bytes of ICMP, the quoted IP
/// header (20 or 40 bytes) and the source port.
fn quiet(ports: &[u16]) -> String {
    let mut text = String::from(
        "  chain quiet {\n    type filter hook output priority filter; policy accept;\n",
    );
    for port in ports {
        for (icmp, offset) in [("icmp", (8 + 20 + 2) * 8), ("icmpv6", (8 + 40 + 2) * 8)] {
            let _ = writeln!(
                text,
                "    {icmp} type destination-unreachable {icmp} code port-unreachable @th,{offset},16 {port} drop"
            );
        }
    }
    text.push_str("  }\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(published: Vec<(u16, IpAddr)>) -> String {
        let forwarding = Forwarding {
            translated: vec!["100.96.0.2/32".parse().unwrap()],
            routed: Vec::new(),
            published,
        };
        body(&[4433], Some(&forwarding), Opened::default())
    }

    #[test]
    fn routed_prefixes_are_translated_towards_the_internet_alone_and_if_private() {
        let forwarding = Forwarding {
            routed: vec![
                "10.1.0.0/24".parse().unwrap(),
                "2001:db8:1::/64".parse().unwrap(),
            ],
            ..Forwarding::default()
        };
        let text = body(&[], Some(&forwarding), Opened::default());
        for prefix in ["ip daddr { 10.1.0.0/24 }", "ip6 daddr { 2001:db8:1::/64 }"] {
            assert!(text.contains(&format!("oifname \"bentpipe0\" {prefix} accept")));
        }
        let (_, nat) = text.split_once("chain postrouting").unwrap();
        assert!(
            nat.contains("ip saddr { 10.1.0.0/24 } ip saddr { 10.0.0.0/8"),
            "{nat}"
        );
        assert_eq!(nat.matches("masquerade").count(), 2, "{nat}");
    }

    #[test]
    fn what_others_begin_passes_for_published_ports_alone() {
        let address: IpAddr = "100.96.0.2".parse().unwrap();
        let (open, shut) = (text(vec![(5060, address)]), text(Vec::new()));
        let lead = "udp dport 5060 fib daddr type local dnat ip to 100.96.0.2:5060";
        let pass = "ct original proto-dst 5060 ip daddr 100.96.0.2 udp dport 5060 accept";
        let drop = "ct status dnat ip daddr { 100.96.0.2/32 } counter drop";
        let answers = "ct state established,related accept";
        assert!(
            open.contains(lead) && !shut.contains("dnat ip to"),
            "{open}"
        );
        for text in [open.as_str(), shut.as_str()] {
            // In this order: what was led before its port was closed counts as established.
            assert!(
                text.find(drop).unwrap() < text.find(answers).unwrap(),
                "{text}"
            );
        }
        assert!(
            open.find(pass).unwrap() < open.find(drop).unwrap(),
            "{open}"
        );
        assert!(!shut.contains("proto-dst"), "{shut}");
    }
}

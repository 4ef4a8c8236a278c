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
//! replaces it and a clean stop removes it. Another program may remove it: a rule of policy routing keeps clients' packets
//! that it has not marked from leaving. Forwarding is opened interface by interface. Which destinations a client may reach is checked before its packets come here.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::IpAddr;

use bentpipe_sys::device::NAME;
use bentpipe_sys::nft::{self, Table};
use bentpipe_sys::nftables::{Fingerprint, fingerprint};
use bentpipe_sys::policy_rule::{Action, Family, PolicyRule};
use ipnet::IpNet;

use crate::firewall::{SERVER_TABLE, Settings, TRIAL_TABLE, close_passages, interfaces};

const FORWARD4: &str = "/proc/sys/net/ipv4/conf/all/forwarding";
const FORWARD6: &str = "/proc/sys/net/ipv6/conf/all/forwarding";

/// The mark of clients' packets that the table has seen.
const MARK: u32 = 0x5000_0000;

/// The bits of the mark that are ours; others are left as they are.
const MASK: u32 = 0xf000_0000;

/// Priority of the rule for packets that it has not seen; before all that an administrator is likely to add.
const PRIORITY: u32 = 97;

/// Forwarding between the tunnel's device and the world.
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

/// The table in force, with what belongs to it; dropping it removes all.
#[derive(Debug)]
pub struct ServerTable {
    table: Table,
    ports: Vec<u16>,
    settings: Settings,
    forwarding: Option<Forwarding>,
    router: Router,
    /// Content of the table when it was last written.
    written: Option<Fingerprint>,
}

/// Families in which this machine forwards for others than us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Router {
    ipv4: bool,
    ipv6: bool,
}

impl Router {
    /// As the kernel has it, given what we have changed ourselves.
    fn now(settings: &Settings) -> Self {
        Self {
            ipv4: is_on(FORWARD4),
            ipv6: is_on(FORWARD6) && !settings.opened_machine(),
        }
    }
}

impl ServerTable {
    /// Drops the kernel's own "port unreachable" about datagrams to these UDP `ports`; forwards nothing yet.
    ///
    /// # Errors
    /// `nft` or the privilege is missing; nothing has changed then.
    pub fn install(ports: &[u16]) -> io::Result<Self> {
        let table = Table::new(SERVER_TABLE);
        // A killed server's settings are still in force, and its table says so.
        let settings = Settings::left_behind(&table)?;
        let mut installed = Self {
            router: Router::now(&settings),
            table,
            ports: ports.to_vec(),
            settings,
            forwarding: None,
            written: None,
        };
        installed.write()?;
        Ok(installed)
    }

    /// Forwards, from now on, what `forwarding` says. Where this machine did not forward before, it forwards that only:
    /// interfaces are opened one by one, so that the setting of the whole machine shows what others want.
    ///
    /// # Errors
    /// `nft` or the privilege is missing, or the settings of the kernel cannot be changed; the text says which.
    pub fn forward(&mut self, forwarding: &Forwarding) -> io::Result<()> {
        self.forwarding = Some(forwarding.clone());
        self.restore()
    }

    /// Puts all in force again: rules, settings of interfaces that have come, the table.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn restore(&mut self) -> io::Result<()> {
        if self.forwarding.is_none() {
            return self.write();
        }
        self.settings.forget_gone();
        for interface in outside()? {
            self.settings.plan(&interface)?;
        }
        self.router = Router::now(&self.settings);
        // In this order nothing of others' is forwarded for a moment, and nothing of ours with its own address.
        for rule in second_line() {
            rule.add()?;
        }
        self.write()?;
        self.settings.apply()?;
        open_device();
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        let body = body(&self.ports, self.forwarding.as_ref(), self.router);
        self.table
            .replace(&format!("{}{body}", self.settings.sets()))?;
        self.written = fingerprint(SERVER_TABLE)?;
        Ok(())
    }

    /// Tells if the table is as it was written; `None` if it is gone.
    ///
    /// # Errors
    /// The privilege is missing.
    pub fn is_whole(&self) -> io::Result<Option<bool>> {
        let now = fingerprint(SERVER_TABLE)?;
        Ok(now.map(|now| Some(now) == self.written))
    }

    /// True if a rule of policy routing of ours is missing.
    ///
    /// # Errors
    /// The kernel gave no answer.
    pub fn lacks_rules(&self) -> io::Result<bool> {
        if self.forwarding.is_none() {
            return Ok(false);
        }
        for rule in second_line() {
            if !PolicyRule::list(rule.family)?.contains(&rule) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True if a setting that we need has been changed back.
    #[must_use]
    pub fn lacks_settings(&self) -> bool {
        self.forwarding.is_some() && (self.settings.is_lost() || is_shut(NAME))
    }

    /// True if an interface has come that answers cannot come in by yet.
    ///
    /// # Errors
    /// /proc/sys cannot be read.
    pub fn has_newcomers(&self) -> io::Result<bool> {
        let mut outside = outside()?.into_iter();
        Ok(self.forwarding.is_some()
            && outside.any(|name| is_shut(&name) && !self.settings.names(&name)))
    }

    /// True if another program has made a router of this machine since, or ended that.
    #[must_use]
    pub fn is_outdated(&self) -> bool {
        self.forwarding.is_some() && Router::now(&self.settings) != self.router
    }
}

impl Drop for ServerTable {
    fn drop(&mut self) {
        // What stays is found and mended by the next start. What others have opened meanwhile stays open.
        self.settings.restore(false);
        let _ = close_passages();
        let _ = self.table.remove();
        for rule in second_line() {
            let _ = rule.delete();
        }
    }
}

/// Rules that hold where the table does not: a client's packet that the table has not marked goes nowhere, so that none leaves
/// with its inner address while the table is gone.
fn second_line() -> Vec<PolicyRule> {
    let families = Family::usable().into_iter();
    let rules = families.map(|family| PolicyRule {
        family,
        priority: PRIORITY,
        iif: Some(NAME.to_owned()),
        mark: Some((0, MASK)),
        from: None,
        action: Action::Blackhole,
    });
    rules.collect()
}

/// Interfaces that answers may come in by.
fn outside() -> io::Result<Vec<String>> {
    let mut names = interfaces()?;
    names.retain(|name| name != "lo" && name != NAME);
    Ok(names)
}

/// Lets what the device delivers be forwarded. Without the device there is nothing to do.
fn open_device() {
    let _ = fs::write(format!("/proc/sys/net/ipv4/conf/{NAME}/forwarding"), "1");
    let _ = fs::write(
        format!("/proc/sys/net/ipv6/conf/{NAME}/force_forwarding"),
        "1",
    );
}

/// True if what comes in by this interface is not forwarded.
fn is_shut(interface: &str) -> bool {
    let path = format!("/proc/sys/net/ipv4/conf/{interface}/forwarding");
    fs::read_to_string(path).is_ok_and(|text| text.trim() == "0")
}

fn is_on(path: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.trim() == "1")
}

/// The chain that stands for "this machine did not forward before".
fn only_ours(family: &str) -> String {
    format!("chain only_ours_{family}")
}

/// Has the kernel look at a table with everything that it can hold, and forget it.
///
/// # Errors
/// `nft` or the privilege is missing, or kernel or `nft` do not know an expression; the text says which.
pub(crate) fn trial() -> io::Result<()> {
    let translated = [([100, 96, 0, 0], 16)];
    let translated = translated.map(|(ip, length)| IpNet::new_assert(IpAddr::from(ip), length));
    let forwarding = Forwarding {
        translated: translated.to_vec(),
        routed: vec![IpNet::new_assert(IpAddr::from([10, 1, 0, 0]), 24)],
        published: vec![(5060, IpAddr::from([100, 96, 0, 2]))],
    };
    let body = body(&[4433], Some(&forwarding), Router::default());
    nft::check(&Table::new(TRIAL_TABLE).replacement(&body))
}

fn body(ports: &[u16], forwarding: Option<&Forwarding>, router: Router) -> String {
    let mut text = quiet(ports);
    if forwarding.is_none() {
        return text;
    }
    let families = [("ipv4", router.ipv4), ("ipv6", router.ipv6)];
    for (family, router) in families {
        if !router {
            // Writing into a String cannot fail.
            let _ = writeln!(
                text,
                "  {} {{\n    meta nfproto {family} iifname != \"{NAME}\" oifname != \"{NAME}\" counter drop\n  }}",
                only_ours(family)
            );
        }
    }
    // Seen, and therefore translated further on: the rule of policy routing lets nothing else out of the device.
    let _ = writeln!(
        text,
        "  chain mark_arriving {{\n    type filter hook prerouting priority mangle; policy accept;\n    iifname \"{NAME}\" meta mark set meta mark & {:#010x} | {MARK:#x}\n  }}",
        !MASK
    );
    let Forwarding {
        translated,
        routed,
        published,
    } = forwarding.cloned().unwrap_or_default();
    // Where the kernel checks sources strictly it looks up the way back as if from the device; that must not end in the rule.
    text.push_str(
        "  chain mark_answers {\n    type filter hook prerouting priority dstnat + 10; policy accept;\n",
    );
    let clients: Vec<_> = translated.iter().chain(&routed).copied().collect();
    for (family, prefixes) in by_family(&clients) {
        let _ = writeln!(
            text,
            "    iifname != \"{NAME}\" {family} daddr {prefixes} meta mark set meta mark & {:#010x} | {MARK:#x}",
            !MASK
        );
    }
    text.push_str("  }\n");
    text.push_str(
        "  chain forward {\n    type filter hook forward priority filter; policy accept;\n",
    );
    for (family, router) in families {
        if !router {
            let _ = writeln!(text, "    jump only_ours_{family}");
        }
    }
    let _ = writeln!(
        text,
        "    iifname \"{NAME}\" oifname \"{NAME}\" counter drop"
    );
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
        body(&[4433], Some(&forwarding), Router::default())
    }

    #[test]
    fn tables_are_those_of_the_snapshots() {
        let full = Forwarding {
            translated: vec![
                "100.96.0.2/32".parse().unwrap(),
                "fd00:96::2/128".parse().unwrap(),
            ],
            routed: vec![
                "10.1.0.0/24".parse().unwrap(),
                "2001:db8:1::/64".parse().unwrap(),
            ],
            published: vec![
                (5060, "100.96.0.2".parse().unwrap()),
                (5061, "fd00:96::2".parse().unwrap()),
            ],
        };
        let router = Router {
            ipv4: true,
            ipv6: true,
        };
        let settings = Settings::sample();
        let script = |name, forwarding, router| {
            let body = body(&[4433, 443], forwarding, router);
            let body = format!("{}{body}", settings.sets());
            (name, Table::new(SERVER_TABLE).replacement(&body))
        };
        let all = [
            script("server", None, Router::default()),
            script(
                "server-without-clients",
                Some(&Forwarding::default()),
                Router::default(),
            ),
            script("server-forwarding", Some(&full), Router::default()),
            script("server-on-a-router", Some(&full), router),
        ];
        let directory = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src/server/forwarding/snapshots"
        );
        crate::firewall::snapshot::compare(directory, &all);
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
        let text = body(&[], Some(&forwarding), Router::default());
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

//! Rules of other programs that are asked before ours and take away what the tables mark for this client.
//!
//! ```text
//!   rules before ours ─► a packet that each would match ─► the kernel: which table leads it? ─► not ours: the rule is named
//! ```
//!
//! The client's table drops what such a rule takes, so that nothing of it leaves in clear. Another program's rule is not moved,
//! for its owner may want it there.

use std::io;
use std::net::IpAddr;

use bentpipe_sys::link;
use bentpipe_sys::policy_rule::{
    Action, Family, MAIN, PolicyRule, PrecedingRule, ProbePacket, RuleFate, some_destinations,
};
use ipnet::IpNet;

use super::lan::{Lan, is_link_local};
use super::{Interception, Routing, Wanted, ruleset, upkeep};

const TCP: u8 = 6;

/// The routing table of this machine's own addresses.
const LOCAL: u32 = 255;

/// The routing table that is asked last.
const DEFAULT: u32 = 253;

/// Destinations of a rule's table that are tried.
const TRIED: usize = 16;

/// Hosts of a prefix that are looked at for one that is not this machine.
const HOSTS: usize = 4;

/// Destinations on the internet that nobody has, and one that somebody has: of several halves of it one each.
const SAMPLES: [&str; 4] = ["198.51.100.1", "100.0.0.1", "2001:db8::1", "2600::1"];

/// A rule of another program that takes away what is to be carried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleAhead {
    rule: PrecedingRule,
    /// Interface by which the packets come in that it takes; `None`: this machine's own.
    by: Option<String>,
    /// Destination for which it was seen.
    to: IpAddr,
    /// Priority of the last of our rules.
    last: u32,
}

impl RuleAhead {
    /// Short name of the rule.
    pub(crate) fn name(&self) -> String {
        let family = match self.rule.family {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        };
        format!(
            "way to the tunnel past {family} rule {} of another program, `{}`",
            self.rule.priority, self.rule
        )
    }

    /// The fault and its mend.
    #[must_use]
    pub fn faults(&self) -> [String; 2] {
        let Self { rule, by, to, last } = self;
        let ip = match rule.family {
            Family::V4 => "ip",
            Family::V6 => "ip -6",
        };
        let sender = by
            .as_deref()
            .map_or("this machine sends".to_owned(), |name| {
                format!("comes in by {name}")
            });
        [
            format!(
                "the rule `{rule}` is asked before those of bentpipe and takes what {sender}, as to {to}, which is dropped"
            ),
            match rule.is_whole {
                true => format!(
                    "give it a later priority (`{ip} rule add priority {} {rule}`, then `{ip} rule del priority {}`), or name in \
                     `bypass` what it is for",
                    last + 100,
                    rule.priority
                ),
                // To write what is known of it would be another rule.
                false => format!(
                    "give it a later priority than {last} (`{ip} rule show priority {}` has it whole), or name in `bypass` what it is for",
                    rule.priority
                ),
            },
        ]
    }
}

/// Rules of other programs that are asked before ours and take packets that `wanted` takes in.
///
/// # Errors
/// The kernel gave no answer.
pub(super) fn rules_ahead(wanted: &Wanted) -> io::Result<Vec<RuleAhead>> {
    let mut found = Vec::new();
    for family in Family::usable() {
        let rules = PrecedingRule::list(family, wanted.routing.priority, &wanted.rules)?;
        if rules.is_empty() {
            continue;
        }
        let ours = Action::Table(wanted.routing.table);
        let in_force = PolicyRule::list(family)?;
        let in_force = in_force.iter().any(|rule| rule.action == ours);
        let senders = senders(wanted, family);
        for rule in rules {
            if !in_force && !is_known_without_ours(&rule) {
                continue;
            }
            let taken = senders.iter().find_map(|sender| {
                let to = sender.loses(&rule, wanted, in_force)?;
                Some((sender.by.clone(), to))
            });
            found.extend(taken.map(|(by, to)| RuleAhead {
                rule,
                by,
                to,
                last: wanted.routing.priority + 2,
            }));
        }
    }
    Ok(found)
}

/// Rules of other programs that are asked before those of a client that takes in `it`, whether one runs or not.
///
/// # Errors
/// The kernel gave no answer.
pub(crate) fn ahead_of(it: &Interception) -> io::Result<Vec<RuleAhead>> {
    let lan = Lan::present(&it.interfaces, it.device(), None)?;
    rules_ahead(&Wanted {
        generation: 0,
        table: None,
        rules: upkeep::rules(it, &lan.surfaces()),
        routes: Vec::new(),
        interfaces: it.interfaces.clone(),
        guard_rules: Vec::new(),
        device: None,
        attached: it.needs_device(),
        exempt: ruleset::exempt(it, lan.prefixes()),
        local: it.local,
        routing: it.routing,
        lan,
    })
}

/// True if the kernel's answer tells whether `rule` takes a packet, also while there are no rules of ours that would take it after:
/// an answer that nothing leads there may be of any rule.
fn is_known_without_ours(rule: &PrecedingRule) -> bool {
    match rule.fate {
        RuleFate::Dropped | RuleFate::Goto(_) => false,
        // That is where the last rules lead.
        RuleFate::Table(table) => ![MAIN, DEFAULT].contains(&table),
    }
}

/// A sender whose packets are taken in: an interface of the LAN, or this machine.
struct Sender {
    family: Family,
    /// Interface that the packets come in by, and its number.
    by: Option<String>,
    index: Option<u32>,
    prefixes: Vec<IpNet>,
}

fn senders(wanted: &Wanted, family: Family) -> Vec<Sender> {
    let of_family = |net: &&IpNet| net.addr().is_ipv6() == (family == Family::V6);
    let lans = wanted.interfaces.iter().filter_map(|name| {
        let homes = wanted.lan.homes(name).filter(of_family);
        Some(Sender {
            family,
            // One that is not there sends nothing.
            index: Some(link::index(name).ok()?),
            by: Some(name.clone()),
            prefixes: homes.filter(|net| !is_link_local(net)).copied().collect(),
        })
    });
    let own = wanted.local.then_some(Sender {
        family,
        by: None,
        index: None,
        prefixes: Vec::new(),
    });
    lans.chain(own).collect()
}

impl Sender {
    /// Destination of which `rule` takes what this sender sends there; `None` if it takes nothing.
    fn loses(&self, rule: &PrecedingRule, wanted: &Wanted, in_force: bool) -> Option<IpAddr> {
        let mark = self.mark_of(rule, wanted)?;
        let from = self.source(rule, wanted)?;
        let packet = |to| ProbePacket {
            from,
            to,
            iif: self.index,
            mark,
            protocol: rule.protocol,
            port: rule.port,
            source_port: rule.source_port,
        };
        let mut destinations = destinations(rule, self.family).into_iter();
        destinations.find(|to| {
            let exempt = wanted.exempt.iter().any(|net| net.contains(to));
            let packet = packet(*to);
            !exempt && (in_force || packet.way().is_ok()) && is_taken(rule, &packet, wanted)
        })
    }

    /// An address that packets of this sender may come from and that `rule` matches, or `None` inside for this machine's own.
    #[expect(clippy::option_option, reason = "no sender, or one without an address")]
    fn source(&self, rule: &PrecedingRule, wanted: &Wanted) -> Option<Option<IpAddr>> {
        let Some(by) = &self.by else {
            let own = rule.iif.as_deref().is_none_or(|iif| iif == "lo");
            return (own && rule.from.is_none()).then_some(None);
        };
        if rule.iif.as_ref().is_some_and(|iif| iif != by) {
            return None;
        }
        let narrow = |net: &IpNet| match rule.from {
            None => Some(*net),
            Some(from) if net.contains(&from) => Some(from),
            Some(from) => from.contains(net).then_some(*net),
        };
        let not_own = |host: &IpAddr| !wanted.lan.addresses().contains(host);
        let near = self.prefixes.iter().filter_map(narrow);
        let near = near.flat_map(|net| net.hosts().take(HOSTS)).find(not_own);
        // Networks behind a router of the LAN are taken in as well.
        let far = || {
            rule.from?
                .hosts()
                .next()
                .filter(|host| self.is_behind(*host))
        };
        near.or_else(far).map(Some)
    }

    /// Mark of ours that packets of this sender have which `rule` may take; `None` if it takes none of ours. Bits of others are those of
    /// marks that others give, of which nothing is known.
    fn mark_of(&self, rule: &PrecedingRule, wanted: &Wanted) -> Option<u32> {
        let routing = wanted.routing;
        let (mark, tunnel_mark) = match self.by {
            Some(_) => (routing.mark, routing.tunnel_mark),
            None => (routing.local_mark, routing.local_tunnel_mark),
        };
        let tcp = rule.protocol.is_none_or(|protocol| protocol == TCP);
        let others = wanted.attached && rule.protocol.is_none_or(|protocol| protocol != TCP);
        let matches = |ours: &u32| match rule.mark {
            None => true,
            Some((value, bits)) => {
                (value ^ ours) & bits & routing.mask == 0 && value & bits & !routing.mask == 0
            }
        };
        let tcp = tcp.then_some(mark).filter(matches);
        tcp.or_else(|| others.then_some(tunnel_mark).filter(matches))
    }

    /// True if the kernel's way to `host` leads by the sender's interface.
    fn is_behind(&self, host: IpAddr) -> bool {
        let way = ProbePacket {
            from: None,
            to: host,
            iif: None,
            mark: 0,
            protocol: None,
            port: None,
            source_port: None,
        };
        way.way().is_ok_and(|way| way.device == self.index)
    }
}

/// Destinations on the internet that `rule` may take.
fn destinations(rule: &PrecedingRule, family: Family) -> Vec<IpAddr> {
    let samples = SAMPLES.iter().filter_map(|text| text.parse().ok());
    let of_family = |to: &IpAddr| to.is_ipv6() == (family == Family::V6);
    let within = |to: &IpAddr| rule.to.is_none_or(|net| net.contains(to));
    let mut all: Vec<IpAddr> = samples.filter(|to| of_family(to) && within(to)).collect();
    let mut nets: Vec<_> = rule.to.into_iter().collect();
    if let RuleFate::Table(table) = rule.fate {
        // A table that cannot be read is tried with the samples.
        nets.extend(some_destinations(family, table, TRIED).unwrap_or_default());
    }
    let first = nets.iter().filter_map(|net| net.hosts().next());
    all.extend(first.filter(|to| within(to) && !to.is_multicast() && !to.is_loopback()));
    all
}

/// True if `rule` takes `packet` from our tables.
fn is_taken(rule: &PrecedingRule, packet: &ProbePacket, wanted: &Wanted) -> bool {
    let Routing {
        table,
        tunnel_table,
        ..
    } = wanted.routing;
    let ours = [table, tunnel_table];
    let is_lan =
        |device: Option<u32>| device.is_some_and(|one| wanted.lan.indices().contains(&one));
    match (rule.fate, packet.way()) {
        (RuleFate::Table(to), _) if to == LOCAL || ours.contains(&to) => false,
        (RuleFate::Dropped, way) => way.is_err() && is_answered(packet, wanted),
        (_, Err(_)) => is_answered(packet, wanted),
        (RuleFate::Table(to), Ok(way)) => way.table == to && !is_lan(way.device),
        (RuleFate::Goto(_), Ok(way)) => !ours.contains(&way.table) && !is_lan(way.device),
    }
}

/// True if the kernel would take in such a packet for this machine itself: its interface is up and its source is none that is refused.
fn is_answered(packet: &ProbePacket, wanted: &Wanted) -> bool {
    let own = wanted.lan.addresses().iter().copied();
    let mut own = own.filter(|own| own.is_ipv6() == packet.to.is_ipv6());
    match (packet.iif, own.next()) {
        (Some(_), Some(to)) => ProbePacket { to, ..*packet }.way().is_ok(),
        (Some(_), None) => false,
        (None, _) => true,
    }
}

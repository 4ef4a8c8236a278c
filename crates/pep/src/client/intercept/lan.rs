//! The intercepted interfaces with their prefixes, and the routes that keep what is for it from leaving elsewhere.
//!
//! While an interface of the LAN is down, its routes are gone, and the default route would lead over the link what this
//! machine sends to hosts of the LAN: answers on their connections, in clear. So each of the LAN's prefixes has a second route
//! to nowhere, of a metric so high that it counts only while there is no other. Rules in a table could do the same, but are
//! flushed with it.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use bentpipe_sys::link::{self, Link, Port};
use bentpipe_sys::policy_rule::{self, MAIN, StrayRoute, TableRoute, Way, networks_behind};
use ipnet::IpNet;

use super::{Interception, Routing, ruleset};
use crate::firewall::{Family, Router};

/// The metric of routes to nowhere, by which ours are known.
const METRIC: u32 = 0x6265_6e74;

/// Prefixes of one family that an interface has or, if it has none now, had.
type Homes = BTreeMap<(String, bool), Vec<IpNet>>;

/// The intercepted interfaces as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Lan {
    prefixes: Vec<IpNet>,
    /// Addresses of this machine on the interfaces.
    addresses: Vec<IpAddr>,
    homes: Homes,
    /// The kernel's numbers of these interfaces and of our device, also of one that has another name by now.
    indices: Vec<u32>,
    /// The kernel's numbers of the interfaces alone, by the names that they have now.
    named: Vec<u32>,
    /// Names that no interface has.
    missing: Vec<String>,
    /// Interfaces that are ports of others.
    ports: Vec<Port>,
    /// Families in which this machine forwards for others than us.
    router: Router,
    /// Forwarding of IPv6 is on for the whole machine because of us.
    opened_machine: bool,
}

impl Lan {
    /// A LAN of these prefixes, own addresses and interface numbers.
    #[cfg(test)]
    pub(super) fn sample(prefixes: &[IpNet], addresses: &[IpAddr], indices: &[u32]) -> Self {
        Self {
            addresses: addresses.to_vec(),
            indices: indices.to_vec(),
            prefixes: prefixes.to_vec(),
            ..Self::default()
        }
    }

    /// Of those interfaces that exist: one that comes late keeps no other without the client. Forwarding of IPv6 is on for the whole
    /// machine because of a process that was killed if `opened_machine`.
    pub(super) fn of(it: &Interception, opened_machine: bool) -> io::Result<Self> {
        let known = Self {
            opened_machine,
            ..Self::default()
        };
        Self::present(&it.interfaces, it.device(), Some(&known))
    }

    /// Of those that exist; the interfaces and prefixes that were `known` before are remembered.
    pub(super) fn present(
        interfaces: &[String],
        device: Option<&str>,
        known: Option<&Self>,
    ) -> io::Result<Self> {
        let links = link::links()?;
        let exists = |name: &String| links.iter().any(|link| link.name == *name);
        let ours = |link: &&Link| {
            let named = device == Some(&link.name) || interfaces.contains(&link.name);
            named || known.is_some_and(|known| known.indices.contains(&link.index))
        };
        let opened_machine = known.is_some_and(|known| known.opened_machine);
        let mut lan = Self {
            router: Router::now(opened_machine),
            opened_machine,
            indices: links.iter().filter(ours).map(|link| link.index).collect(),
            missing: interfaces.to_vec(),
            ..Self::default()
        };
        let named = links.iter().filter(|link| interfaces.contains(&link.name));
        lan.named = named.map(|link| link.index).collect();
        lan.missing.retain(|name| !exists(name));
        lan.ports = link::ports(&links, interfaces);
        for address in link::addresses()? {
            let mut named = links.iter().filter(|link| link.index == address.index);
            let name = named.next().map(|link| &link.name);
            let Some(name) = name.filter(|name| interfaces.contains(name)) else {
                continue;
            };
            lan.addresses.push(address.own);
            // A prefix that is everything would exempt everything.
            if address.prefix.prefix_len() > 0 {
                let prefix = address.prefix.trunc();
                lan.prefixes.push(prefix);
                let home = (name.clone(), prefix.addr().is_ipv6());
                lan.homes.entry(home).or_default().push(prefix);
            }
        }
        for link in links.iter().filter(|link| interfaces.contains(&link.name)) {
            lan.prefixes.extend(networks_behind(link.index)?);
        }
        lan.remember(interfaces, known);
        lan.sort();
        Ok(lan)
    }

    /// An interface without an address has lost it for a while, as one that goes down does in IPv6.
    fn remember(&mut self, interfaces: &[String], known: Option<&Self>) {
        for (home, prefixes) in known.iter().flat_map(|known| &known.homes) {
            let global = |prefix: &IpNet| !is_link_local(prefix);
            let now = self.homes.get(home);
            if interfaces.contains(&home.0) && !now.is_some_and(|now| now.iter().any(global)) {
                self.homes.insert(home.clone(), prefixes.clone());
            }
        }
    }

    /// Two looks at the same are equal, in whatever order the kernel lists them.
    fn sort(&mut self) {
        for list in self.homes.values_mut().chain([&mut self.prefixes]) {
            list.sort_unstable();
            list.dedup();
        }
        self.addresses.sort_unstable();
        self.indices.sort_unstable();
        self.named.sort_unstable();
    }

    /// True if the LAN's interfaces and their addresses are those of `other`.
    pub(super) fn has_same_network(&self, other: &Self) -> bool {
        let (prefixes, addresses) = (&self.prefixes, &self.addresses);
        (prefixes, addresses) == (&other.prefixes, &other.addresses)
            && (&self.missing, &self.ports) == (&other.missing, &other.ports)
    }

    /// Connected prefixes, and networks behind other routers of the LANs.
    pub(super) fn prefixes(&self) -> &[IpNet] {
        &self.prefixes
    }

    /// Addresses of this machine.
    pub(super) fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// The kernel's numbers of the interfaces and of our device, whatever their names are now.
    pub(super) fn indices(&self) -> &[u32] {
        &self.indices
    }

    /// The kernel's numbers of the interfaces alone, by the names that they have now.
    pub(super) fn named(&self) -> &[u32] {
        &self.named
    }

    /// True if the kernel has an interface of these, or our device, under a number that `before` does not know: one that has come, or
    /// was made anew.
    pub(super) fn has_new_since(&self, before: &Self) -> bool {
        let is_new = |index| !before.indices.contains(index);
        self.indices.iter().any(is_new)
    }

    /// Names that no interface has.
    pub(super) fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Prefixes of the interface `name`, which it has or had.
    pub(super) fn homes<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a IpNet> {
        let named = self.homes.iter().filter(move |((home, _), _)| home == name);
        named.flat_map(|(_, prefixes)| prefixes)
    }

    /// Routes that lead addresses of the LAN elsewhere.
    ///
    /// # Errors
    /// The kernel gave no answer.
    pub(super) fn strays(&self) -> io::Result<Vec<StrayRoute>> {
        let homes = self.prefixes.iter().copied();
        let homes: Vec<_> = homes.filter(|prefix| !is_link_local(prefix)).collect();
        // Answers on connections that are carried have this one.
        let mark = Routing::default().own_mark();
        StrayRoute::list(&homes, &self.indices, mark)
    }

    /// Families in which what comes in by an interface may be forwarded for us alone.
    pub(super) fn shut(&self) -> impl Iterator<Item = Family> + Clone {
        self.router.shut()
    }

    /// True if forwarding of IPv6 is on for the whole machine because of us.
    pub(super) fn has_opened_machine(&self) -> bool {
        self.opened_machine
    }

    /// Notes that forwarding of IPv6 is on for the whole machine because of us.
    pub(super) fn note_opened_machine(&mut self) {
        self.opened_machine = true;
    }

    /// Interfaces that are ports of others.
    pub(super) fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// Names of the interfaces by which what the hosts behind ports send comes in, past all rules for the ports.
    pub(super) fn surfaces(&self) -> Vec<String> {
        surfaces(&self.ports)
    }

    /// The routes to nowhere.
    pub(super) fn routes(&self) -> Vec<TableRoute> {
        let prefixes = self.homes.values().flatten();
        let mut routes: Vec<_> = prefixes
            .filter(|prefix| !is_link_local(prefix))
            .map(|to| TableRoute {
                table: MAIN,
                to: *to,
                metric: METRIC,
                way: Way::Blackhole,
            })
            .collect();
        routes.sort_by_key(|route| route.to);
        routes.dedup();
        routes
    }

    /// Puts these routes in force, and removes those of before.
    pub(super) fn keep_in(&self) -> io::Result<()> {
        let wanted = self.routes();
        wanted.iter().try_for_each(TableRoute::replace)?;
        remove_but(&wanted)
    }
}

/// Routes that lead addresses of these interfaces' prefixes elsewhere.
///
/// # Errors
/// The kernel gave no answer.
pub(crate) fn strays_of(interfaces: &[String]) -> io::Result<Vec<StrayRoute>> {
    let device = Interception::new(0).device.name;
    Lan::present(interfaces, Some(&device), None)?.strays()
}

/// The fault that a route leads to hosts of the LAN elsewhere, and its mend.
pub(crate) fn name_the_stray(StrayRoute { to, device, table }: &StrayRoute) -> [String; 2] {
    if *table != MAIN {
        return [
            format!(
                "a route of table {table} leads there by {device}, and what is for these hosts goes nowhere"
            ),
            "have the main table asked before it for the LAN (`ip rule add to PREFIX lookup main priority N`, before the rule that leads \
             there; `ip rule` lists them)"
                .to_owned(),
        ];
    }
    [
        format!("a route leads there by {device}, and what is for these hosts goes nowhere"),
        format!(
            "remove it (`ip route del {to} dev {device}`), and have the uplink's DHCP client set none (option 121), or give the LAN \
             another prefix"
        ),
    ]
}

/// The fault that the interface `name` is a port of another, if it is one.
#[must_use]
pub fn fault_of_port(name: &str) -> Option<String> {
    // Whoever asks has been told already if the kernel gives no answer.
    let links = link::links().unwrap_or_default();
    let ports = link::ports(&links, &[name.to_owned()]);
    ports.first().map(name_the_master)
}

/// Names under which what comes in by these ports shows.
pub(super) fn surfaces(ports: &[Port]) -> Vec<String> {
    let mut names: Vec<_> = ports.iter().flat_map(|port| &port.surfaces).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().cloned().collect()
}

/// The fault that a port is among the intercepted interfaces, with its mend.
pub(crate) fn name_the_master(Port { name, master, .. }: &Port) -> String {
    format!("{name} is a port of {master}: name {master} in `interfaces`")
}

pub(super) fn is_link_local(prefix: &IpNet) -> bool {
    ruleset::link_local().any(|local| local.contains(prefix))
}

/// Removes all such routes, also those of a process that was killed.
pub(super) fn let_out() -> io::Result<()> {
    remove_but(&[])
}

fn remove_but(wanted: &[TableRoute]) -> io::Result<()> {
    for family in policy_rule::Family::usable() {
        for route in present(family)? {
            if !wanted.contains(&route) {
                route.delete()?;
            }
        }
    }
    Ok(())
}

/// Routes to nowhere of ours that the main table has.
pub(super) fn present(family: policy_rule::Family) -> io::Result<Vec<TableRoute>> {
    let mut routes = TableRoute::list_blackholes(family, MAIN)?;
    routes.retain(|route| route.metric == METRIC && route.way == Way::Blackhole);
    Ok(routes)
}

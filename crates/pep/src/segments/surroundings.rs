//! Surroundings of a PEP that keep its packets from their way, and that it does not change itself: the kernel's forwarding, and
//! firewalls of others. Each is told once, with its mend, and once more when it is gone.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use bentpipe_segments::Side;
use bentpipe_sys::command::run;
use bentpipe_sys::link::{Address, Link};
use bentpipe_sys::nftables::{self, BaseChain, FORWARD};
use bentpipe_sys::watch::{Change, Object};

use super::devices;
use crate::config::Sides;
use crate::firewall::{is_shut, is_shut6};
use crate::kernel::LastLook;
use crate::process;

/// Setting without which the kernel forwards no IPv6 at all.
const FORWARD6: &str = "net.ipv6.conf.all.forwarding";

/// Lines about what is in the way.
type Lines = BTreeSet<String>;

/// Surroundings of a PEP, and what the log was told of them.
pub(super) struct PepSurroundings {
    sides: Sides,
    settings: Lines,
    chains: Lines,
    closed: LastLook<Vec<BaseChain>>,
}

impl PepSurroundings {
    /// Surroundings of a PEP between these interfaces, of which nothing was told.
    pub(super) fn new(sides: Sides) -> Self {
        Self {
            sides,
            settings: BTreeSet::new(),
            chains: BTreeSet::new(),
            closed: LastLook::default(),
        }
    }

    /// Hears of changes: without one of a table its chains are as they were.
    pub(super) fn notice(&mut self, changes: &[Change]) {
        let of_tables =
            |change: &Change| matches!(change.object, Object::Table(_) | Object::Unknown);
        if changes.iter().any(of_tables) {
            self.closed.spoil();
        }
    }

    /// Looks anew, tells the log what has changed, and returns all that is in the way now.
    pub(super) fn look(&mut self, links: &[Link], addresses: &[Address]) -> Vec<String> {
        let settings = forwarding(&self.sides, links, addresses);
        tell(&mut self.settings, settings.into_iter().collect());
        // What cannot be seen now is as it was.
        if let Ok(chains) = self.closed.see(process::now(), closed_chains) {
            tell(&mut self.chains, chains.iter().map(closed).collect());
        }
        let mut all: Vec<_> = self.settings.iter().chain(&self.chains).cloned().collect();
        all.sort_unstable();
        all
    }
}

/// Tells the log what of `now` was not told before, and what is over.
fn tell(told: &mut Lines, now: Lines) {
    for new in now.difference(told) {
        tracing::warn!("{new}");
    }
    for gone in told.difference(&now) {
        let (what, _) = gone.split_once("; ").unwrap_or((gone, ""));
        tracing::info!("over: {what}");
    }
    *told = now;
}

/// Settings of the kernel for which it does not forward between the sides, each with its mend.
pub(crate) fn forwarding(sides: &Sides, links: &[Link], addresses: &[Address]) -> Vec<String> {
    let mut found = Vec::new();
    let all = sides.lan.iter().chain(&sides.wan);
    let shut: Vec<_> = all.filter(|name| is_shut(name)).cloned().collect();
    if !shut.is_empty() {
        found.push(format!(
            "this machine does not forward what comes in by {}, so hosts reach each other neither with nor without the PEP; run `sysctl -w net.ipv4.ip_forward=1`, and put it into /etc/sysctl.d",
            shut.join(", ")
        ));
    }
    let speaks = |names: &[String]| names.iter().any(|name| has_ipv6(name, links, addresses));
    if is_shut6() && speaks(&sides.lan) && speaks(&sides.wan) {
        found.push(format!(
            "this machine does not forward IPv6, which both sides have ({FORWARD6} is 0), so hosts reach each other by IPv4 alone; run `sysctl -w {FORWARD6}=1`, and put it into /etc/sysctl.d"
        ));
    }
    found
}

/// Says whether an interface has an address of IPv6 that others than its neighbours know.
fn has_ipv6(name: &str, links: &[Link], addresses: &[Address]) -> bool {
    let Some(link) = links.iter().find(|link| link.name == name) else {
        return false;
    };
    let wide = |own: IpAddr| matches!(own, IpAddr::V6(own) if !own.is_unicast_link_local());
    addresses
        .iter()
        .any(|address| address.index == link.index && wide(address.own))
}

/// Line about a chain that drops a PEP's packets, with the mend.
fn closed(chain: &BaseChain) -> String {
    let BaseChain {
        family,
        table,
        name,
        ..
    } = chain;
    format!(
        "the firewall's chain `{family} {table} {name}` drops what is forwarded and does not accept what goes into and comes from the PEP's devices: TCP that crosses it ends there; {}",
        mend(chain)
    )
}

/// Commands that let a PEP's packets pass a chain.
pub(crate) fn mend(chain: &BaseChain) -> String {
    let BaseChain {
        family,
        table,
        name,
        ..
    } = chain;
    let rule = |direction| {
        format!("nft 'insert rule {family} {table} {name} {direction} \"bentpipe-*\" accept'")
    };
    format!(
        "run `{}` and `{}`, or what your rules allow between both sides, and put it where that firewall keeps its rules",
        rule("iifname"),
        rule("oifname")
    )
}

/// Chains of others that drop what is forwarded, by policy, and do not accept a PEP's packets.
///
/// # Errors
/// The privilege or `nft` is missing.
pub(crate) fn closed_chains() -> io::Result<Vec<BaseChain>> {
    let mut closed = Vec::new();
    for chain in nftables::base_chains()? {
        if chain.hook != FORWARD || !chain.drops || chain.table.starts_with("bentpipe_") {
            continue;
        }
        // Rules about our devices may stand in chains that are jumped to.
        match run("nft", &["list", "table", chain.family, &chain.table]) {
            Ok(listing) if !lets_pass(&listing) => closed.push(chain),
            Ok(_) => {}
            // It went meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(closed)
}

/// Says whether a table accepts what comes from both devices and what goes into them.
fn lets_pass(listing: &str) -> bool {
    let accepts = |direction: &str, name: &str| {
        let names = [format!("\"{name}\""), "\"bentpipe-*\"".to_owned()];
        listing.lines().any(|line| {
            let words = line.split_once(direction).map(|(_, words)| words);
            line.contains("accept")
                && words.is_some_and(|words| names.iter().any(|name| words.contains(name)))
        })
    };
    let both = [Side::Lan, Side::Wan].map(devices::name);
    let into = both.iter().all(|name| accepts("oifname", name));
    into && both.iter().all(|name| accepts("iifname", name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_lets_pass_what_it_accepts_of_both_devices_both_ways() {
        let star = "  iifname \"bentpipe-*\" accept\n  oifname \"bentpipe-*\" counter packets 0 bytes 0 accept\n";
        let set = "iifname { \"bentpipe-lan\", \"bentpipe-wan\" } accept\noifname { \"bentpipe-lan\", \"bentpipe-wan\" } accept\n";
        let each = "iifname \"bentpipe-lan\" accept\niifname \"bentpipe-wan\" accept\n";
        assert!(lets_pass(star) && lets_pass(set));
        assert!(!lets_pass(each), "nothing goes into them");
        assert!(lets_pass(&format!("{each}{}", each.replace("iif", "oif"))));
        assert!(!lets_pass(&star.replace("accept", "drop")));
        assert!(!lets_pass(
            "iifname \"bentpipe0\" accept\noifname \"bentpipe0\" accept"
        ));
    }
}

//! A second line behind the tables: routing rules that drop what comes from intercepted interfaces without a mark of ours.
//!
//! ```text
//!   lan0 ─► prerouting: the table marks what is carried, and what may leave in clear ─► routing ─┬ marked: goes on
//!                                                                                               └ not: blackhole
//! ```
//!
//! `nft flush ruleset` removes tables of everybody; these rules stay, so that nothing is forwarded in clear until the table
//! is back. The rule for a machine's own addresses (priority 0) comes first. An interface need not exist, and may come
//! again. The guard bars what bears the mark of a bridge's port as well (`guard.rs`). What this machine sends itself is routed
//! before nftables can mark it, so such a rule cannot bar it.

use std::io;

use bentpipe_sys::policy_rule::{Action, Family, PolicyRule};

use super::{Interception, Routing};

/// Interface that there never is. A rule for it bars nothing: it shows, where the table was flushed, that the guard of the machine's
/// own traffic is on.
const OWN_TRAFFIC: &str = "bentpipe-local";

/// Holder of rules that are in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    /// A client, for as long as its table is there.
    Client,
    /// The guard.
    Guard,
}

impl Holder {
    /// Behind the rules for marked packets, before those of the machine.
    fn priority(self, routing: Routing) -> u32 {
        routing.priority
            + match self {
                Self::Client => 1,
                Self::Guard => 2,
            }
    }
}

/// The rules for a client: none where what cannot be carried goes in clear. Packets that come in by an interface of `held` are barred
/// as well.
pub(super) fn of_client(it: &Interception, held: &[String]) -> Vec<PolicyRule> {
    match it.fail_open {
        true => Vec::new(),
        false => rules(it, &[&it.interfaces, held].concat(), Holder::Client),
    }
}

/// The rules for the guard.
pub(super) fn of_guard(it: &Interception, held: &[String]) -> Vec<PolicyRule> {
    let mut interfaces = [&it.interfaces, held].concat();
    interfaces.extend(it.local.then(|| OWN_TRAFFIC.to_owned()));
    let mut all = rules(it, &interfaces, Holder::Guard);
    if !it.interfaces.is_empty() {
        // By whatever bridge they show: the mark alone says where they came in.
        all.extend(Family::usable().into_iter().map(|family| {
            rule(
                it.routing,
                Holder::Guard,
                family,
                None,
                it.routing.port_mark,
            )
        }));
    }
    all
}

fn rules(it: &Interception, interfaces: &[String], holder: Holder) -> Vec<PolicyRule> {
    let mut rules = Vec::new();
    for family in Family::usable() {
        for interface in interfaces {
            let interface = Some(interface.clone());
            rules.push(rule(it.routing, holder, family, interface, 0));
        }
    }
    rules
}

fn rule(
    routing: Routing,
    holder: Holder,
    family: Family,
    iif: Option<String>,
    mark: u32,
) -> PolicyRule {
    PolicyRule {
        family,
        priority: holder.priority(routing),
        iif,
        mark: Some((mark, routing.mask)),
        from: None,
        action: Action::Blackhole,
    }
}

/// The rules of `holder` that are in force, whatever interfaces they are for.
pub(super) fn present(holder: Holder) -> io::Result<Vec<PolicyRule>> {
    let mut all = Vec::new();
    for family in Family::usable() {
        all.extend(PolicyRule::list(family)?);
    }
    Ok(of(&all, holder).into_iter().cloned().collect())
}

/// Routing rules of `rules` that are the holder's.
pub(super) fn of(rules: &[PolicyRule], holder: Holder) -> Vec<&PolicyRule> {
    // Marks and priorities are the same for every configuration.
    let routing = Routing::default();
    let ours = |rule: &&PolicyRule| {
        rule.priority == holder.priority(routing)
            && rule.action == Action::Blackhole
            && [0, routing.port_mark]
                .map(|mark| Some((mark, routing.mask)))
                .contains(&rule.mark)
    };
    rules.iter().filter(ours).collect()
}

/// Removes the rules of `holder` that are not among `wanted`.
pub(super) fn remove(holder: Holder, wanted: &[PolicyRule]) -> io::Result<()> {
    let superfluous = present(holder)?;
    superfluous
        .iter()
        .filter(|rule| !wanted.contains(rule))
        .try_for_each(PolicyRule::delete)
}

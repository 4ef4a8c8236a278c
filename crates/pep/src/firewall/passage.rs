//! A way through firewalls that drop whatever is forwarded (Docker, ufw, firewalld, fw4): they know no such device. And through those that
//! drop what comes in by another interface than answers would leave by (firewalld's `IPv6_rpfilter`): what comes out of the device is from
//! the internet, to which the machine has another route.
//!
//! A verdict to drop is final in nftables, and no table of ours can undo it. So a rule that accepts what goes into or comes
//! out of our device, and nothing else, is put at the head of each such chain, as Docker and libvirt do for theirs. What may
//! go that way is said by our own table, and at a client TCP is taken in and never forwarded. The rules bear a comment,
//! and are removed with the interception. Chains of iptables-legacy are not seen.

use std::fmt;
use std::io;

use bentpipe_sys::command::run;
use bentpipe_sys::device::NAME;
use bentpipe_sys::nft;
use bentpipe_sys::nftables::{self, BaseChain, FORWARD, PREROUTING};

use super::{CLIENT_TABLE, GUARD_TABLE, PEP_TABLE, SERVER_TABLE, SLE_TABLE};

/// Comment by which the rules are known.
pub(super) const COMMENT: &str = "bentpipe lets its device's packets pass";

/// A chain of another program that drops what is forwarded, or what comes in from where no route leads back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passage {
    /// The table's family, as `nft` names it.
    pub family: String,
    /// The table.
    pub table: String,
    /// The chain.
    pub chain: String,
    /// Reason why packets of our device do not pass.
    pub why: Obstacle,
}

/// Reason why a firewall drops packets of our device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// The chain drops what is forwarded.
    Forwarding,
    /// The chain drops what comes in where answers would not leave.
    ReversePath,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forwarding => "drops what is forwarded",
            Self::ReversePath => "drops what no route leads back to",
        })
    }
}

impl Passage {
    /// Puts our rules at its head.
    ///
    /// # Errors
    /// `nft` refused them.
    pub fn open(&self) -> io::Result<()> {
        let chain = format!("{} {} {}", self.family, self.table, self.chain);
        let rule = |way| {
            format!("insert rule {chain} {way} \"{NAME}\" counter accept comment \"{COMMENT}\"\n")
        };
        nft::apply(&match self.why {
            Obstacle::Forwarding => rule("oifname") + &rule("iifname"),
            Obstacle::ReversePath => rule("iifname"),
        })
    }
}

impl fmt::Display for Passage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "way for our device through chain {} of table {} {}, which {},",
            self.chain, self.family, self.table, self.why
        )
    }
}

/// Chains of other programs that drop what is forwarded, or what no route leads back to, and have no rules of ours.
///
/// # Errors
/// The privilege or `nft` is missing.
pub(crate) fn closed_passages() -> io::Result<Vec<Passage>> {
    let mut missing = Vec::new();
    for chain in of_others()? {
        let listing = listing(&chain)?;
        if listing.contains(COMMENT) {
            continue;
        }
        if let Some(why) = obstacle(&chain, &listing) {
            missing.push(Passage {
                family: chain.family.to_owned(),
                table: chain.table,
                chain: chain.name,
                why,
            });
        }
    }
    Ok(missing)
}

/// Opens ways for our device through chains of other programs that drop what is forwarded: at the start nobody has taken
/// them away.
pub(crate) fn open_passages() -> io::Result<()> {
    for passage in closed_passages()? {
        passage.open()?;
        let Passage {
            family,
            table,
            chain,
            why,
        } = passage;
        match why {
            Obstacle::Forwarding => tracing::info!(
                "the firewall's chain `{family} {table} {chain}` drops what is forwarded: two rules at its head let the packets of {NAME} pass"
            ),
            Obstacle::ReversePath => tracing::info!(
                "the firewall's chain `{family} {table} {chain}` drops what no route leads back to: a rule at its head lets what comes out of {NAME} pass"
            ),
        }
    }
    Ok(())
}

/// Removes our rules from all chains.
///
/// # Errors
/// The privilege or `nft` is missing.
pub(crate) fn close_passages() -> io::Result<()> {
    let mut script = String::new();
    for chain in of_others()? {
        let listing = listing(&chain)?;
        for line in listing.lines().filter(|line| line.contains(COMMENT)) {
            if let Some((_, handle)) = line.rsplit_once("# handle ") {
                let (family, table, name) = (chain.family, &chain.table, &chain.name);
                script += &format!(
                    "delete rule {family} {table} {name} handle {}\n",
                    handle.trim()
                );
            }
        }
    }
    match script.is_empty() {
        true => Ok(()),
        false => nft::apply(&script),
    }
}

/// True if `table` is one of ours.
pub(crate) fn is_ours(table: &str) -> bool {
    [
        CLIENT_TABLE,
        GUARD_TABLE,
        PEP_TABLE,
        SERVER_TABLE,
        SLE_TABLE,
    ]
    .contains(&table)
}

fn of_others() -> io::Result<Vec<BaseChain>> {
    let mut chains = nftables::base_chains()?;
    chains.retain(|chain| [PREROUTING, FORWARD].contains(&chain.hook) && !is_ours(&chain.table));
    Ok(chains)
}

fn listing(chain: &BaseChain) -> io::Result<String> {
    let arguments = [
        "-a",
        "list",
        "chain",
        chain.family,
        &chain.table,
        &chain.name,
    ];
    match run("nft", &arguments) {
        // It went meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        listing => listing,
    }
}

/// Reason why `chain` drops packets of our device, if it does.
fn obstacle(chain: &BaseChain, listing: &str) -> Option<Obstacle> {
    match chain.hook {
        FORWARD => drops(chain, listing).then_some(Obstacle::Forwarding),
        _ => looks_back(listing).then_some(Obstacle::ReversePath),
    }
}

/// True if a rule drops what comes in by another interface than a route to its source leads to.
fn looks_back(listing: &str) -> bool {
    listing.lines().any(|line| {
        let looks = line.contains("fib saddr") && line.contains("oif missing");
        looks
            && line
                .split_whitespace()
                .any(|word| ["drop", "reject"].contains(&word))
    })
}

/// By its policy, or by a rule without conditions.
fn drops(chain: &BaseChain, listing: &str) -> bool {
    chain.drops
        || listing.lines().any(|line| {
            let mut words = line.split_whitespace().peekable();
            if words.next_if_eq(&"counter").is_some() {
                // `packets N bytes N`
                words.nth(3);
            }
            matches!(words.peek(), Some(&("drop" | "reject")))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_look_for_the_way_back_are_known() {
        let dropping = "\tmeta nfproto ipv6 fib saddr . mark . iif oif missing counter packets 0 bytes 0 drop # handle 3\n";
        assert!(looks_back(dropping));
        let counting = "\tfib saddr . iif oif missing counter packets 0 bytes 0 # handle 3\n\ttcp dport 1 drop\n";
        assert!(!looks_back(counting) && !looks_back("\tfib daddr type local drop\n"));
    }

    #[test]
    fn chains_drop_by_policy_or_by_a_rule_for_all() {
        let chain = |drops| BaseChain {
            family: "ip",
            table: "filter".into(),
            name: "FORWARD".into(),
            hook: FORWARD,
            drops,
        };
        let some = "  ip saddr 10.0.0.1 drop # handle 4\n  ct state established accept\n";
        assert!(drops(&chain(true), some) && !drops(&chain(false), some));
        for all in [
            "drop",
            "reject with icmpx admin-prohibited",
            "counter packets 1 bytes 2 drop",
        ] {
            assert!(
                drops(&chain(false), &format!("{some}\t\t{all} # handle 5\n")),
                "{all}"
            );
        }
    }
}

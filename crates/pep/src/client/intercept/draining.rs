//! The rules for new connections while a client drains: they wait for whoever comes next.
//!
//! A client that drains opens nothing any more, and would have to reset what it accepted. Opening segments are dropped, and so are
//! name lookups and the first packets of other flows: hosts send them again (TCP after 1, 3 and 7 s), and the next client takes them
//! in. Connections that a gate has admitted already have their flow, and pass.

use super::ruleset::OPENING;
use super::{Carrying, gate};
use crate::firewall::{Chain, Mark};

/// Chain of these rules; it is empty while the client runs.
const DRAINING: &str = "draining";

/// The chain.
pub(super) fn chain(carrying: Carrying) -> Chain {
    Chain::new(DRAINING).rules(rules(carrying))
}

/// Script that has the chain of the `table` drop what is new, or not.
pub(super) fn exchange(table: &str, carrying: Carrying) -> String {
    let rules = rules(carrying).into_iter();
    let added = rules.map(|rule| format!("add rule inet {table} {DRAINING} {rule}\n"));
    format!(
        "flush chain inet {table} {DRAINING}\n{}",
        added.collect::<String>()
    )
}

fn rules(carrying: Carrying) -> Vec<String> {
    match carrying {
        Carrying::Draining => {
            let dropped = ["counter drop".to_owned()];
            gate::admitted().into_iter().chain(dropped).collect()
        }
        Carrying::Yes | Carrying::No => Vec::new(),
    }
}

/// Rule by which new TCP connections come to the chain.
pub(super) fn of_connections() -> String {
    format!("{OPENING} jump {DRAINING}")
}

/// Rules by which name lookups come to the chain, but for those on connections that there are.
pub(super) fn of_lookups() -> [String; 2] {
    [
        format!("meta l4proto udp jump {DRAINING}"),
        of_connections(),
    ]
}

/// Rule by which packets of flows that do not bear the mark of those in the device, `ours`, come to the chain. A flow that nobody has
/// answered counts as new for ever.
pub(super) fn of_flows(ours: Mark) -> String {
    format!(
        "ct state new {} jump {DRAINING}",
        ours.not_borne_by_connection()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_admitted_passes_and_only_while_a_client_drains() {
        assert!(!chain(Carrying::Yes).to_string().contains("drop"));
        let draining = chain(Carrying::Draining).to_string();
        let (admitted, drop) = (
            draining.find("@admitted6 return"),
            draining.find("counter drop"),
        );
        assert!(admitted.unwrap() < drop.unwrap(), "{draining}");
        let script = exchange("t", Carrying::Draining);
        assert!(script.starts_with("flush chain inet t draining\nadd rule inet t draining"));
        assert_eq!(
            exchange("t", Carrying::Yes),
            "flush chain inet t draining\n"
        );
    }
}

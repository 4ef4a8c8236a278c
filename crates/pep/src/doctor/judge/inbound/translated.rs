//! Rules of this machine that lead what comes to a daemon's port to somebody else, as Docker's do for the published port of a container.

use bentpipe_sys::nftables::{BaseChain, PREROUTING};

use super::condition::FilteredPacket;
use super::fate::{self, Decider};
use super::listing::TableListing;
use super::{Chains, title};
use crate::doctor::Finding;
use crate::doctor::judge::{fail, warn};

impl Chains<'_> {
    /// Findings on rules that give `packet` another destination before it comes to the daemon: `what` it is.
    pub(super) fn leading_away(&self, packet: &FilteredPacket, what: &str) -> Vec<Finding> {
        let met = self
            .met_by(packet)
            .filter(|(chain, ..)| chain.hook == PREROUTING);
        let found = met.filter_map(|(chain, listing, table)| {
            let by = self.translation(chain, table, packet)?;
            // Whether it is for this port cannot be told, as of a rule for one address of many.
            if !by.is_sure && !by.names_port || leads_to_itself(&by.rule, packet) {
                return None;
            }
            let text = format!(
                "chain `{}` leads {what} away by `{}`",
                title(chain),
                by.rule
            );
            let mend = Some(sharing(listing));
            Some(match by.is_sure {
                true => fail("firewall", text, mend),
                false => warn("firewall", text, mend),
            })
        });
        found.collect()
    }

    /// Rule that gives `packet` another destination, whichever interface it comes in by, or by an uplink.
    fn translation(
        &self,
        chain: &BaseChain,
        table: &TableListing,
        packet: &FilteredPacket,
    ) -> Option<Decider> {
        let devices = self.uplinks.iter().cloned().map(Some);
        let found = std::iter::once(None).chain(devices).filter_map(|device| {
            let packet = FilteredPacket {
                device,
                ..packet.clone()
            };
            fate::translation(chain, table, &packet)
        });
        found.max_by_key(|by| (by.is_sure, by.names_port))
    }
}

/// True if a rule leaves a packet to this machine the port that it has.
fn leads_to_itself(rule: &str, packet: &FilteredPacket) -> bool {
    let port = packet.port.map(|port| format!(":{port}"));
    let same_port = |to: &str| port.as_deref() == Some(to);
    let words: Vec<_> = rule.split_whitespace().collect();
    match words[..] {
        [.., "redirect"] => true,
        [.., "redirect", "to", to] => same_port(to),
        [.., "to", to] => to
            .strip_prefix(&packet.to.to_string())
            .is_some_and(|rest| rest.is_empty() || same_port(rest)),
        _ => false,
    }
}

/// Mend of a port that two programs want.
fn sharing(listing: &str) -> String {
    const OTHER: &str =
        "or have the daemon listen at another port, which its far ends name as well";
    match ["chain DOCKER", "docker-bridges"]
        .iter()
        .any(|trace| listing.contains(trace))
    {
        true => format!("publish another port of that container, which `docker ps` names, {OTHER}"),
        false => format!("remove that rule where its firewall keeps it, {OTHER}"),
    }
}

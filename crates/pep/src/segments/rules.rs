//! The table `inet bentpipe_pep` and the routes that lead packets of both sides into the devices.
//!
//! ```text
//!   lan ─► prerouting: TCP, LES ─ mark ─► routing table of the mark ─► bentpipe-lan ─► PEP ─► kernel ─► wan
//!   without the device: no such route, and the machine's others count
//! ```
//!
//! So a PEP that is gone, however it went, stands in nobody's way; what it leaves behind is replaced by the next one. A table
//! has one way for all packets, and a device one side: hence a mark for each side, and a rule for each of its interfaces. What other
//! programs take away of all this is put back (`kept.rs`).

use std::cell::RefCell;
use std::io;
use std::time::Duration;

use bentpipe_segments::Side;
use bentpipe_sys::nft::{self, Table};
use bentpipe_sys::route::{MarkedPackets, MarkedRoute, Target};

use super::devices::name;
use super::kept::{KeptRules, LackLines};
use crate::config::{PepConfig, Sides};
use crate::firewall::{
    Chain, Family, Mark, PEP_TABLE, TRIAL_TABLE, anonymous, tell_of_rules, tell_of_table,
};
use crate::kernel::{Guardian, Repairs};
use crate::status::KernelRepair;

/// Time that ends whose flows are given up have to answer, before rules and devices go.
pub(super) const LAST_WORDS: Duration = Duration::from_millis(400);

/// Bits of the mark that are ours; others are left as they are.
const MASK: u32 = 0xf000_0000;

/// Priority of the routing rules; before those of clients and servers on the same machine.
const PRIORITY: u32 = 96;

/// Both sides of a PEP.
pub(super) const SIDES: [Side; 2] = [Side::Lan, Side::Wan];

/// Rules in force, and who keeps them there. They stay if the process dies.
pub(super) struct PepRules {
    /// `None` once they have been removed.
    guardian: RefCell<Option<Guardian>>,
    repairs: Repairs,
    lacks: LackLines,
}

impl PepRules {
    /// Leads packets into the devices, which are there.
    ///
    /// # Errors
    /// `nft` or the privilege is missing; then nothing stays behind.
    pub(super) fn install(config: &PepConfig) -> io::Result<Self> {
        let installed = KeptRules::install(body(config), &config.sides);
        let installed = installed.and_then(|kept| {
            let lacks = kept.lacks();
            Ok((Guardian::start(kept)?, lacks))
        });
        let (guardian, lacks) = installed.inspect_err(|_| {
            // The reason of the failure is the one to tell.
            let _ = remove();
        })?;
        Ok(Self {
            lacks,
            repairs: guardian.repairs(),
            guardian: RefCell::new(Some(guardian)),
        })
    }

    /// Parts that others took away and that were put back.
    pub(super) fn repairs(&self) -> Vec<KernelRepair> {
        self.repairs.report()
    }

    /// Lines about what of others is in the way of packets, with the mends.
    pub(super) fn lacks(&self) -> Vec<String> {
        self.lacks.report()
    }

    /// Removes all; packets pass as without a PEP.
    pub(super) fn remove(&self) {
        // Nothing is put back from here on.
        drop(self.guardian.take());
        let (table, routes) = remove();
        tell_of_table(PEP_TABLE, table);
        for (side, removed) in routes {
            tell_of_rules(
                &format!("routing rule of {}", name(side)),
                removed,
                PRIORITY,
            );
        }
    }
}

/// Has the kernel look at the table of this configuration, and forget it.
///
/// # Errors
/// `nft` or the privilege is missing, or the table is refused; the text says why.
pub(crate) fn trial(config: &PepConfig) -> io::Result<()> {
    nft::check(&Table::new(TRIAL_TABLE).replacement(&body(config)))
}

/// Removes all that may be there: the table, and rules and routes of each side. Says how it went with each; what stays is replaced by
/// the next start.
fn remove() -> (io::Result<()>, [(Side, io::Result<()>); 2]) {
    let table = Table::new(PEP_TABLE).remove();
    (table, SIDES.map(|side| (side, route(side, &[]).remove())))
}

/// Mark of packets from `side`.
const fn mark(side: Side) -> Mark {
    Mark::new(value(side), MASK)
}

const fn value(side: Side) -> u32 {
    match side {
        Side::Lan => 0x6000_0000,
        Side::Wan => 0x7000_0000,
    }
}

/// Interfaces of `side`.
pub(super) fn interfaces(sides: &Sides, side: Side) -> &[String] {
    match side {
        Side::Lan => &sides.lan,
        Side::Wan => &sides.wan,
    }
}

/// Route of packets from `side`, which come in by `interfaces`, into their device.
pub(super) fn route(side: Side, interfaces: &[String]) -> MarkedRoute {
    let packets = interfaces.iter().map(|name| MarkedPackets {
        mark: value(side),
        iif: Some(name.clone()),
    });
    MarkedRoute {
        packets: packets.collect(),
        mask: MASK,
        table: match side {
            Side::Lan => 25_202,
            Side::Wan => 25_203,
        },
        priority: PRIORITY,
        target: Target::Device {
            name: name(side).to_owned(),
            or_nowhere: false,
        },
    }
}

/// The chains, as between the braces of the table.
fn body(config: &PepConfig) -> String {
    let mut chain = Chain::at("take", "filter", "prerouting priority mangle");
    for side in SIDES {
        let names = interfaces(&config.sides, side)
            .iter()
            .map(|name| format!("\"{name}\""));
        let from = format!("iifname {}", anonymous(names));
        let set = mark(side).set();
        // What is for this machine itself is looked up before any mark counts.
        for taken in taken(config) {
            chain = chain.rule(format_args!("{from} {taken} {set}"));
        }
    }
    chain.to_string()
}

/// Matches of packets that are taken.
fn taken(config: &PepConfig) -> Vec<String> {
    let mut matches = Vec::new();
    match &config.clear {
        Some(clear) if clear.prefixes.is_empty() => matches.push("meta l4proto tcp".to_owned()),
        Some(clear) => {
            for family in Family::BOTH {
                let Some(prefixes) = family.merged(&clear.prefixes) else {
                    continue;
                };
                let header = family.header();
                for end in ["saddr", "daddr"] {
                    matches.push(format!("meta l4proto tcp {header} {end} {prefixes}"));
                }
            }
        }
        None => {}
    }
    if let Some(les) = &config.les {
        let port = les.port;
        matches.extend(["sport", "dport"].map(|end| format!("udp {end} {port}")));
    }
    matches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    /// Configuration with these tables.
    fn config(tables: &str) -> PepConfig {
        let directory = tempfile::tempdir().expect("a directory");
        config::sample_pep(directory.path(), tables)
    }

    #[test]
    fn tables_are_those_of_the_snapshots() {
        let prefixes = "[clear]\nprefixes = [\"10.1.0.0/24\", \"fd00:1::/64\"]\n";
        let les = "[les]\nclients = [\"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\"]\n";
        let script = |name, tables: &str| {
            (
                name,
                Table::new(PEP_TABLE).replacement(&body(&config(tables))),
            )
        };
        let all = [
            script("pep", "[clear]\n"),
            script("pep-of-prefixes-and-les", &format!("{prefixes}{les}")),
            script("pep-of-les", les),
        ];
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/segments/snapshots");
        crate::firewall::snapshot::compare(directory, &all);
    }
}

//! A PEP's part of the kernel, compared with what should be there: devices, routes, rules, table.

use std::fs;
use std::io;

use bentpipe_segments::Side;
use bentpipe_sys::link;
use bentpipe_sys::nft::Table;
use bentpipe_sys::nftables::{Fingerprint, fingerprint};
use bentpipe_sys::policy_rule::{Family, PolicyRule, TableRoute};
use bentpipe_sys::watch::Object;

use super::devices::{self, MTU, forwarding};
use super::rules::{SIDES, route};
use crate::firewall::PEP_TABLE;
use crate::kernel::{KernelFault, Subject};

/// A part that can be put back by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PepPart {
    Device(Side),
    Setting(Side),
    Route(Side),
    Rule(Side),
    Table,
}

impl PepPart {
    /// Name of the part, as the log and `status` tell it.
    fn name(self) -> String {
        let of = |what: &str, side| format!("{what} {}", devices::name(side));
        match self {
            Self::Device(side) => of("device", side),
            Self::Setting(side) => of("forwarding of", side),
            Self::Route(side) => of("route into", side),
            Self::Rule(side) => of("routing rule of", side),
            Self::Table => format!("table inet {PEP_TABLE}"),
        }
    }

    fn fault(self, state: &str) -> KernelFault {
        KernelFault {
            part: self.name(),
            state: state.into(),
            object: match self {
                Self::Device(side) => Object::Link(devices::name(side).into()),
                Self::Setting(_) => Object::Setting,
                Self::Route(side) => Object::Route(route(side).table),
                Self::Rule(_) => Object::Rule,
                Self::Table => Object::Table(PEP_TABLE.into()),
            },
        }
    }
}

/// Things that a guardian keeps for a PEP.
pub(super) struct KeptRules {
    /// Content of the table, as between its braces.
    body: String,
    /// Content of the table when it was last written.
    written: Option<Fingerprint>,
    /// Parts that the last comparison found wanting.
    wanting: Vec<PepPart>,
}

impl KeptRules {
    /// Leads packets into the devices, which are there; the table has this `body`.
    ///
    /// # Errors
    /// `nft` or the privilege is missing.
    pub(super) fn install(body: String) -> io::Result<Self> {
        let mut kept = Self {
            body,
            written: None,
            wanting: Vec::new(),
        };
        for side in SIDES {
            route(side).install()?;
            route(side).attach()?;
        }
        // Last, so that nothing is marked that has no way.
        kept.write()?;
        Ok(kept)
    }

    fn write(&mut self) -> io::Result<()> {
        Table::new(PEP_TABLE).replace(&self.body)?;
        self.written = fingerprint(PEP_TABLE)?;
        Ok(())
    }

    fn look(&self) -> io::Result<Vec<(PepPart, &'static str)>> {
        let mut found = Vec::new();
        for side in SIDES {
            look_at_device(side, &mut found)?;
            let mut rules = Vec::new();
            for family in Family::usable() {
                rules.extend(PolicyRule::list(family)?);
            }
            if route(side).rules().iter().any(|rule| !rules.contains(rule)) {
                found.push((PepPart::Rule(side), "is gone"));
            }
        }
        match fingerprint(PEP_TABLE)? {
            None => found.push((PepPart::Table, "is gone")),
            now if now != self.written => found.push((PepPart::Table, "was changed")),
            Some(_) => {}
        }
        Ok(found)
    }
}

/// Looks at the device of `side`, and at the route into it. A PEP whose device is gone ends, and says so itself.
fn look_at_device(side: Side, found: &mut Vec<(PepPart, &'static str)>) -> io::Result<()> {
    let name = devices::name(side);
    let Some(link) = link::links()?.into_iter().find(|link| link.name == name) else {
        return Ok(());
    };
    let state = match (link.up, link.mtu as usize == MTU) {
        (false, _) => Some("is down"),
        (true, false) => Some("has another MTU"),
        (true, true) => None,
    };
    found.extend(state.map(|state| (PepPart::Device(side), state)));
    if forwarding(side).iter().any(is_off) {
        found.push((PepPart::Setting(side), "was turned off"));
    }
    let wanted = route(side);
    let mut present = Vec::new();
    for family in Family::usable() {
        present.extend(TableRoute::list(family, wanted.table)?);
    }
    let lacks = |route: &TableRoute| !present.contains(route);
    if link.up && wanted.routes(true).iter().any(lacks) {
        found.push((PepPart::Route(side), "is gone"));
    }
    Ok(())
}

/// Says whether a setting is there, and off.
fn is_off(file: &String) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.trim() == "0")
}

impl Subject for KeptRules {
    fn compare(&mut self) -> io::Result<Vec<KernelFault>> {
        let found = self.look()?;
        self.wanting = found.iter().map(|(part, _)| *part).collect();
        let faults = found.iter().map(|(part, state)| part.fault(state));
        Ok(faults.collect())
    }

    fn repair(&mut self, fault: &KernelFault) -> io::Result<()> {
        let mut wanting = self.wanting.iter();
        match wanting.find(|part| part.name() == fault.part).copied() {
            Some(PepPart::Device(side)) => {
                let mtu = u32::try_from(MTU).unwrap_or(u32::MAX);
                link::set_up(devices::name(side), mtu)?;
                // The route went with it.
                route(side).attach()
            }
            Some(PepPart::Setting(side)) => {
                let mut files = forwarding(side).into_iter().filter(is_off);
                files.try_for_each(|file| fs::write(file, "1"))
            }
            Some(PepPart::Route(side)) => route(side).attach(),
            Some(PepPart::Rule(side)) => route(side).rules().iter().try_for_each(PolicyRule::add),
            Some(PepPart::Table) => self.write(),
            None => Ok(()),
        }
    }
}

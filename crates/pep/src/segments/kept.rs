//! A PEP's part of the kernel, compared with what should be there: devices, routes, rules, table.

use std::fs;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bentpipe_segments::Side;
use bentpipe_sys::link::{self, Address, Link};
use bentpipe_sys::policy_rule::{Family, PolicyRule, TableRoute};
use bentpipe_sys::route::MarkedRoute;
use bentpipe_sys::watch::{Change, Object};
use bentpipe_sys::written_table::WrittenTable;

use super::devices::{self, ADDRESS, LOOSE, MTU, settings};
use super::rules::{SIDES, interfaces, route};
use super::surroundings::PepSurroundings;
use crate::config::Sides;
use crate::firewall::PEP_TABLE;
use crate::kernel::{Faults, KernelPart, Subject, device_fault};

/// Check of sources at every device that has no stricter one of its own.
const ALL_SOURCES: &str = "/proc/sys/net/ipv4/conf/all/rp_filter";

/// A part that can be put back by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PepPart {
    Device(Side),
    /// Address of a device, which has this number.
    Address(Side, u32),
    Setting(Side),
    Route(Side),
    Rule(Side),
    Table,
}

impl KernelPart for PepPart {
    fn name(&self) -> String {
        let of = |what: &str, side| format!("{what} {}", devices::name(side));
        match *self {
            Self::Device(side) => of("device", side),
            Self::Address(side, _) => of("address of", side),
            Self::Setting(side) => of("settings of", side),
            Self::Route(side) => of("route into", side),
            Self::Rule(side) => of("routing rule of", side),
            Self::Table => format!("table inet {PEP_TABLE}"),
        }
    }

    fn object(&self) -> Object {
        match *self {
            Self::Device(side) => Object::Link(devices::name(side).into()),
            Self::Address(_, index) => Object::Address(index),
            Self::Setting(_) => Object::Setting,
            Self::Route(side) => Object::Route(route(side, &[]).table),
            Self::Rule(_) => Object::Rule,
            Self::Table => Object::Table(PEP_TABLE.into()),
        }
    }
}

/// Lines about what is in the way of a PEP's packets, as the guardian has last seen them.
#[derive(Clone, Debug, Default)]
pub(super) struct LackLines(Arc<Mutex<Vec<String>>>);

impl LackLines {
    /// The lines.
    pub(super) fn report(&self) -> Vec<String> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.clone()
    }

    fn set(&self, lines: Vec<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = lines;
    }
}

/// Things that a guardian keeps for a PEP.
pub(super) struct KeptRules {
    /// Content of the table, as between its braces.
    body: String,
    table: WrittenTable,
    sides: Sides,
    /// Interfaces that are not there, as the log was told.
    missing: Vec<String>,
    surroundings: PepSurroundings,
    lacks: LackLines,
}

impl KeptRules {
    /// Leads packets that come by the interfaces of `sides` into the devices, which are there; the table has this `body`.
    ///
    /// # Errors
    /// `nft` or the privilege is missing.
    pub(super) fn install(body: String, sides: &Sides) -> io::Result<Self> {
        let mut kept = Self {
            body,
            table: WrittenTable::new(PEP_TABLE),
            sides: sides.clone(),
            missing: Vec::new(),
            surroundings: PepSurroundings::new(sides.clone()),
            lacks: LackLines::default(),
        };
        for side in SIDES {
            kept.route(side).install()?;
            kept.route(side).attach()?;
        }
        // Last, so that nothing is marked that has no way.
        kept.table.write(&kept.body)?;
        kept.look_around(&link::links()?, &link::addresses()?);
        Ok(kept)
    }

    /// Route of packets from `side` into their device.
    fn route(&self, side: Side) -> MarkedRoute {
        route(side, interfaces(&self.sides, side))
    }

    /// Lines about what is in the way, for `status`.
    pub(super) fn lacks(&self) -> LackLines {
        self.lacks.clone()
    }

    fn look_around(&mut self, links: &[Link], addresses: &[Address]) {
        self.lacks.set(self.surroundings.look(links, addresses));
    }

    /// Tells the log which interfaces of `lan` and `wan` are not there, when that changes.
    fn tell_missing(&mut self, links: &[Link]) {
        let lacks = |name: &&String| links.iter().all(|link| link.name != **name);
        let Sides { lan, wan, .. } = &self.sides;
        let missing: Vec<_> = lan.iter().chain(wan).filter(lacks).cloned().collect();
        if missing != self.missing {
            match missing.is_empty() {
                true => tracing::info!("every interface of `lan` and `wan` is there again"),
                false => tracing::warn!(
                    "no interface {}, which `lan` or `wan` names: nothing that comes in by it, or by its new name, is relayed",
                    missing.join(", ")
                ),
            }
            self.missing = missing;
        }
    }
}

/// Looks at the device of `side`, and at the route into it. A PEP whose device is gone ends, and says so itself.
fn look_at_device(
    side: Side,
    links: &[Link],
    addresses: &[Address],
    found: &mut Faults<PepPart>,
) -> io::Result<()> {
    let name = devices::name(side);
    let Some(link) = links.iter().find(|link| link.name == name) else {
        return Ok(());
    };
    let state = device_fault(link, MTU);
    found.extend(state.map(|state| (PepPart::Device(side), state)));
    let is_ours = |one: &&Address| one.index == link.index && one.own == ADDRESS.addr();
    let state = match addresses.iter().find(is_ours) {
        Some(own) if own.on_link => None,
        Some(_) => Some("has another scope"),
        None => Some("is gone"),
    };
    found.extend(state.map(|state| (PepPart::Address(side, link.index), state)));
    if settings(side).iter().any(differs) {
        found.push((PepPart::Setting(side), "were changed"));
    }
    let wanted = route(side, &[]);
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

/// Says whether a setting is there, and keeps packets from their way. Of sources that are not checked at all none is refused.
fn differs((file, value): &(String, &str)) -> bool {
    let is = |file: &str, value| fs::read_to_string(file).is_ok_and(|text| text.trim() == value);
    match *value {
        LOOSE => is(file, "1") || is(file, "0") && is(ALL_SOURCES, "1"),
        _ => is(file, "0"),
    }
}

impl Subject for KeptRules {
    type Part = PepPart;

    fn compare(&mut self) -> io::Result<Faults<PepPart>> {
        let (links, addresses) = (link::links()?, link::addresses()?);
        self.tell_missing(&links);
        self.look_around(&links, &addresses);
        let mut found = Vec::new();
        for side in SIDES {
            look_at_device(side, &links, &addresses, &mut found)?;
            let mut rules = Vec::new();
            for family in Family::usable() {
                rules.extend(PolicyRule::list(family)?);
            }
            if self
                .route(side)
                .rules()
                .iter()
                .any(|rule| !rules.contains(rule))
            {
                found.push((PepPart::Rule(side), "is gone"));
            }
        }
        found.extend(self.table.fault()?.map(|state| (PepPart::Table, state)));
        Ok(found)
    }

    fn notice(&mut self, changes: &[Change]) {
        self.surroundings.notice(changes);
    }

    fn repair(&mut self, part: &PepPart) -> io::Result<()> {
        match *part {
            PepPart::Device(side) => {
                let mtu = u32::try_from(MTU).unwrap_or(u32::MAX);
                link::set_up(devices::name(side), mtu)?;
                // The route went with it.
                self.route(side).attach()
            }
            PepPart::Address(side, _) => {
                // One of another scope would stay as it is.
                link::delete_address(devices::name(side), ADDRESS)?;
                link::add_local_address(devices::name(side), ADDRESS)?;
                self.route(side).attach()
            }
            PepPart::Setting(side) => {
                let mut changed = settings(side).into_iter().filter(differs);
                changed.try_for_each(|(file, value)| fs::write(file, value))
            }
            PepPart::Route(side) => self.route(side).attach(),
            PepPart::Rule(side) => {
                let rules = self.route(side).rules();
                rules.iter().try_for_each(PolicyRule::add)
            }
            PepPart::Table => self.table.write(&self.body),
        }
    }
}

//! The server's part of the kernel, compared with what should be there: table, rule, settings, device, addresses, routes.

use std::io;
use std::sync::{Arc, PoisonError};

use bentpipe_proto::packets::MTU;
use bentpipe_sys::device::{self, NAME};
use bentpipe_sys::link;
use bentpipe_sys::policy_rule::{Family, TableRoute, Way};
use bentpipe_sys::watch::Object;
use ipnet::IpNet;

use super::{Packets, Table, lock};
use crate::firewall::{Passage, SERVER_TABLE, closed_passages};
use crate::kernel::{KernelFault, Subject};

/// The routing table that all packets ask, unless rules say otherwise.
const MAIN: u32 = 254;

/// A part that can be put back by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Device,
    Addresses,
    Routes,
    Rules,
    Table,
    Settings,
}

impl Part {
    const ALL: [Self; 6] = [
        Self::Device,
        Self::Addresses,
        Self::Routes,
        Self::Rules,
        Self::Table,
        Self::Settings,
    ];

    fn name(self) -> String {
        match self {
            Self::Device => format!("device {NAME}"),
            Self::Addresses => format!("addresses of {NAME}"),
            Self::Routes => format!("routes of {NAME}"),
            Self::Rules => format!("routing rule of {NAME}"),
            Self::Table => format!("table inet {SERVER_TABLE}"),
            Self::Settings => "settings of forwarding".into(),
        }
    }

    fn fault(self, state: &str) -> KernelFault {
        KernelFault {
            part: self.name(),
            state: state.into(),
            object: match self {
                Self::Device => Object::Link(NAME.into()),
                Self::Addresses => Object::Address(0),
                Self::Routes => Object::Route(MAIN),
                Self::Rules => Object::Rule,
                Self::Table => Object::Table(SERVER_TABLE.into()),
                Self::Settings => Object::Setting,
            },
        }
    }
}

/// Things that a guardian keeps for a server.
pub(super) struct KeptNetwork {
    pub(super) packets: Option<Arc<Packets>>,
    pub(super) table: Table,
    /// Ways through other firewalls that the last comparison found closed.
    pub(super) passages: Vec<Passage>,
}

impl KeptNetwork {
    /// Ways through chains of others that drop what they do not know.
    fn look_at_passages(&mut self, faults: &mut Vec<KernelFault>) -> io::Result<()> {
        self.passages = closed_passages()?;
        faults.extend(self.passages.iter().map(|passage| KernelFault {
            part: passage.to_string(),
            state: "was missing".into(),
            object: Object::Table(passage.table.clone()),
        }));
        Ok(())
    }
}

fn look_at_device(packets: &Packets, faults: &mut Vec<KernelFault>) -> io::Result<()> {
    let Some(link) = link::links()?.into_iter().find(|link| link.name == NAME) else {
        faults.push(Part::Device.fault("is gone"));
        return Ok(());
    };
    if !link.up || link.mtu as usize != MTU {
        let state = if link.up {
            "has another MTU"
        } else {
            "is down"
        };
        faults.push(Part::Device.fault(state));
    }
    let usable = |net: &IpNet| net.addr().is_ipv4() || device::has_ipv6();
    let plan = packets.plan.read().unwrap_or_else(PoisonError::into_inner);
    let present: Vec<IpNet> = link::addresses()?
        .into_iter()
        .filter(|address| address.index == link.index)
        .map(|address| address.as_set())
        .collect();
    let lacks = |net: &IpNet| usable(net) && !present.contains(net);
    if plan.own.iter().any(lacks) {
        faults.push(Part::Addresses.fault("are gone"));
    }
    let mut routes = Vec::new();
    for family in Family::usable() {
        routes.extend(TableRoute::list_of_device(family, MAIN, link.index)?);
    }
    let leads = |net: &IpNet| {
        let ours =
            |route: &TableRoute| route.to == net.trunc() && route.way == Way::Device(NAME.into());
        routes.iter().any(ours)
    };
    let wanted = [plan.addresses(), plan.routed()].concat();
    if link.up && wanted.iter().any(|net| usable(net) && !leads(net)) {
        faults.push(Part::Routes.fault("are gone"));
    }
    Ok(())
}

impl Subject for KeptNetwork {
    fn compare(&mut self) -> io::Result<Vec<KernelFault>> {
        let mut faults = Vec::new();
        if let Some(packets) = self.packets.clone() {
            look_at_device(&packets, &mut faults)?;
            self.look_at_passages(&mut faults)?;
        }
        let mut table = lock(&self.table);
        let Some(table) = table.as_mut() else {
            return Ok(faults);
        };
        if table.is_outdated() {
            tracing::info!(
                "another program has changed whether this machine forwards; what else it forwards is its business"
            );
            table.restore()?;
        }
        if table.has_newcomers()? {
            tracing::debug!("an interface has come: clients' answers may come in by it");
            table.restore()?;
        }
        if table.lacks_rules()? {
            faults.push(Part::Rules.fault("is gone"));
        }
        match table.is_whole()? {
            Some(true) => {}
            Some(false) => faults.push(Part::Table.fault("was changed")),
            None => faults.push(Part::Table.fault("is gone")),
        }
        if table.lacks_settings() {
            faults.push(Part::Settings.fault("were changed"));
        }
        Ok(faults)
    }

    fn repair(&mut self, fault: &KernelFault) -> io::Result<()> {
        let mut passages = self.passages.iter();
        if let Some(passage) = passages.find(|passage| passage.to_string() == fault.part) {
            return passage.open();
        }
        let part = Part::ALL.into_iter().find(|part| part.name() == fault.part);
        match (part, &self.packets) {
            (Some(Part::Device), Some(packets)) => packets.reopen(),
            (Some(Part::Addresses | Part::Routes), Some(packets)) => packets.lead_in(),
            _ => lock(&self.table)
                .as_mut()
                .map_or(Ok(()), |table| table.restore()),
        }
    }
}

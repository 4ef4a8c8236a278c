//! The server's part of the kernel, compared with what should be there: table, rule, settings, device, addresses, routes.

use std::io;
use std::sync::{Arc, PoisonError};

use bentpipe_proto::packets::MTU;
use bentpipe_sys::device::{self, NAME};
use bentpipe_sys::link;
use bentpipe_sys::policy_rule::{Family, TableRoute, Way};
use bentpipe_sys::watch::{Change, Object};
use ipnet::IpNet;

use super::{Packets, Table, lock};
use crate::firewall::{Passage, SERVER_TABLE};
use crate::kernel::{ClosedPassages, Faults, KernelPart, Subject, device_fault};
use crate::process;

/// The routing table that all packets ask, unless rules say otherwise.
const MAIN: u32 = 254;

/// A part that can be put back by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ServerPart {
    Device,
    Addresses,
    Routes,
    Rules,
    Table,
    Settings,
    /// Way through another firewall, which drops what it does not know.
    Passage(Passage),
}

impl KernelPart for ServerPart {
    fn name(&self) -> String {
        match self {
            Self::Device => format!("device {NAME}"),
            Self::Addresses => format!("addresses of {NAME}"),
            Self::Routes => format!("routes of {NAME}"),
            Self::Rules => format!("routing rule of {NAME}"),
            Self::Table => format!("table inet {SERVER_TABLE}"),
            Self::Settings => "settings of forwarding".into(),
            Self::Passage(passage) => passage.to_string(),
        }
    }

    fn object(&self) -> Object {
        match self {
            Self::Device => Object::Link(NAME.into()),
            Self::Addresses => Object::Address(0),
            Self::Routes => Object::Route(MAIN),
            Self::Rules => Object::Rule,
            Self::Table => Object::Table(SERVER_TABLE.into()),
            Self::Settings => Object::Setting,
            Self::Passage(passage) => Object::Table(passage.table.clone()),
        }
    }
}

/// Things that a guardian keeps for a server.
pub(super) struct KeptNetwork {
    pub(super) packets: Option<Arc<Packets>>,
    pub(super) table: Table,
    pub(super) passages: ClosedPassages,
}

fn look_at_device(packets: &Packets, faults: &mut Faults<ServerPart>) -> io::Result<()> {
    let Some(link) = link::links()?.into_iter().find(|link| link.name == NAME) else {
        faults.push((ServerPart::Device, "is gone"));
        return Ok(());
    };
    let state = device_fault(&link, MTU);
    faults.extend(state.map(|state| (ServerPart::Device, state)));
    let usable = |net: &IpNet| net.addr().is_ipv4() || device::has_ipv6();
    let plan = packets.plan.read().unwrap_or_else(PoisonError::into_inner);
    let present: Vec<IpNet> = link::addresses()?
        .into_iter()
        .filter(|address| address.index == link.index)
        .map(|address| address.as_set())
        .collect();
    let lacks = |net: &IpNet| usable(net) && !present.contains(net);
    if plan.own.iter().any(lacks) {
        faults.push((ServerPart::Addresses, "are gone"));
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
        faults.push((ServerPart::Routes, "are gone"));
    }
    Ok(())
}

impl Subject for KeptNetwork {
    type Part = ServerPart;

    fn compare(&mut self) -> io::Result<Faults<ServerPart>> {
        let mut faults = Vec::new();
        if let Some(packets) = self.packets.clone() {
            look_at_device(&packets, &mut faults)?;
            let passages = self.passages.see(process::now())?.iter().cloned();
            faults.extend(passages.map(|one| (ServerPart::Passage(one), "was missing")));
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
            faults.push((ServerPart::Rules, "is gone"));
        }
        faults.extend(table.fault()?.map(|state| (ServerPart::Table, state)));
        if table.lacks_settings() {
            faults.push((ServerPart::Settings, "were changed"));
        }
        Ok(faults)
    }

    fn notice(&mut self, changes: &[Change]) {
        self.passages.notice(changes);
    }

    fn repair(&mut self, part: &ServerPart) -> io::Result<()> {
        match (part, &self.packets) {
            (ServerPart::Passage(passage), _) => {
                self.passages.forget();
                passage.open()
            }
            (ServerPart::Device, Some(packets)) => packets.reopen(),
            (ServerPart::Addresses | ServerPart::Routes, Some(packets)) => packets.lead_in(),
            _ => lock(&self.table)
                .as_mut()
                .map_or(Ok(()), |table| table.restore()),
        }
    }
}

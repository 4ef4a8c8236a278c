//! Policy routing by our marks: packets with one mark are delivered to this machine, those with another
//! go into our device.
//!
//! TPROXY chooses the socket, routing must still be told that a foreign destination is local: rules of each
//! family and a routing table of ours. Nothing else's rules are touched. Each rule names where the packets come
//! from: the kernel, which may look for the way back to a packet's source with the packet's mark (`src_valid_mark`),
//! asks for it as if this machine sent there, and would else find the source to be this machine.

use std::fs;
use std::io;

use crate::policy_rule::{Action, Family, PolicyRule, TableRoute, Way};

/// The metric of what catches packets while the device is missing: worse than any other.
const LAST: u32 = u32::MAX;

/// Packets that a [`MarkedRoute`] is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkedPackets {
    /// The mark to match.
    pub mark: u32,
    /// The interface that the packets come in by, [`OWN`] for those that this machine sends; `None`: whichever.
    pub iif: Option<String>,
}

/// Name that stands in routing rules for the packets that this machine itself sends.
pub const OWN: &str = "lo";

/// Route of packets with a mark, whatever their destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkedRoute {
    /// The packets; none lead there if empty.
    pub packets: Vec<MarkedPackets>,
    /// Bits of the mark that count.
    pub mask: u32,
    /// The number of a routing table that nobody else uses.
    pub table: u32,
    /// The priority of the rules; before 32766, where the table `main` is consulted, or after it for what has no other way.
    pub priority: u32,
    /// Goal of the packets.
    pub target: Target,
}

/// Goal of marked packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// To this machine.
    Local,
    /// Into a device.
    Device {
        /// Name of the device.
        name: String,
        /// Nowhere while it does not exist or is down; otherwise where the machine's other routes lead.
        or_nowhere: bool,
    },
}

impl MarkedRoute {
    /// Installs rule and routes for IPv4 and, unless the kernel has it disabled, IPv6. Leftovers of a
    /// process that was killed are replaced; on failure nothing stays behind.
    ///
    /// # Errors
    /// The privilege is missing, or loopback is down.
    pub fn install(&self) -> io::Result<()> {
        self.remove()?;
        let routes = self.routes(false);
        let installed = routes
            .iter()
            .try_for_each(TableRoute::replace)
            .and_then(|()| self.rules().iter().try_for_each(PolicyRule::add));
        installed.map_err(|error| {
            // The first error is the one to report.
            let _ = self.remove();
            let mend = match error.kind() {
                io::ErrorKind::NetworkDown => "; loopback is down: `ip link set lo up`",
                _ => "",
            };
            io::Error::new(error.kind(), format!("{error}{mend}"))
        })
    }

    /// Leads into the device, which must be up; when it goes, so do these routes. Nothing to do for [`Target::Local`].
    ///
    /// # Errors
    /// There is no such device, or the privilege is missing.
    pub fn attach(&self) -> io::Result<()> {
        let routes = self.routes(true);
        let into = |route: &&TableRoute| matches!(route.way, Way::Device(_));
        routes.iter().filter(into).try_for_each(TableRoute::replace)
    }

    /// Removes rules and routes of both families; what is not there is no error.
    ///
    /// # Errors
    /// The privilege is missing.
    pub fn remove(&self) -> io::Result<()> {
        for family in Family::usable() {
            self.remove_rules(family)?;
            for route in TableRoute::list(family, self.table)? {
                route.delete()?;
            }
        }
        Ok(())
    }

    /// Removes the rules that lead to the table, whichever packets they are for.
    fn remove_rules(&self, family: Family) -> io::Result<()> {
        let present = PolicyRule::list(family)?;
        let leads_there = |rule: &&PolicyRule| {
            rule.priority == self.priority && rule.action == Action::Table(self.table)
        };
        present
            .iter()
            .filter(leads_there)
            .try_for_each(PolicyRule::delete)
    }

    /// The rules that there are to be now.
    #[must_use]
    pub fn rules(&self) -> Vec<PolicyRule> {
        let families = Family::usable().into_iter();
        let rules = families.flat_map(|family| {
            let rule = move |packets| self.rule(family, packets);
            self.packets.iter().map(rule)
        });
        rules.collect()
    }

    /// The routes that there are to be now, those into the device if it is `attached`.
    #[must_use]
    pub fn routes(&self, attached: bool) -> Vec<TableRoute> {
        let mut routes = Vec::new();
        for family in Family::usable() {
            let route = |metric, way| TableRoute {
                table: self.table,
                to: family.everything(),
                metric,
                way,
            };
            let enabled = |device: &str| family == Family::V4 || ipv6_enabled(device);
            match &self.target {
                Target::Local if enabled("lo") => routes.push(route(0, Way::Local)),
                Target::Local => {}
                Target::Device { name, or_nowhere } => {
                    if *or_nowhere {
                        routes.push(route(LAST, Way::Blackhole));
                    }
                    if attached && enabled(name) {
                        routes.push(route(0, Way::Device(name.clone())));
                    }
                }
            }
        }
        routes
    }

    fn rule(&self, family: Family, packets: &MarkedPackets) -> PolicyRule {
        PolicyRule {
            family,
            priority: self.priority,
            iif: packets.iif.clone(),
            mark: Some((packets.mark, self.mask)),
            from: None,
            action: Action::Table(self.table),
        }
    }
}

/// True if IPv6 exists in the calling thread's namespace and may be used on loopback.
#[must_use]
pub fn ipv6_usable() -> bool {
    ipv6_enabled("lo")
}

/// True if IPv6 may be used on `device`; false if there is no such device.
#[must_use]
pub fn ipv6_enabled(device: &str) -> bool {
    // The file is absent when the kernel has no IPv6 (`ipv6.disable=1`).
    fs::read_to_string(format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6"))
        .is_ok_and(|text| text.trim() == "0")
}

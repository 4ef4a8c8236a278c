//! Which address families this machine has a route of: asked again all the time, because routes come after boot and go.
//!
//! The decision is pure; [`DefaultRoutes`] asks the kernel.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bentpipe_proto::tunnel::Families;

use crate::complaint::LastingFault;

/// Addresses that stand for "the internet" when asking which families have a route.
const PUBLIC: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(1, 1, 1, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2606, 0x4700, 0x4700, 0, 0, 0, 0, 0x1111)),
];

/// Looks in a row without a route before a family counts as lost: an uplink that is dialled anew has it back sooner.
const PATIENCE: u32 = 5;

/// The families in force.
#[derive(Debug)]
pub(super) struct Reached {
    now: Families,
    /// True once the kernel has said what there is.
    known: bool,
    /// Looks in a row that did not find IPv4, and IPv6.
    missed: [u32; 2],
}

impl Reached {
    /// Takes what the first look has `found`. Nothing is promised of which nothing is known.
    pub(super) fn new(found: Option<Families>) -> Self {
        Self {
            now: found.unwrap_or_default(),
            known: found.is_some(),
            missed: [0; 2],
        }
    }

    /// The families, if the kernel has said so far what there is.
    pub(super) fn known(&self) -> Option<Families> {
        self.known.then_some(self.now)
    }

    /// The families that clients are told.
    pub(super) fn now(&self) -> Families {
        self.now
    }

    /// Takes in what another look has `found`; the new families if they changed. What is found counts at once.
    pub(super) fn on_look(&mut self, found: Families) -> Option<Families> {
        let before = self.now;
        self.known = true;
        let [v4, v6] = &mut self.missed;
        let settle = |missed: &mut u32, had: bool, has: bool| {
            *missed = if has { 0 } else { missed.saturating_add(1) };
            has || (had && *missed < PATIENCE)
        };
        self.now = Families {
            ipv4: settle(v4, before.ipv4, found.ipv4),
            ipv6: settle(v6, before.ipv6, found.ipv6),
        };
        (self.now != before).then_some(self.now)
    }
}

/// Logs what clients cannot have, and what they have again; `before` is `None` where nothing was known.
pub(super) fn report(before: Option<Families>, now: Families) {
    let families = [
        ("IPv4", before.map(|before| before.ipv4), now.ipv4),
        ("IPv6", before.map(|before| before.ipv6), now.ipv6),
    ];
    for (name, before, now) in families {
        match (before, now) {
            (None | Some(true), false) => {
                tracing::warn!("no {name} route: {name} of clients is refused");
            }
            (Some(false), true) => {
                tracing::info!(target: crate::events::STATE, "{name} has a route: {name} of clients is carried");
            }
            (None | Some(true), true) | (Some(false), false) => {}
        }
    }
}

/// Asks the kernel.
pub(super) struct DefaultRoutes {
    #[cfg(target_os = "linux")]
    query: Option<bentpipe_sys::reach::RouteQuery>,
    /// Reason why the kernel could not be asked.
    fault: LastingFault,
    /// The kernel has answered so far.
    answered: bool,
}

impl DefaultRoutes {
    pub(super) fn new() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            query: bentpipe_sys::reach::RouteQuery::open().ok(),
            fault: LastingFault::none(),
            answered: false,
        }
    }

    /// The families in which this machine has a route to the internet, or to something that clients are `allowed`;
    /// `None` if the kernel cannot be asked, as the log is told.
    pub(super) fn look(&mut self, allowed: &[IpAddr]) -> Option<Families> {
        let asked = self.ask(allowed);
        self.answered |= asked.is_ok();
        match &asked {
            Ok(_) if self.fault.is_over() => {
                tracing::info!("the kernel says again which routes this machine has");
            }
            Err(error) if self.fault.is_news(error) => {
                let meanwhile = match self.answered {
                    true => "what it said last counts",
                    false => "connections of clients are refused",
                };
                tracing::error!(
                    "whether this machine has routes cannot be asked of the kernel ({error}): {meanwhile} until it can; let the process \
                     open AF_NETLINK sockets, and raise the hard limit of open files"
                );
            }
            Ok(_) | Err(_) => {}
        }
        asked.ok()
    }

    fn ask(&mut self, allowed: &[IpAddr]) -> io::Result<Families> {
        let mut found = Families::default();
        for address in PUBLIC.iter().chain(allowed) {
            let family = match address {
                IpAddr::V4(_) => &mut found.ipv4,
                IpAddr::V6(_) => &mut found.ipv6,
            };
            if !*family {
                *family = self.leads_to(*address)?;
            }
        }
        Ok(found)
    }

    #[cfg(target_os = "linux")]
    fn leads_to(&mut self, address: IpAddr) -> io::Result<bool> {
        use bentpipe_sys::reach::{Reach, RouteQuery};

        if let Some(query) = &mut self.query
            && let Ok(reach) = query.ask(address)
        {
            return Ok(reach != Reach::Nowhere);
        }
        // The old socket is given up only for a new one: there may be no descriptor left.
        let query = self.query.insert(RouteQuery::open()?);
        Ok(query.ask(address)? != Reach::Nowhere)
    }

    #[cfg(not(target_os = "linux"))]
    fn leads_to(&mut self, address: IpAddr) -> io::Result<bool> {
        Ok(crate::process::source_address(address).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Families = Families {
        ipv4: true,
        ipv6: true,
    };
    const V4: Families = Families {
        ipv4: true,
        ipv6: false,
    };

    #[test]
    fn a_route_counts_at_once_and_its_loss_after_a_while() {
        let mut reached = Reached::new(Some(V4));
        assert_eq!(reached.on_look(V4), None);
        assert_eq!(reached.on_look(BOTH), Some(BOTH));
        for _ in 1..PATIENCE {
            assert_eq!(reached.on_look(V4), None);
        }
        assert_eq!(reached.on_look(BOTH), None);
        for _ in 1..PATIENCE {
            assert_eq!(reached.on_look(V4), None);
        }
        assert_eq!(reached.on_look(V4), Some(V4));
        assert_eq!(reached.now(), V4);
    }

    #[test]
    fn what_the_kernel_has_not_said_is_not_known_to_be_missing() {
        let mut reached = Reached::new(None);
        assert_eq!(
            (reached.known(), reached.now()),
            (None, Families::default())
        );
        assert_eq!(reached.on_look(V4), Some(V4));
        assert_eq!(reached.known(), Some(V4));
        let nothing = Families::default();
        let mut reached = Reached::new(None);
        assert_eq!(reached.on_look(nothing), None, "clients have been told so");
        assert_eq!(reached.known(), Some(nothing), "and now it is known");
    }
}

//! Which address families this machine has a route of: asked again all the time, because routes come after boot and go.
//!
//! The decision is pure; [`DefaultRoutes`] asks the kernel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bentpipe_proto::tunnel::Families;

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
    /// Looks in a row that did not find IPv4, and IPv6.
    missed: [u32; 2],
}

impl Reached {
    /// Takes what the first look has `found`.
    pub(super) fn new(found: Families) -> Self {
        Self {
            now: found,
            missed: [0; 2],
        }
    }

    /// The families that clients are told.
    pub(super) fn now(&self) -> Families {
        self.now
    }

    /// Takes in what another look has `found`; the new families if they changed. What is found counts at once.
    pub(super) fn on_look(&mut self, found: Families) -> Option<Families> {
        let before = self.now;
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

/// Logs what clients cannot have, and what they have again; `before` is `None` at the start.
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
}

impl DefaultRoutes {
    pub(super) fn new() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            query: bentpipe_sys::reach::RouteQuery::open().ok(),
        }
    }

    /// The families in which this machine has a route to the internet, or to something that clients are `allowed`;
    /// `None` if the kernel does not say.
    pub(super) fn look(&mut self, allowed: &[IpAddr]) -> Option<Families> {
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
        Some(found)
    }

    #[cfg(target_os = "linux")]
    fn leads_to(&mut self, address: IpAddr) -> Option<bool> {
        use bentpipe_sys::reach::{Reach, RouteQuery};

        if self.query.is_none() {
            self.query = RouteQuery::open().ok();
        }
        let reach = self.query.as_mut()?.ask(address).ok()?;
        Some(reach != Reach::Nowhere)
    }

    #[cfg(not(target_os = "linux"))]
    fn leads_to(&mut self, address: IpAddr) -> Option<bool> {
        Some(crate::process::source_address(address).is_some())
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
        let mut reached = Reached::new(V4);
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
}

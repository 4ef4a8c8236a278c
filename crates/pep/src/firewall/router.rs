//! What this machine forwards for others than us.

use super::Family;
use super::setting::{ALL, Kind, Setting};

/// Families in which this machine forwards for others than us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Router {
    ipv4: bool,
    ipv6: bool,
}

impl Router {
    /// As the kernel has it, given that forwarding of IPv6 is on for the whole machine because of us, or not: `opened_machine`.
    pub(crate) fn now(opened_machine: bool) -> Self {
        Self {
            ipv4: Setting::of(Kind::Ipv4, ALL).is("1"),
            ipv6: Setting::of(Kind::Ipv6, ALL).is("1") && !opened_machine,
        }
    }

    /// One that forwards in both families.
    #[cfg(test)]
    pub(crate) const BOTH: Self = Self {
        ipv4: true,
        ipv6: true,
    };

    /// Families in which it forwards for nobody else.
    pub(crate) fn shut(self) -> impl Iterator<Item = Family> + Clone {
        let families = [(Family::V4, self.ipv4), (Family::V6, self.ipv6)];
        families
            .into_iter()
            .filter_map(|(family, forwards)| (!forwards).then_some(family))
    }
}

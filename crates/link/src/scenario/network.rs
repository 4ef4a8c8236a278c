//! `[network]`: the addresses of namespaces that are made for a scenario. The link itself has none.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

use super::ScenarioError;

/// A network of each family.
pub type Networks = (Ipv4Net, Ipv6Net);

/// `[network]`: where the namespaces of a scenario have their addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// Of the users: each terminal gets the next /24 and /64 of it, `.1` the terminal and `.2` the user.
    pub lan: Networks,
    /// Of the link: `.1` the gateway, then the terminals.
    pub satellite: Networks,
    /// Of the servers: `.1` the gateway, `.2` the web, then its other hosts.
    pub web: Networks,
}

impl Default for Network {
    fn default() -> Self {
        let networks = |number: u16, v4_length, v6_length| {
            // 10.10.0.0 and fd00:10::, as they read.
            let v4 = Ipv4Addr::new(10, number as u8, 0, 0);
            let v6 = Ipv6Addr::new(0xfd00, number / 10 * 0x10, 0, 0, 0, 0, 0, 0);
            (
                Ipv4Net::new_assert(v4, v4_length),
                Ipv6Net::new_assert(v6, v6_length),
            )
        };
        Self {
            lan: networks(10, 16, 48),
            satellite: networks(20, 24, 64),
            web: networks(30, 24, 64),
        }
    }
}

impl Network {
    /// Checks that the addresses of `terminals` terminals fit.
    pub(super) fn check(&self, terminals: usize) -> Result<(), ScenarioError> {
        let fault =
            |key: &str, problem: String| Err(ScenarioError::new(format!("network.{key}"), problem));
        let (v4, v6) = self.lan;
        let (v4_length, v6_length) = (v4.prefix_len(), v6.prefix_len());
        if v4_length > 24 || v6_length > 64 || terminals > 1 << (24 - v4_length).min(16) {
            let problem = format!(
                "{v4} and {v6} do not hold a /24 and a /64 for each of {terminals} terminals"
            );
            return fault("lan", problem);
        }
        for (key, (v4, v6)) in [("satellite", self.satellite), ("web", self.web)] {
            if v4.prefix_len() > 24 || v6.prefix_len() > 112 {
                return fault(
                    key,
                    format!("{v4} or {v6} is too small; use a /24 and a /64"),
                );
            }
        }
        if terminals > (1usize << (32 - self.satellite.0.prefix_len()).min(16)) - 3 {
            let problem = format!(
                "{} does not hold {terminals} terminals and a gateway",
                self.satellite.0
            );
            return fault("satellite", problem);
        }
        Ok(())
    }
}

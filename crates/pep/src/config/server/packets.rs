//! `[packets]`: where clients' addresses in the tunnel come from.

use std::net::{Ipv4Addr, Ipv6Addr};

use bentpipe_config::Source;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::Deserialize;
use toml::Spanned;

use crate::config::ConfigError;
use crate::config::value;

/// `[packets]`: how everything but TCP is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Packets {
    /// True if it is carried at all.
    pub enabled: bool,
    /// Pool of IPv4 addresses for clients, with room for at least the server and one client.
    #[serde(deserialize_with = "value::text")]
    pub ipv4: Ipv4Net,
    /// Pool of IPv6 addresses, likewise.
    #[serde(deserialize_with = "value::text")]
    pub ipv6: Ipv6Net,
}

impl Default for Packets {
    /// Shared address space, which no LAN has (RFC 6598), and a unique local prefix (RFC 4193).
    fn default() -> Self {
        let unique = Ipv6Addr::new(0xfd62, 0x656e, 0x7470, 0, 0, 0, 0, 0);
        Self {
            enabled: true,
            ipv4: Ipv4Net::new_assert(Ipv4Addr::new(100, 96, 0, 0), 16),
            ipv6: Ipv6Net::new_assert(unique, 64),
        }
    }
}

/// Pools with room for somebody.
pub(super) fn pools(
    source: &Source,
    packets: Option<Spanned<Packets>>,
) -> Result<Packets, ConfigError> {
    let Some(packets) = packets else {
        return Ok(Packets::default());
    };
    let pools = packets.get_ref();
    for (key, pool) in [
        ("ipv4", IpNet::from(pools.ipv4)),
        ("ipv6", pools.ipv6.into()),
    ] {
        if pool.max_prefix_len() - pool.prefix_len() < 2 {
            let fault = format!(
                "`{key}` has no room in {pool}; give it a prefix of at least four addresses"
            );
            return Err(source.error_at_key(&format!("packets.{key}"), fault));
        }
    }
    Ok(packets.into_inner())
}

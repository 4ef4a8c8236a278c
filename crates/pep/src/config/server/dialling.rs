//! `connect_timeout`, `[dns]` and `nat64`: how the server reaches what clients ask for.

use std::time::Duration;

use bentpipe_config::Source;
use ipnet::Ipv6Net;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use crate::config::ConfigError;
use crate::config::dns::ServerDns;
use crate::config::value;

/// Lengths of prefixes of NAT64, bits (RFC 6052 §2.2).
pub(crate) const NAT64_LENGTHS: [u8; 6] = [32, 40, 48, 56, 64, 96];
/// Time for which the server tries to connect to a destination when nothing else is said.
pub(in crate::config) const DEFAULT_CONNECT: Duration = Duration::from_secs(20);

/// Settings by which the server finds destinations and connects to them.
#[derive(Clone, Debug)]
pub struct Dialling {
    /// Longest time that connecting to a destination may take.
    pub connect_timeout: Duration,
    /// Resolvers that answer the clients' DNS.
    pub dns: ServerDns,
    /// Prefixes of the network's NAT64.
    pub nat64: Nat64,
}

/// Prefixes that lead to IPv4 addresses by a translator of the server's network (RFC 6052).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Nat64 {
    /// Prefixes that the resolver tells (RFC 7050).
    #[default]
    Discovered,
    /// Prefixes that the operator names.
    Prefixes(Vec<Ipv6Net>),
}

/// A prefix or a list of them, which may be empty.
pub(super) fn nat64_prefixes<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Spanned<Vec<Ipv6Net>>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Prefixes(#[serde(deserialize_with = "value::text_or_texts")] Vec<Ipv6Net>);

    let prefixes = Spanned::<Prefixes>::deserialize(deserializer)?;
    Ok(Some(Spanned::new(prefixes.span(), prefixes.into_inner().0)))
}

/// Refuses lengths that no translator uses.
pub(super) fn nat64(
    source: &Source,
    prefixes: Spanned<Vec<Ipv6Net>>,
) -> Result<Nat64, ConfigError> {
    let odd = |prefix: &&Ipv6Net| !NAT64_LENGTHS.contains(&prefix.prefix_len());
    if let Some(prefix) = prefixes.get_ref().iter().find(odd) {
        let fault = format!(
            "`nat64` has {prefix}; a prefix of NAT64 has 32, 40, 48, 56, 64 or 96 bits (RFC 6052)"
        );
        return Err(source.error(&prefixes.span(), fault));
    }
    Ok(Nat64::Prefixes(prefixes.into_inner()))
}

//! What a client takes in: interception, SOCKS5, HTTP CONNECT, and the exceptions by destination.
//!
//! The same tables whatever carries the connections on. At least one front end is configured, else the client would
//! have nothing to do.

use std::net::{IpAddr, SocketAddr};

use bentpipe_config::{Placed, Source};
use ipnet::IpNet;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::ConfigError;
use super::value::{self, InterfaceName, OtherTraffic};

/// TPROXY's target port when nothing else is said.
const DEFAULT_INTERCEPT_PORT: u16 = 4480;

/// Where a client's connections come from; at least one of the first three.
#[derive(Clone, Debug)]
pub struct FrontEnds {
    /// Transparent interception.
    pub intercept: Option<Placed<Intercept>>,
    /// SOCKS5 front end.
    pub socks5: Option<Placed<ProxyFrontEnd>>,
    /// HTTP CONNECT front end.
    pub http: Option<Placed<ProxyFrontEnd>>,
    /// Exceptions by destination; the first match counts.
    pub rules: Vec<Rule>,
}

/// Transparent interception of TCP.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intercept {
    /// LAN interfaces whose TCP is taken in; empty only if `local` is set.
    #[serde(default, deserialize_with = "interfaces")]
    pub interfaces: Vec<String>,
    /// Whether this machine's own TCP is taken in too.
    #[serde(default)]
    pub local: bool,
    /// Destinations left alone.
    #[serde(default, deserialize_with = "value::texts")]
    pub bypass: Vec<IpNet>,
    /// What happens to everything but TCP.
    #[serde(default)]
    pub other: OtherTraffic,
    /// Local TCP port that TPROXY hands connections to.
    #[serde(default = "default_intercept_port")]
    pub port: u16,
}

/// SOCKS5 or HTTP CONNECT, without authentication.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyFrontEnd {
    /// TCP address to serve.
    #[serde(deserialize_with = "value::text")]
    pub listen: SocketAddr,
}

/// An exception for some destinations.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Destination ports it is for; empty: all.
    #[serde(default)]
    pub ports: Vec<u16>,
    /// Destinations it is for; empty: all.
    #[serde(default, deserialize_with = "value::texts")]
    pub destinations: Vec<IpNet>,
    /// Whether connections are accepted before the server has connected.
    pub optimistic: bool,
}

impl Rule {
    /// Whether the rule is for `port` at `address`; `None` is a host name, which only a rule for all destinations meets.
    #[must_use]
    pub fn matches(&self, address: Option<IpAddr>, port: u16) -> bool {
        let destination = |address| {
            self.destinations
                .iter()
                .any(|prefix| prefix.contains(&address))
        };
        (self.ports.is_empty() || self.ports.contains(&port))
            && (self.destinations.is_empty() || address.is_some_and(destination))
    }
}

impl FrontEnds {
    /// Ports that are never accepted before the server has connected: SMTP and BGP judge a peer by that.
    pub const NEVER_OPTIMISTIC: [u16; 2] = [25, 179];

    /// Refuses front ends that would take in nothing.
    pub(super) fn new(
        source: &Source,
        intercept: Option<Spanned<Intercept>>,
        socks5: Option<Spanned<ProxyFrontEnd>>,
        http: Option<Spanned<ProxyFrontEnd>>,
        rules: Vec<Rule>,
    ) -> Result<Self, ConfigError> {
        if intercept.is_none() && socks5.is_none() && http.is_none() {
            return Err(source.error_at_line(
                1,
                "no front end is configured; add `[intercept]`, `[socks5]` or `[http]`",
            ));
        }
        if let Some(intercept) = &intercept {
            check(source, intercept)?;
        }
        Ok(Self {
            intercept: intercept.map(|intercept| source.placed(intercept)),
            socks5: socks5.map(|front_end| source.placed(front_end)),
            http: http.map(|front_end| source.placed(front_end)),
            rules,
        })
    }

    /// Whether a connection to `port` at `address` (`None`: a host name) may be accepted before the server has
    /// connected. Never for SMTP and BGP, whatever the rules say.
    #[must_use]
    pub fn is_optimistic(&self, address: Option<IpAddr>, port: u16) -> bool {
        let rule = self.rules.iter().find(|rule| rule.matches(address, port));
        !Self::NEVER_OPTIMISTIC.contains(&port) && rule.is_none_or(|rule| rule.optimistic)
    }
}

fn check(source: &Source, intercept: &Spanned<Intercept>) -> Result<(), ConfigError> {
    let fault = |text| Err(source.error(&intercept.span(), text));
    let table = intercept.get_ref();
    if table.interfaces.is_empty() && !table.local {
        return fault("`[intercept]` takes in nothing; list `interfaces` or set `local = true`");
    }
    if table.port == 0 {
        return fault("`port` of `[intercept]` is 0; choose 1 to 65535");
    }
    Ok(())
}

fn interfaces<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let names: Vec<InterfaceName> = value::texts(deserializer)?;
    Ok(names.into_iter().map(|name| name.0).collect())
}

fn default_intercept_port() -> u16 {
    DEFAULT_INTERCEPT_PORT
}

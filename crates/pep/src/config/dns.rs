//! `[dns]`: at the client how queries of the LAN are answered, at the server whom it asks.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bentpipe_config::{Placed, Source};
use bentpipe_proto::dns::{Config, Rebinding, Suffix, Zones};
use bentpipe_units::{ByteCount, TimeSpan};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::ConfigError;
use super::front::{Intercept, ProxyFrontEnd};
use super::value::{self, FromText, both_families};

/// Memory for answers when nothing else is said: tens of thousands of names.
const DEFAULT_MEMORY: ByteCount = ByteCount::new(16 << 20);

/// Least memory for answers: room for the largest.
const LEAST_MEMORY: ByteCount = ByteCount::new(256 << 10);

/// Time for which an answer is kept past its TTL when nothing else is said; RFC 8767 names one to three days.
const DEFAULT_MAX_STALE: Duration = Duration::from_secs(24 * 3600);

/// No answer is fresh for longer (RFC 8767 §4 names up to a week).
const MAX_TTL: Duration = Duration::from_secs(24 * 3600);

/// Port at which TPROXY delivers queries when nothing else is said.
const DEFAULT_PORT: u16 = 4453;

/// The client's `[dns]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientDns {
    /// True if queries are answered at all.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Addresses to serve over UDP and TCP, beside what is intercepted.
    #[serde(default, deserialize_with = "value::text_or_texts")]
    pub listen: Vec<SocketAddr>,
    /// Local UDP and TCP port that the kernel hands intercepted queries to.
    #[serde(default = "default_port")]
    pub port: u16,
    /// Memory for answers.
    #[serde(default = "default_memory")]
    pub memory: ByteCount,
    /// Time for which an answer is kept past its TTL.
    max_stale: Option<TimeSpan>,
    /// True if names in use are asked for again before their answers expire, and names that followed another along with that.
    #[serde(default = "yes")]
    pub prefetch: bool,
    /// True if the reverse zones of private addresses are answered here.
    #[serde(default = "yes")]
    pub local_zones: bool,
    /// Zones that name servers of the site answer.
    #[serde(default, deserialize_with = "zones")]
    pub zones: Zones,
    /// Answerer of what hosts ask the router itself.
    #[serde(default)]
    pub router: RouterDns,
    /// True if private addresses are withheld from answers about public names.
    #[serde(default = "yes")]
    pub rebind_protection: bool,
    /// Names that may have private addresses all the same.
    #[serde(default, deserialize_with = "value::text_or_texts")]
    pub rebind_ok: Vec<Suffix>,
}

/// Answerer of the LAN's queries for the router's own addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RouterDns {
    /// The name server that is bound to that address; else bentpipe, which asks one on the wildcard address for names
    /// of the site.
    #[default]
    Auto,
    /// Any name server that listens there; else bentpipe.
    Leave,
    /// Bentpipe.
    Answer,
}

impl ClientDns {
    /// Settings that the forwarder goes by.
    #[must_use]
    pub fn forwarder(&self) -> Config {
        Config {
            memory: self.memory,
            max_ttl: MAX_TTL,
            max_stale: self.max_stale.map_or(DEFAULT_MAX_STALE, TimeSpan::get),
            prefetch: self.prefetch,
            local_zones: self.local_zones,
            learns: false,
            zones: self.zones.clone(),
            rebinding: Rebinding {
                enabled: self.rebind_protection,
                exempt: self.rebind_ok.clone(),
            },
        }
    }
}

impl Default for ClientDns {
    fn default() -> Self {
        Self {
            enabled: true,
            listen: Vec::new(),
            port: DEFAULT_PORT,
            memory: DEFAULT_MEMORY,
            max_stale: None,
            prefetch: true,
            local_zones: true,
            zones: Zones::default(),
            router: RouterDns::default(),
            rebind_protection: true,
            rebind_ok: Vec::new(),
        }
    }
}

/// The table in force: what is written, or the defaults for what `intercept` takes in and for the names that datagrams of
/// `socks5` go to.
pub(super) fn client(
    source: &Source,
    written: Option<Spanned<ClientDns>>,
    intercept: Option<&Placed<Intercept>>,
    socks5: Option<&Placed<ProxyFrontEnd>>,
) -> Result<Option<Placed<ClientDns>>, ConfigError> {
    let Some(written) = written else {
        let implied = intercept.map(|intercept| intercept.implied(ClientDns::default()));
        return Ok(implied.or_else(|| Some(socks5?.implied(ClientDns::default()))));
    };
    let table = written.get_ref();
    let fault = |key: &str, text: &str| Err(source.error_at_key(key, text));
    if table.memory < LEAST_MEMORY {
        return fault(
            "dns.memory",
            "`memory` of `[dns]` is too small; choose 256 KiB or more",
        );
    }
    if table.port == 0 || intercept.is_some_and(|intercept| intercept.port == table.port) {
        return fault(
            "dns.port",
            "`port` of `[dns]` is 0, or that of `[intercept]`; choose another",
        );
    }
    if table.enabled && table.listen.is_empty() && intercept.is_none() && socks5.is_none() {
        return fault(
            "dns",
            "`[dns]` answers nobody; set `listen`, or add `[intercept]` or `[socks5]`",
        );
    }
    let span = written.span();
    let mut table = written.into_inner();
    table.listen = both_families(table.listen);
    Ok(Some(source.placed(Spanned::new(span, table))).filter(|dns| dns.enabled))
}

/// The server's `[dns]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerDns {
    /// True if clients' queries are answered.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Resolvers to ask; empty: those of /etc/resolv.conf.
    #[serde(default, deserialize_with = "resolvers")]
    pub servers: Vec<SocketAddr>,
}

impl Default for ServerDns {
    fn default() -> Self {
        Self {
            enabled: true,
            servers: Vec::new(),
        }
    }
}

/// `IP`, or `IP:PORT`.
struct ResolverAddress(SocketAddr);

impl FromText for ResolverAddress {
    const EXPECTED: &'static str =
        "a resolver's address, such as \"192.0.2.53\" or \"[2001:db8::53]:5353\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let bare = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 53));
        let address = bare.ok().or_else(|| value::scoped(text, 53));
        address
            .or_else(|| value::address(text))
            .map(Self)
            .ok_or_else(|| format!("bad resolver `{text}`; expected {}", Self::EXPECTED))
    }
}

impl FromText for Suffix {
    const EXPECTED: &'static str = "a domain, such as \"corp.example\"";

    fn from_text(text: &str) -> Result<Self, String> {
        Self::parse(text).ok_or_else(|| format!("bad domain `{text}`; expected {}", Self::EXPECTED))
    }
}

/// The name server of a zone.
#[derive(Deserialize)]
struct ZoneServer(#[serde(deserialize_with = "value::text")] ResolverAddress);

fn zones<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Zones, D::Error> {
    let written = BTreeMap::<String, ZoneServer>::deserialize(deserializer)?;
    let zones = written.into_iter().map(|(name, server)| {
        let zone = Suffix::from_text(&name).map_err(D::Error::custom)?;
        Ok((zone, server.0.0))
    });
    zones.collect::<Result<_, _>>().map(Zones::new)
}

fn resolvers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SocketAddr>, D::Error> {
    let addresses: Vec<ResolverAddress> = value::text_or_texts(deserializer)?;
    Ok(addresses.into_iter().map(|address| address.0).collect())
}

fn yes() -> bool {
    true
}

fn default_port() -> u16 {
    DEFAULT_PORT
}

fn default_memory() -> ByteCount {
    DEFAULT_MEMORY
}

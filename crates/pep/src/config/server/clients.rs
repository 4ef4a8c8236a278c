//! `[[client]]` and `[limits]`: whom the server serves, and how much each may take.
//!
//! Limits that a `[[client]]` does not set are filled in from `[limits]` here, so every client carries its own.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use bentpipe_config::Source;
use bentpipe_units::{BitRate, ByteCount};
use ipnet::IpNet;
use serde::Deserialize;
use toml::Spanned;

use super::packets::Packets;
use crate::config::destinations::Destinations;
use crate::config::publish::{Permit, Permits};
use crate::config::value::{self, spanned_texts};
use crate::config::{ConfigError, DEFAULT_MEMORY};
use crate::keys::PublicKey;

/// Flows that one client may have open when nothing else is said.
pub(in crate::config) const DEFAULT_MAX_FLOWS: u32 = 50_000;
/// Flows that one client may open in a second when nothing else is said: far more than a site of hundreds opens.
const DEFAULT_FLOWS_PER_S: u32 = 5000;
/// Packets that one client may send in a second when nothing else is said: 2.4 Gbit/s of full ones.
const DEFAULT_PACKETS_PER_S: u32 = 200_000;

/// One client that the server knows.
#[derive(Clone, Debug, PartialEq)]
pub struct Client {
    /// Name of the client in logs and `status`.
    pub name: String,
    /// Key that the client proves to hold.
    pub key: ClientKey,
    /// Destinations allowed although they are denied by default (loopback, private, …).
    pub allow: Vec<Destinations>,
    /// If not empty, the only destinations allowed.
    pub only: Vec<Destinations>,
    /// Addresses of the client in the tunnel; of a family that is missing the client gets one from the pool.
    pub addresses: Vec<IpAddr>,
    /// Prefixes behind it that are routed to it, without translation.
    pub routes: Vec<IpNet>,
    /// Ports of the server that it may publish.
    pub publish: Vec<Permit>,
    /// Most flows open at once.
    pub max_flows: u32,
    /// Ceiling of buffered data of its tunnel.
    pub memory: ByteCount,
    /// Highest rate of the forward link to it (IP layer).
    pub max_rate: Option<BitRate>,
    /// Most flows that it may open in a second, on average over some seconds.
    pub max_flows_per_s: u32,
    /// Most IP packets that it may send in a second, likewise.
    pub max_packets_per_s: u32,
}

/// Key that a client connects with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientKey {
    /// The client's own.
    Own(PublicKey),
    /// A one-time key, with which the client names its own.
    Enrolment {
        /// Public half of the one-time key.
        key: PublicKey,
        /// Time at which it expires, in seconds since 1970.
        expires: u64,
    },
}

impl ClientKey {
    /// The public key that is listed, whichever it is.
    #[must_use]
    pub const fn listed(&self) -> PublicKey {
        match self {
            Self::Own(key) | Self::Enrolment { key, .. } => *key,
        }
    }
}

/// Refuses a client's name that cannot be shown, or that another has.
pub(in crate::config) fn check_name(
    source: &Source,
    name: &Spanned<String>,
    names: &mut HashSet<String>,
) -> Result<(), ConfigError> {
    let text = name.get_ref();
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err(source.error(
            &name.span(),
            "`name` is empty or holds control characters; choose a printable one",
        ));
    }
    if !names.insert(text.clone()) {
        return Err(source.error(
            &name.span(),
            format!("duplicate client name `{text}`; choose another"),
        ));
    }
    Ok(())
}

/// `[[client]]` as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    name: Spanned<String>,
    public_key: Option<Spanned<PublicKey>>,
    enrolment_key: Option<Spanned<PublicKey>>,
    enrolment_expires: Option<Spanned<Expiry>>,
    #[serde(default, deserialize_with = "value::texts")]
    allow: Vec<Destinations>,
    #[serde(default, deserialize_with = "value::texts")]
    only: Vec<Destinations>,
    #[serde(default, deserialize_with = "spanned_texts")]
    addresses: Vec<Spanned<IpAddr>>,
    #[serde(default, deserialize_with = "spanned_texts")]
    routes: Vec<Spanned<IpNet>>,
    #[serde(default, deserialize_with = "spanned_texts")]
    publish: Vec<Spanned<Permit>>,
    #[serde(default, deserialize_with = "value::some_count")]
    max_flows: Option<u32>,
    memory: Option<ByteCount>,
    #[serde(default, deserialize_with = "value::positive_rate")]
    max_rate: Option<BitRate>,
    #[serde(default, deserialize_with = "value::some_count")]
    max_flows_per_s: Option<u32>,
    #[serde(default, deserialize_with = "value::some_count")]
    max_packets_per_s: Option<u32>,
}

/// A moment as `2026-11-26T12:00:00Z`, in seconds since 1970.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct Expiry(u64);

impl TryFrom<String> for Expiry {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let moment: Result<jiff::Timestamp, _> = text.parse();
        let seconds = moment
            .ok()
            .and_then(|at| u64::try_from(at.as_second()).ok());
        seconds.map(Self).ok_or_else(|| {
            format!("`{text}` is no moment; expected one as \"2026-11-26T12:00:00Z\"")
        })
    }
}

impl Entry {
    /// The first key that is given, with its place.
    pub(super) fn listed(&self) -> Option<Spanned<PublicKey>> {
        self.public_key.clone().or(self.enrolment_key.clone())
    }

    /// The key that is given, with its place: the client's own or a one-time key.
    fn key(&self, source: &Source) -> Result<(ClientKey, Range<usize>), ConfigError> {
        match (
            &self.public_key,
            &self.enrolment_key,
            &self.enrolment_expires,
        ) {
            (Some(key), None, None) => Ok((ClientKey::Own(*key.get_ref()), key.span())),
            (None, Some(key), Some(expires)) => {
                let (span, key, expires) = (key.span(), *key.get_ref(), expires.get_ref().0);
                Ok((ClientKey::Enrolment { key, expires }, span))
            }
            _ => Err(source.error(
                &self.name.span(),
                "a client needs `public_key`, or both `enrolment_key` and `enrolment_expires`",
            )),
        }
    }
}

/// `[limits]`: what a client gets that does not set its own.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Limits {
    memory: Option<ByteCount>,
    total_memory: Option<Spanned<ByteCount>>,
    #[serde(default, deserialize_with = "value::some_count")]
    max_flows: Option<u32>,
    #[serde(default, deserialize_with = "value::positive_rate")]
    max_rate: Option<BitRate>,
    #[serde(default, deserialize_with = "value::some_count")]
    max_flows_per_s: Option<u32>,
    #[serde(default, deserialize_with = "value::some_count")]
    max_packets_per_s: Option<u32>,
}

impl Limits {
    /// Ceiling of all tunnels together.
    pub(super) fn total(&self, source: &Source) -> Result<Option<ByteCount>, ConfigError> {
        value::total_memory(source, self.total_memory.as_ref())
    }
}

/// The clients with their limits filled in; names and keys are seen to be unique.
pub(super) fn clients(
    source: &Source,
    entries: Vec<Entry>,
    limits: &Limits,
    listen: &[SocketAddr],
    packets: &Packets,
) -> Result<Vec<Client>, ConfigError> {
    let mut names = HashSet::new();
    let mut claims = Claims {
        pools: [packets.ipv4.into(), packets.ipv6.into()],
        claimed: Vec::new(),
    };
    let mut permits = Permits::default();
    let mut keys = HashMap::new();
    let mut clients = Vec::new();
    for entry in entries {
        let name = entry.name.get_ref().clone();
        check_name(source, &entry.name, &mut names)?;
        let (key, span) = entry.key(source)?;
        if let Some(owner) = keys.insert(key.listed(), name.clone()) {
            let fault = format!(
                "clients `{owner}` and `{name}` have the same public key; give each its own"
            );
            return Err(source.error(&span, fault));
        }
        let (addresses, routes) = claims.of(source, &name, &entry)?;
        let publish = permits.of(source, &name, &entry.publish, listen)?;
        clients.push(Client {
            name,
            key,
            addresses,
            routes,
            publish,
            allow: entry.allow,
            only: entry.only,
            max_flows: entry
                .max_flows
                .or(limits.max_flows)
                .unwrap_or(DEFAULT_MAX_FLOWS),
            memory: entry.memory.or(limits.memory).unwrap_or(DEFAULT_MEMORY),
            max_rate: entry.max_rate.or(limits.max_rate),
            max_flows_per_s: entry
                .max_flows_per_s
                .or(limits.max_flows_per_s)
                .unwrap_or(DEFAULT_FLOWS_PER_S),
            max_packets_per_s: entry
                .max_packets_per_s
                .or(limits.max_packets_per_s)
                .unwrap_or(DEFAULT_PACKETS_PER_S),
        });
    }
    Ok(clients)
}

/// Addresses and prefixes that some client has.
struct Claims {
    /// Pools of clients' addresses: nobody's as a whole.
    pools: [IpNet; 2],
    claimed: Vec<(IpNet, String)>,
}

impl Claims {
    /// Claims of the client `name`; none may be another's too.
    fn of(
        &mut self,
        source: &Source,
        name: &str,
        entry: &Entry,
    ) -> Result<(Vec<IpAddr>, Vec<IpNet>), ConfigError> {
        let addresses = entry.addresses.iter();
        let addresses = addresses.map(|at| (IpNet::from(*at.get_ref()), at.span()));
        let routes = entry.routes.iter().map(|at| (*at.get_ref(), at.span()));
        let touch = |one: &IpNet, other: &IpNet| one.contains(other) || other.contains(one);
        for (route, span) in routes.clone() {
            if let Some(pool) = self.pools.iter().find(|pool| touch(pool, &route)) {
                let fault = format!(
                    "{route} of `{name}` overlaps {pool} of `[packets]`, which is for all clients; choose another pool there"
                );
                return Err(source.error(&span, fault));
            }
        }
        for (claimed, span) in addresses.chain(routes) {
            let overlaps = |(other, _): &&(IpNet, String)| touch(other, &claimed);
            if let Some((other, owner)) = self.claimed.iter().find(overlaps) {
                let fault = format!(
                    "{claimed} of `{name}` overlaps {other} of `{owner}`; give each its own"
                );
                return Err(source.error(&span, fault));
            }
            if claimed.prefix_len() == 0 {
                let fault = format!("{claimed} is everything; name the prefixes behind `{name}`");
                return Err(source.error(&span, fault));
            }
            self.claimed.push((claimed, name.to_owned()));
        }
        let first = |spans: Option<Range<usize>>| spans.unwrap_or_else(|| entry.name.span());
        for (key, count, span) in [
            (
                "addresses",
                entry.addresses.len(),
                first(entry.addresses.first().map(Spanned::span)),
            ),
            (
                "routes",
                entry.routes.len(),
                first(entry.routes.first().map(Spanned::span)),
            ),
        ] {
            if count > MOST {
                let fault =
                    format!("`{key}` of `{name}` has {count} entries; at most {MOST} are possible");
                return Err(source.error(&span, fault));
            }
        }
        let own = |at: &Spanned<IpAddr>| *at.get_ref();
        let prefix = |at: &Spanned<IpNet>| *at.get_ref();
        Ok((
            entry.addresses.iter().map(own).collect(),
            entry.routes.iter().map(prefix).collect(),
        ))
    }
}

/// Addresses, and prefixes, that a client can be told: two more addresses come from the pools.
const MOST: usize = 6;

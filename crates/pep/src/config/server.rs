//! The server's file: where it listens and which clients it serves.
//!
//! Limits that a `[[client]]` does not set are filled in from `[limits]` here, so every client carries its own.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bentpipe_config::{Placed, Source};
use bentpipe_congestion::Kind;
use bentpipe_units::{BitRate, ByteCount, TimeSpan};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::destinations::Destinations;
use super::dns::ServerDns;
use super::metrics::{self, Metrics};
use super::page::{self, Page};
use super::publish::{Permit, Permits};
use super::responder::{self, Responder};
use super::value::{self, FromText, ServerAddress, Transport, spanned_texts};
use super::{ConfigError, DEFAULT_DRAIN, DEFAULT_MEMORY, check_peer_key, state_dir};
use crate::keys::{self, PublicKey};

/// Flows that one client may have open when nothing else is said.
pub(super) const DEFAULT_MAX_FLOWS: u32 = 50_000;
/// Flows that one client may open in a second when nothing else is said: far more than a site of hundreds opens.
const DEFAULT_FLOWS_PER_S: u32 = 5000;
/// Packets that one client may send in a second when nothing else is said: 2.4 Gbit/s of full ones.
const DEFAULT_PACKETS_PER_S: u32 = 200_000;
/// Lengths of prefixes of NAT64, bits (RFC 6052 §2.2).
pub(crate) const NAT64_LENGTHS: [u8; 6] = [32, 40, 48, 56, 64, 96];
/// How long the server tries to connect to a destination when nothing else is said.
pub(super) const DEFAULT_CONNECT: Duration = Duration::from_secs(20);

/// What `bentpipe server` runs on.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The file that this was read from.
    pub file: PathBuf,
    /// Holds the server's private key; seen to be owner-only and well-formed.
    pub private_key_file: PathBuf,
    /// UDP addresses to serve; at least one, no two the same.
    pub listen: Placed<Vec<SocketAddr>>,
    /// Where clients reach the server, for the codes by which they join.
    pub public_address: Option<ServerAddress>,
    /// Threads, 1 to 256; `None`: one per core.
    pub shards: Option<u16>,
    /// The clients that may connect; names and keys unique.
    pub clients: Vec<Client>,
    /// Ceiling of what all tunnels hold together; `None`: as the machine's memory suggests.
    pub total_memory: Option<ByteCount>,
    /// Where clients' addresses in the tunnel come from.
    pub packets: Packets,
    /// How long connecting to a destination may take.
    pub connect_timeout: Duration,
    /// How long a stop waits for open flows.
    pub drain_timeout: Duration,
    /// Remembers the paths to the clients.
    pub state_dir: PathBuf,
    /// What paces the forward link unless the client asks for something else.
    pub controller: Kind,
    /// Who answers the clients' DNS.
    pub dns: ServerDns,
    /// Prefixes of the network's NAT64.
    pub nat64: Nat64,
    /// Whether key exchange may fall back to X25519 without ML-KEM.
    pub allow_classical: bool,
    /// Where `bentpipe status` finds this daemon, instead of the run directory.
    pub status_socket: Option<Placed<PathBuf>>,
    /// TCP address that serves figures for Prometheus.
    pub metrics: Option<Placed<SocketAddr>>,
    /// Where the page is served, and to whom.
    pub page: Option<Page>,
    /// What clients measure their link with.
    pub responder: Option<Responder>,
    /// Whether it gives up what it does not need once it runs.
    pub sandbox: bool,
}

/// `[packets]`: how everything but TCP is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Packets {
    /// Whether it is carried at all.
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

/// One client that the server knows.
#[derive(Clone, Debug, PartialEq)]
pub struct Client {
    /// Its name in logs and `status`.
    pub name: String,
    /// What it proves to hold.
    pub key: ClientKey,
    /// Destinations allowed although they are denied by default (loopback, private, …).
    pub allow: Vec<Destinations>,
    /// If not empty, the only destinations allowed.
    pub only: Vec<Destinations>,
    /// Its addresses in the tunnel; of a family that is missing it gets one from the pool.
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
        /// When it expires, in seconds since 1970.
        expires: u64,
    },
}

/// Which prefixes lead to IPv4 addresses by a translator of the server's network (RFC 6052).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Nat64 {
    /// Those that the resolver tells (RFC 7050).
    #[default]
    Discovered,
    /// These.
    Prefixes(Vec<Ipv6Net>),
}

impl ServerConfig {
    /// Reads and validates `path` and the private key file it names.
    ///
    /// # Errors
    /// [`ConfigError`] with the first fault found.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::from_source(&Source::read(path)?)
    }

    pub(super) fn from_source(source: &Source) -> Result<Self, ConfigError> {
        let file: File = source.parse()?;
        one_of_each(source, &file.listen)?;
        let span = file.listen.span();
        let listen = Spanned::new(span, value::both_families(file.listen.into_inner()));
        let packets = pools(source, file.packets)?;
        let keys: Vec<_> = file
            .client
            .iter()
            .filter_map(|one| one.public_key.clone().or(one.enrolment_key.clone()))
            .collect();
        let clients = clients(
            source,
            file.client,
            &file.limits,
            listen.get_ref(),
            &packets,
        )?;
        let shards = file.shards.as_ref().map(|shards| match shards.get_ref() {
            1..=256 => Ok(*shards.get_ref()),
            other => Err(source.error(
                &shards.span(),
                format!("`shards` is {other}; expected 1 to 256"),
            )),
        });
        let private_key_file = source.resolve(file.private_key_file.get_ref());
        let own = keys::read(&private_key_file)
            .map_err(|fault| source.error(&file.private_key_file.span(), fault))?;
        for key in keys {
            check_peer_key(source, &own, key.get_ref(), &key.span())?;
        }
        Ok(Self {
            file: source.path().to_owned(),
            private_key_file,
            listen: source.placed(listen),
            public_address: file.public_address,
            shards: shards.transpose()?,
            clients,
            total_memory: file.limits.total(source)?,
            packets,
            connect_timeout: file.connect_timeout.map_or(DEFAULT_CONNECT, TimeSpan::get),
            drain_timeout: file.drain_timeout.map_or(DEFAULT_DRAIN, TimeSpan::get),
            state_dir: state_dir(source, file.state_dir.as_deref()),
            controller: file.controller,
            dns: file.dns,
            nat64: file
                .nat64
                .map_or(Ok(Nat64::Discovered), |prefixes| nat64(source, prefixes))?,
            allow_classical: file.allow_classical,
            status_socket: file.status_socket.map(|path| source.resolve_placed(path)),
            metrics: metrics::listen(source, file.metrics),
            page: page::checked(source, file.page)?,
            responder: file.responder.map(|table| table.placed(source)),
            sandbox: file.sandbox,
        })
    }
}

impl ServerConfig {
    /// Keys that differ in `fresh` and are read only when a server starts, by their names in the file.
    #[must_use]
    pub fn needing_restart(&self, fresh: &Self) -> Vec<&'static str> {
        let listens = |page: &Option<Page>| page.as_ref().map(|page| *page.listen);
        let opens = |page: &Option<Page>| page.as_ref().and_then(|page| page.token.clone());
        let keys = [
            (
                "private_key_file",
                self.private_key_file != fresh.private_key_file,
            ),
            ("listen", *self.listen != *fresh.listen),
            ("shards", self.shards != fresh.shards),
            (
                "connect_timeout",
                self.connect_timeout != fresh.connect_timeout,
            ),
            ("drain_timeout", self.drain_timeout != fresh.drain_timeout),
            ("state_dir", self.state_dir != fresh.state_dir),
            ("controller", self.controller != fresh.controller),
            (
                "allow_classical",
                self.allow_classical != fresh.allow_classical,
            ),
            (
                "status_socket",
                self.status_socket.as_deref() != fresh.status_socket.as_deref(),
            ),
            ("dns.enabled", self.dns.enabled != fresh.dns.enabled),
            ("dns.servers", self.dns.servers != fresh.dns.servers),
            ("nat64", self.nat64 != fresh.nat64),
            (
                "metrics.listen",
                self.metrics.as_deref() != fresh.metrics.as_deref(),
            ),
            ("page.listen", listens(&self.page) != listens(&fresh.page)),
            ("page.token_file", opens(&self.page) != opens(&fresh.page)),
            ("responder", self.asks_otherwise(fresh)),
            ("sandbox", self.sandbox != fresh.sandbox),
            (
                "packets.enabled",
                self.packets.enabled != fresh.packets.enabled,
            ),
            ("packets.ipv4", self.packets.ipv4 != fresh.packets.ipv4),
            ("packets.ipv6", self.packets.ipv6 != fresh.packets.ipv6),
        ];
        let changed = keys.into_iter().filter(|(_, changed)| *changed);
        changed.map(|(key, _)| key).collect()
    }

    /// Whether the responder of `fresh` is another, wherever it stands in the file.
    fn asks_otherwise(&self, fresh: &Self) -> bool {
        let told = |config: &Self| {
            let responder = config.responder.as_ref();
            responder.map(|responder| (*responder.listen, responder.bounds))
        };
        told(self) != told(fresh)
    }
}

/// The file as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    // Seen before this is parsed: the other transports have files of another shape.
    #[serde(default, rename = "transport")]
    _transport: Transport,
    private_key_file: Spanned<PathBuf>,
    #[serde(deserialize_with = "listen")]
    listen: Spanned<Vec<SocketAddr>>,
    #[serde(default, deserialize_with = "value::some_text")]
    public_address: Option<ServerAddress>,
    shards: Option<Spanned<u16>>,
    #[serde(default, deserialize_with = "value::one_or_many")]
    client: Vec<Entry>,
    #[serde(default)]
    limits: Limits,
    packets: Option<Spanned<Packets>>,
    connect_timeout: Option<TimeSpan>,
    drain_timeout: Option<TimeSpan>,
    state_dir: Option<PathBuf>,
    #[serde(default, deserialize_with = "value::text")]
    controller: Kind,
    #[serde(default)]
    dns: ServerDns,
    #[serde(default, deserialize_with = "nat64_prefixes")]
    nat64: Option<Spanned<Vec<Ipv6Net>>>,
    #[serde(default)]
    allow_classical: bool,
    status_socket: Option<Spanned<PathBuf>>,
    metrics: Option<Metrics>,
    page: Option<page::Written>,
    responder: Option<responder::Table>,
    #[serde(default = "value::yes")]
    sandbox: bool,
}

/// Refuses an address that is listed twice.
pub(super) fn one_of_each(
    source: &Source,
    listen: &Spanned<Vec<SocketAddr>>,
) -> Result<(), ConfigError> {
    let mut sorted = listen.get_ref().clone();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(source.error(
            &listen.span(),
            format!("`listen` names {} twice; remove one", pair[0]),
        )),
        None => Ok(()),
    }
}

/// Refuses a client's name that cannot be shown, or that another has.
pub(super) fn check_name(
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

/// An address with a port, or `:PORT`, which is all addresses of the machine.
struct ListenAddress(SocketAddr);

impl FromText for ListenAddress {
    const EXPECTED: &'static str = SocketAddr::EXPECTED;

    fn from_text(text: &str) -> Result<Self, String> {
        let port: Option<u16> = text.strip_prefix(':').and_then(|port| port.parse().ok());
        match port {
            Some(port) => Ok(Self((Ipv6Addr::UNSPECIFIED, port).into())),
            None => SocketAddr::from_text(text).map(Self),
        }
    }
}

/// An address or a list of them, with its place.
pub(super) fn listen<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Spanned<Vec<SocketAddr>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Listen(#[serde(deserialize_with = "value::text_or_texts")] Vec<ListenAddress>);

    let listen = Spanned::<Listen>::deserialize(deserializer)?;
    let span = listen.span();
    let addresses = listen.into_inner().0.into_iter();
    Ok(Spanned::new(span, addresses.map(|one| one.0).collect()))
}

/// `[[client]]` as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
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
    max_flows: Option<u32>,
    memory: Option<ByteCount>,
    #[serde(default, deserialize_with = "value::positive_rate")]
    max_rate: Option<BitRate>,
    #[serde(default, deserialize_with = "per_second")]
    max_flows_per_s: Option<u64>,
    #[serde(default, deserialize_with = "per_second")]
    max_packets_per_s: Option<u64>,
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

impl ClientKey {
    /// The public key that is listed, whichever it is.
    #[must_use]
    pub const fn listed(&self) -> PublicKey {
        match self {
            Self::Own(key) | Self::Enrolment { key, .. } => *key,
        }
    }
}

/// `[limits]`: what a client gets that does not set its own.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    memory: Option<ByteCount>,
    total_memory: Option<Spanned<ByteCount>>,
    max_flows: Option<u32>,
    #[serde(default, deserialize_with = "value::positive_rate")]
    max_rate: Option<BitRate>,
    #[serde(default, deserialize_with = "per_second")]
    max_flows_per_s: Option<u64>,
    #[serde(default, deserialize_with = "per_second")]
    max_packets_per_s: Option<u64>,
}

fn per_second<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    value::within::<D, 1, 1_000_000_000>(deserializer)
}

/// The first of these that is set.
fn first_of(limits: [Option<u64>; 2], usual: u32) -> u32 {
    let set = limits.into_iter().flatten().next();
    set.and_then(|limit| u32::try_from(limit).ok())
        .unwrap_or(usual)
}

/// A prefix or a list of them, which may be empty.
fn nat64_prefixes<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Spanned<Vec<Ipv6Net>>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Prefixes(#[serde(deserialize_with = "value::text_or_any_texts")] Vec<Ipv6Net>);

    let prefixes = Spanned::<Prefixes>::deserialize(deserializer)?;
    Ok(Some(Spanned::new(prefixes.span(), prefixes.into_inner().0)))
}

/// Refuses lengths that no translator uses.
fn nat64(source: &Source, prefixes: Spanned<Vec<Ipv6Net>>) -> Result<Nat64, ConfigError> {
    let odd = |prefix: &&Ipv6Net| !NAT64_LENGTHS.contains(&prefix.prefix_len());
    if let Some(prefix) = prefixes.get_ref().iter().find(odd) {
        let fault = format!(
            "`nat64` has {prefix}; a prefix of NAT64 has 32, 40, 48, 56, 64 or 96 bits (RFC 6052)"
        );
        return Err(source.error(&prefixes.span(), fault));
    }
    Ok(Nat64::Prefixes(prefixes.into_inner()))
}

impl Limits {
    /// Ceiling of all tunnels together.
    fn total(&self, source: &Source) -> Result<Option<ByteCount>, ConfigError> {
        value::total_memory(source, self.total_memory.as_ref())
    }
}

/// The clients with their limits filled in; names and keys are seen to be unique.
fn clients(
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
            max_flows_per_s: first_of(
                [entry.max_flows_per_s, limits.max_flows_per_s],
                DEFAULT_FLOWS_PER_S,
            ),
            max_packets_per_s: first_of(
                [entry.max_packets_per_s, limits.max_packets_per_s],
                DEFAULT_PACKETS_PER_S,
            ),
        });
    }
    Ok(clients)
}

/// Pools with room for somebody.
fn pools(source: &Source, packets: Option<Spanned<Packets>>) -> Result<Packets, ConfigError> {
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
            return Err(source.error(&packets.span(), fault));
        }
    }
    Ok(packets.into_inner())
}

/// Addresses and prefixes that some client has.
struct Claims {
    /// Where clients' addresses come from: nobody's as a whole.
    pools: [IpNet; 2],
    claimed: Vec<(IpNet, String)>,
}

impl Claims {
    /// Those of the client `name`; none may be another's too.
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
        for (key, count) in [
            ("addresses", entry.addresses.len()),
            ("routes", entry.routes.len()),
        ] {
            if count > MOST {
                let fault =
                    format!("`{key}` of `{name}` has {count} entries; at most {MOST} are possible");
                return Err(source.error(&entry.name.span(), fault));
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

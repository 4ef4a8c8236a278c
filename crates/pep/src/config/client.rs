//! The client's file: its servers, what it takes in (interception, SOCKS5, HTTP CONNECT) and the link it crosses.
//!
//! At least one front end is configured, else the client would have nothing to do.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bentpipe_config::{Placed, Source};
use bentpipe_proto::congestion::Kind;
use bentpipe_units::{BitRate, ByteCount, TimeSpan};
use ipnet::IpNet;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::value::{self, InterfaceName, OtherTraffic, ServerAddress};
use super::{ConfigError, DEFAULT_DRAIN, DEFAULT_MEMORY, DEFAULT_STATE_DIR};
use crate::engine::identity::{PrivateKey, PublicKey};
use crate::engine::{MAX_ACK_PACKETS, MAX_INITIAL_WINDOW, Profile};

/// How long a flow waits for the tunnel when nothing else is said.
const DEFAULT_OPEN_WAIT: Duration = Duration::from_secs(30);
/// TPROXY's target port when nothing else is said.
const DEFAULT_INTERCEPT_PORT: u16 = 4480;

/// What `bentpipe client` runs on.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The file that this was read from.
    pub file: PathBuf,
    /// Holds the client's private key; seen to be owner-only and well-formed.
    pub private_key_file: PathBuf,
    /// The servers in order of preference; at least one.
    pub servers: Vec<Server>,
    /// Transparent interception.
    pub intercept: Option<Placed<Intercept>>,
    /// The links below the tunnel; at least one.
    pub links: Vec<Link>,
    /// SOCKS5 front end.
    pub socks5: Option<Placed<ProxyFrontEnd>>,
    /// HTTP CONNECT front end.
    pub http: Option<Placed<ProxyFrontEnd>>,
    /// How long a new flow waits for the tunnel before it is refused.
    pub open_wait: Duration,
    /// How long a stop waits for open flows.
    pub drain_timeout: Duration,
    /// Remembers the last good server addresses and the paths to them.
    pub state_dir: PathBuf,
    /// Ceiling of buffered data of the tunnel.
    pub memory: ByteCount,
    /// Whether key exchange may fall back to X25519 without ML-KEM.
    pub allow_classical: bool,
    /// Where `bentpipe status` finds this daemon, instead of the run directory.
    pub status_socket: Option<Placed<PathBuf>>,
    /// Exceptions by destination; the first match counts.
    pub rules: Vec<Rule>,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Where it is.
    #[serde(deserialize_with = "value::text")]
    pub address: ServerAddress,
    /// What it proves to hold.
    pub public_key: PublicKey,
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

/// What is known about the link below the tunnel, and how its directions are to be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Kind of link.
    pub profile: Profile,
    /// What the server is asked to send with.
    pub forward: Direction,
    /// What this client sends with.
    pub return_link: Direction,
}

/// Settings of one direction; `None`: as the sender thinks best. Rates are of the IP layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Direction {
    /// Congestion controller.
    #[serde(default, deserialize_with = "value::some_text")]
    pub controller: Option<Kind>,
    /// Initial congestion window in packets.
    #[serde(
        default,
        deserialize_with = "value::within::<_, 1, { MAX_INITIAL_WINDOW }>"
    )]
    pub initial_window: Option<u64>,
    /// Never faster than this.
    #[serde(default, deserialize_with = "value::positive_rate")]
    pub max_rate: Option<BitRate>,
    /// The rate that the link's operator has been sold: taken for true before it was measured.
    #[serde(default, deserialize_with = "value::positive_rate")]
    pub rate: Option<BitRate>,
    /// Packets per ACK, fixed.
    #[serde(
        default,
        deserialize_with = "value::within::<_, 1, { MAX_ACK_PACKETS as u64 }>"
    )]
    pub ack_packets: Option<u64>,
}

impl Direction {
    /// What is set here, else what is set in `common`.
    fn or(self, common: Self) -> Self {
        Self {
            controller: self.controller.or(common.controller),
            initial_window: self.initial_window.or(common.initial_window),
            max_rate: self.max_rate.or(common.max_rate),
            rate: self.rate.or(common.rate),
            ack_packets: self.ack_packets.or(common.ack_packets),
        }
    }

    /// The fixed ratio of packets to ACKs.
    #[must_use]
    pub fn ack_ratio(&self) -> Option<u8> {
        self.ack_packets.and_then(|packets| packets.try_into().ok())
    }
}

/// `[link]` as written: what stands in it directly holds for both directions that do not say otherwise.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkTable {
    #[serde(default)]
    profile: Profile,
    #[serde(default, deserialize_with = "value::some_text")]
    controller: Option<Kind>,
    #[serde(
        default,
        deserialize_with = "value::within::<_, 1, { MAX_INITIAL_WINDOW }>"
    )]
    initial_window: Option<u64>,
    #[serde(default, deserialize_with = "value::positive_rate")]
    max_rate: Option<BitRate>,
    #[serde(default, deserialize_with = "value::positive_rate")]
    rate: Option<BitRate>,
    #[serde(
        default,
        deserialize_with = "value::within::<_, 1, { MAX_ACK_PACKETS as u64 }>"
    )]
    ack_packets: Option<u64>,
    #[serde(default)]
    forward: Direction,
    #[serde(default, rename = "return")]
    return_link: Direction,
}

impl<'de> Deserialize<'de> for Link {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let table = LinkTable::deserialize(deserializer)?;
        let common = Direction {
            controller: table.controller,
            initial_window: table.initial_window,
            max_rate: table.max_rate,
            rate: table.rate,
            ack_packets: table.ack_packets,
        };
        Ok(Self {
            profile: table.profile,
            forward: table.forward.or(common),
            return_link: table.return_link.or(common),
        })
    }
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

impl ClientConfig {
    /// Ports that are never accepted before the server has connected: SMTP and BGP judge a peer by that.
    pub const NEVER_OPTIMISTIC: [u16; 2] = [25, 179];

    /// Reads and validates `path` and the private key file it names.
    ///
    /// # Errors
    /// [`ConfigError`] with the first fault found.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::from_source(&Source::read(path)?)
    }

    /// Whether a connection to `port` at `address` (`None`: a host name) may be accepted before the server has
    /// connected. Never for SMTP and BGP, whatever the rules say.
    #[must_use]
    pub fn is_optimistic(&self, address: Option<IpAddr>, port: u16) -> bool {
        let rule = self.rules.iter().find(|rule| rule.matches(address, port));
        !Self::NEVER_OPTIMISTIC.contains(&port) && rule.is_none_or(|rule| rule.optimistic)
    }

    pub(super) fn from_source(source: &Source) -> Result<Self, ConfigError> {
        let file: File = source.parse()?;
        file.check_front_ends(source)?;
        let private_key_file = source.resolve(file.private_key_file.get_ref());
        PrivateKey::read(&private_key_file)
            .map_err(|fault| source.error(&file.private_key_file.span(), fault))?;
        Ok(Self {
            file: source.path().to_owned(),
            private_key_file,
            servers: file.server,
            intercept: file.intercept.map(|intercept| source.placed(intercept)),
            links: file.link,
            socks5: file.socks5.map(|front_end| source.placed(front_end)),
            http: file.http.map(|front_end| source.placed(front_end)),
            open_wait: file.open_wait.map_or(DEFAULT_OPEN_WAIT, TimeSpan::get),
            drain_timeout: file.drain_timeout.map_or(DEFAULT_DRAIN, TimeSpan::get),
            state_dir: source.resolve(
                file.state_dir
                    .as_deref()
                    .unwrap_or(Path::new(DEFAULT_STATE_DIR)),
            ),
            memory: file.limits.memory.unwrap_or(DEFAULT_MEMORY),
            allow_classical: file.allow_classical,
            status_socket: file.status_socket.map(|path| source.resolve_placed(path)),
            rules: file.rule,
        })
    }
}

/// The file as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    private_key_file: Spanned<PathBuf>,
    #[serde(deserialize_with = "value::one_or_many")]
    server: Vec<Server>,
    intercept: Option<Spanned<Intercept>>,
    #[serde(default = "default_links", deserialize_with = "value::one_or_many")]
    link: Vec<Link>,
    socks5: Option<Spanned<ProxyFrontEnd>>,
    http: Option<Spanned<ProxyFrontEnd>>,
    open_wait: Option<TimeSpan>,
    drain_timeout: Option<TimeSpan>,
    state_dir: Option<PathBuf>,
    #[serde(default)]
    limits: Limits,
    #[serde(default)]
    allow_classical: bool,
    status_socket: Option<Spanned<PathBuf>>,
    #[serde(default)]
    rule: Vec<Rule>,
}

/// `[limits]`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    memory: Option<ByteCount>,
}

impl File {
    /// Refuses a client that would take in nothing.
    fn check_front_ends(&self, source: &Source) -> Result<(), ConfigError> {
        if self.intercept.is_none() && self.socks5.is_none() && self.http.is_none() {
            return Err(source.error_at_line(
                1,
                "no front end is configured; add `[intercept]`, `[socks5]` or `[http]`",
            ));
        }
        let Some(intercept) = &self.intercept else {
            return Ok(());
        };
        if intercept.get_ref().interfaces.is_empty() && !intercept.get_ref().local {
            let fault = "`[intercept]` takes in nothing; list `interfaces` or set `local = true`";
            return Err(source.error(&intercept.span(), fault));
        }
        if intercept.get_ref().port == 0 {
            return Err(source.error(
                &intercept.span(),
                "`port` of `[intercept]` is 0; choose 1 to 65535",
            ));
        }
        Ok(())
    }
}

fn interfaces<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let names: Vec<InterfaceName> = value::texts(deserializer)?;
    Ok(names.into_iter().map(|name| name.0).collect())
}

fn default_intercept_port() -> u16 {
    DEFAULT_INTERCEPT_PORT
}

fn default_links() -> Vec<Link> {
    vec![Link::default()]
}

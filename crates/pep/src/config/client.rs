//! The client's file: its servers, what it takes in (interception, SOCKS5, HTTP CONNECT) and the link it crosses.
//!
//! At least one front end is configured, else the client would have nothing to do.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bentpipe_proto::congestion::Kind;
use bentpipe_units::{BitRate, ByteCount, TimeSpan};
use ipnet::IpNet;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::error::{Placed, Source};
use super::value::{self, InterfaceName, OtherTraffic, ServerAddress};
use super::{ConfigError, DEFAULT_DRAIN, DEFAULT_MEMORY, DEFAULT_STATE_DIR};
use crate::engine::Profile;
use crate::engine::identity::{PrivateKey, PublicKey};

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

/// What is known about the link below the tunnel.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Kind of link.
    #[serde(default)]
    pub profile: Profile,
    /// What paces the return link.
    #[serde(default, deserialize_with = "value::text")]
    pub controller: Kind,
    /// Initial congestion window in packets; `None`: the profile's.
    pub initial_window: Option<u32>,
    /// Never send faster than this (IP layer); `None`: as fast as the link takes.
    pub max_rate: Option<BitRate>,
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

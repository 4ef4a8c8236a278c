//! The files of daemons with `transport = "plain"`: TCP is split, and nothing is encrypted or authenticated.
//!
//! ```text
//!   distributed: client ─ one TCP connection per flow ─► server ─► destination
//!   integrated:  client, without `[server]` ─────────────────────► destination
//! ```
//!
//! Keys that only a tunnel has are refused by name, because whoever sets a key here expects to be protected by it.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bentpipe_config::{Placed, Source};
use bentpipe_units::TimeSpan;
use ipnet::IpNet;
use serde::Deserialize;
use toml::Spanned;

use super::destinations::Destinations;
use super::front::{FrontEnds, Intercept, ProxyFrontEnd};
use super::metrics::{self, MetricsTable};
use super::monitoring;
use super::rule::Rule;
use super::server::{DEFAULT_CONNECT, DEFAULT_MAX_FLOWS, check_name, listen, one_of_each};
use super::value::{self, CongestionControlName, Transport};
use super::{ConfigError, DEFAULT_DRAIN, Role, parsed};

/// Configuration of `bentpipe client` that splits TCP in clear.
#[derive(Clone, Debug)]
pub struct PlainClient {
    /// The file that this was read from.
    pub file: PathBuf,
    /// The splitter at the other end; `None`: this one connects to the destinations itself.
    pub server: Option<SocketAddr>,
    /// Front ends: traffic that it takes in.
    pub front: FrontEnds,
    /// Congestion control that its TCP sends with, if not that of the machine or the route.
    pub controller: Option<Placed<CongestionControlName>>,
    /// Time that connecting may take.
    pub connect_timeout: Duration,
    /// Time for which a stop waits for open flows.
    pub drain_timeout: Duration,
    /// Socket at which `bentpipe status` finds this daemon, instead of one in the run directory.
    pub status_socket: Option<Placed<PathBuf>>,
    /// The daemon gives up what it does not need once it runs.
    pub sandbox: bool,
    /// TCP address that serves figures for Prometheus.
    pub metrics: Option<Placed<SocketAddr>>,
}

/// Configuration of `bentpipe server` that splits TCP in clear.
#[derive(Clone, Debug)]
pub struct PlainServer {
    /// The file that this was read from.
    pub file: PathBuf,
    /// TCP addresses to serve; at least one, no two the same.
    pub listen: Placed<Vec<SocketAddr>>,
    /// Clients that may use it; at least one, names unique.
    pub clients: Vec<PlainSource>,
    /// Congestion control that its TCP sends with, if not that of the machine or the route.
    pub controller: Option<Placed<CongestionControlName>>,
    /// Time that connecting to a destination may take.
    pub connect_timeout: Duration,
    /// Time for which a stop waits for open flows.
    pub drain_timeout: Duration,
    /// Socket at which `bentpipe status` finds this daemon, instead of one in the run directory.
    pub status_socket: Option<Placed<PathBuf>>,
    /// The daemon gives up what it does not need once it runs.
    pub sandbox: bool,
    /// TCP address that serves figures for Prometheus.
    pub metrics: Option<Placed<SocketAddr>>,
}

/// A client that is known by its address alone.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlainSource {
    /// Name of the source in logs and `status`.
    pub name: Spanned<String>,
    /// Networks that it connects from.
    #[serde(deserialize_with = "value::text_or_texts")]
    pub source: Vec<IpNet>,
    /// Destinations allowed although they are denied by default (loopback, private, …).
    #[serde(default, deserialize_with = "value::texts")]
    pub allow: Vec<Destinations>,
    /// If not empty, the only destinations allowed.
    #[serde(default, deserialize_with = "value::texts")]
    pub only: Vec<Destinations>,
    /// Most flows open at once.
    #[serde(default = "usual_flows", deserialize_with = "value::count")]
    pub max_flows: u32,
}

fn usual_flows() -> u32 {
    DEFAULT_MAX_FLOWS
}

impl PlainClient {
    /// Keys of a tunnel, and in which table they stand.
    const SEALED: [&'static str; 8] = [
        "private_key_file",
        "intercept.routes",
        "server.public_key",
        "link",
        "limits",
        "open_wait",
        "state_dir",
        "allow_classical",
    ];

    pub(super) fn from_source(source: &Source) -> Result<Self, ConfigError> {
        refuse(source, &Self::SEALED)?;
        let file: PlainClientFile = parsed(source, Role::Client)?;
        let front = FrontEnds::new(source, file.intercept, file.socks5, file.http, file.rule)?;
        front.check_any(source, "`[socks5]` or `[http]`")?;
        let proxy = front.socks5.is_some() || front.http.is_some();
        if file.server.is_none() && proxy {
            let fault = "with `transport = \"plain\"` and no `[server]` only `[intercept]` is possible: \
                         a proxy would connect from this machine to whatever it can reach; add `[server]`";
            return Err(source.error_at_line(1, fault));
        }
        Ok(Self {
            file: source.path().to_owned(),
            server: file.server.map(|server| server.address),
            front,
            controller: file.controller.map(|name| source.placed(name)),
            connect_timeout: file.connect_timeout.map_or(DEFAULT_CONNECT, TimeSpan::get),
            drain_timeout: file.drain_timeout.map_or(DEFAULT_DRAIN, TimeSpan::get),
            status_socket: monitoring::socket(source, file.status_socket)?,
            sandbox: file.sandbox,
            metrics: metrics::listen(source, file.metrics),
        })
    }
}

impl PlainServer {
    const SEALED: [&'static str; 7] = [
        "private_key_file",
        "client.0.public_key",
        "client.public_key",
        "limits",
        "shards",
        "state_dir",
        "allow_classical",
    ];

    /// Reads and validates `path`.
    ///
    /// # Errors
    /// [`ConfigError`] with the first fault found; another transport is one.
    pub(crate) fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::from_source(&Source::read(path)?)
    }

    pub(super) fn from_source(source: &Source) -> Result<Self, ConfigError> {
        refuse(source, &Self::SEALED)?;
        let file: PlainServerFile = parsed(source, Role::Server)?;
        one_of_each(source, "listen", &file.listen)?;
        let mut names = HashSet::new();
        for client in &file.client {
            check_name(source, &client.name, &mut names)?;
        }
        Ok(Self {
            file: source.path().to_owned(),
            listen: source.placed(Spanned::new(
                file.listen.span(),
                value::both_families(file.listen.into_inner()),
            )),
            clients: file.client,
            controller: file.controller.map(|name| source.placed(name)),
            connect_timeout: file.connect_timeout.map_or(DEFAULT_CONNECT, TimeSpan::get),
            drain_timeout: file.drain_timeout.map_or(DEFAULT_DRAIN, TimeSpan::get),
            status_socket: monitoring::socket(source, file.status_socket)?,
            sandbox: file.sandbox,
            metrics: metrics::listen(source, file.metrics),
        })
    }
}

/// Refuses keys that have no meaning without a tunnel.
fn refuse(source: &Source, keys: &[&str]) -> Result<(), ConfigError> {
    let table: toml::Table = source.parse()?;
    for key in keys {
        let mut parts = key.split('.');
        let first = parts.next().and_then(|part| table.get(part));
        let found = parts.fold(first, |value, part| match part.parse::<usize>() {
            Ok(index) => value?.as_array()?.get(index),
            Err(_) => value?.as_table()?.get(part),
        });
        if found.is_some() {
            let name = key.rsplit('.').next().unwrap_or(key);
            let fault = format!(
                "`{name}` belongs to a tunnel; `transport = \"plain\"` neither encrypts nor authenticates: remove one of them"
            );
            return Err(source.error_at_key(key, fault));
        }
    }
    Ok(())
}

/// The client's file as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlainClientFile {
    #[serde(rename = "transport")]
    _transport: Transport,
    server: Option<Address>,
    intercept: Option<Spanned<Intercept>>,
    socks5: Option<Spanned<ProxyFrontEnd>>,
    http: Option<Spanned<ProxyFrontEnd>>,
    #[serde(default)]
    rule: Vec<Spanned<Rule>>,
    controller: Option<Spanned<CongestionControlName>>,
    connect_timeout: Option<TimeSpan>,
    drain_timeout: Option<TimeSpan>,
    status_socket: Option<Spanned<PathBuf>>,
    metrics: Option<MetricsTable>,
    #[serde(default = "value::yes")]
    sandbox: bool,
}

/// `[server]`. No name: it would have to be looked up for every connection.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Address {
    #[serde(deserialize_with = "value::text")]
    address: SocketAddr,
}

/// The server's file as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlainServerFile {
    #[serde(rename = "transport")]
    _transport: Transport,
    #[serde(deserialize_with = "listen")]
    listen: Spanned<Vec<SocketAddr>>,
    #[serde(deserialize_with = "value::one_or_many")]
    client: Vec<PlainSource>,
    controller: Option<Spanned<CongestionControlName>>,
    connect_timeout: Option<TimeSpan>,
    drain_timeout: Option<TimeSpan>,
    status_socket: Option<Spanned<PathBuf>>,
    metrics: Option<MetricsTable>,
    #[serde(default = "value::yes")]
    sandbox: bool,
}

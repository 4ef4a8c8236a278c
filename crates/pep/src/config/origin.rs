//! The file of `bentpipe origin`: a web server behind, and who may fetch objects of its pages.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use bentpipe_config::{Placed, Source};
use serde::Deserialize;
use toml::Spanned;

use super::metrics::MetricsTable;
use super::monitoring::Monitoring;
use super::server::listen;
use super::value::{self, FromText};
use super::{ConfigError, Role, parsed};
use crate::keys::PublicKey;

/// Configuration of `bentpipe origin`.
#[derive(Clone, Debug)]
pub struct OriginConfig {
    /// The file that this was read from.
    pub file: PathBuf,
    /// Addresses that it serves.
    pub listen: Placed<Vec<SocketAddr>>,
    /// Web server behind it.
    pub upstream: SocketAddr,
    /// Web server is told whose each connection is, by the PROXY protocol.
    pub proxy_protocol: bool,
    /// Certificate chain of the site, in PEM.
    pub certificate: Placed<PathBuf>,
    /// Private key of the certificate, in PEM.
    pub key: Placed<PathBuf>,
    /// Hubs that may fetch sealed objects.
    pub hubs: Vec<PublicKey>,
    /// Terminals that may have DSSL; `None`: all.
    pub clients: Option<Vec<PublicKey>>,
    /// Places at which it tells about itself.
    pub monitoring: Monitoring,
    /// The origin gives up what it does not need once it runs.
    pub sandbox: bool,
}

/// Address of a web server, as `upstream` has it.
struct WrittenUpstream(SocketAddr);

impl FromStr for WrittenUpstream {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix("http://").unwrap_or_default();
        let address = rest.trim_end_matches('/').parse();
        address.map(Self).map_err(|_| {
            let shown = text.escape_debug();
            format!("bad address `{shown}`; expected one such as \"http://127.0.0.1:8080\"")
        })
    }
}

impl FromText for WrittenUpstream {
    const EXPECTED: &'static str = "an address such as \"http://127.0.0.1:8080\"";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OriginFile {
    origin: OriginTable,
    status_socket: Option<Spanned<PathBuf>>,
    metrics: Option<MetricsTable>,
    #[serde(default = "value::yes")]
    sandbox: bool,
}

/// `[origin]` as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OriginTable {
    #[serde(deserialize_with = "listen")]
    listen: Spanned<Vec<SocketAddr>>,
    #[serde(deserialize_with = "value::text")]
    upstream: WrittenUpstream,
    #[serde(default)]
    proxy_protocol: bool,
    certificate: Spanned<PathBuf>,
    key: Spanned<PathBuf>,
    hubs: Vec<PublicKey>,
    clients: Option<Vec<PublicKey>>,
}

impl OriginConfig {
    /// Reads and validates `path`.
    ///
    /// # Errors
    /// [`ConfigError`] with the first fault found.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::from_source(&Source::read(path)?)
    }

    pub(super) fn from_source(source: &Source) -> Result<Self, ConfigError> {
        let file: OriginFile = parsed(source, Role::Origin)?;
        let table = file.origin;
        let listen = Spanned::new(
            table.listen.span(),
            value::both_families(table.listen.into_inner()),
        );
        Ok(Self {
            file: source.path().to_owned(),
            listen: source.placed(listen),
            upstream: table.upstream.0,
            proxy_protocol: table.proxy_protocol,
            certificate: source.resolve_placed(table.certificate),
            key: source.resolve_placed(table.key),
            hubs: table.hubs,
            clients: table.clients,
            monitoring: Monitoring::checked(source, file.status_socket, file.metrics, None)?,
            sandbox: file.sandbox,
        })
    }
}

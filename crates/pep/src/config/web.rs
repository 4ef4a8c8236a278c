//! `[web]`: pages whose objects cross the link before the browser asks for them.

use std::path::PathBuf;

use bentpipe_config::{Placed, Source};
use serde::Deserialize;
use toml::Spanned;

use super::ConfigError;
use super::trusted_name::{MAX_NAMES, TrustedName};
use super::value::{self, FromText};

/// Pages over TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WebTls {
    /// Flows of the tunnel, byte for byte.
    #[default]
    Off,
    /// Read by client and server, for hosts that the client lists.
    Trusted,
}

/// `[web]` of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientWeb {
    /// Objects of pages are fetched ahead.
    pub prefetch: bool,
    /// Hosts whose pages over TLS are answered by a local CA; empty: none.
    pub names: Vec<TrustedName>,
}

/// `[web]` of a server.
#[derive(Clone, Debug, Default)]
pub struct ServerWeb {
    /// Objects of pages are fetched ahead.
    pub prefetch: bool,
    /// Pages over TLS, for clients that list hosts; `None`: not here.
    pub tls: Option<WebRoots>,
    /// The server is a hub of DSSL, for clients that list origins; `None`: it is none.
    pub hub: Option<WebRoots>,
}

/// Certificate authorities whose web servers are believed.
#[derive(Clone, Debug, Default)]
pub struct WebRoots {
    /// File of more certificates than the system trusts, in PEM.
    pub file: Option<Placed<PathBuf>>,
}

impl ServerWeb {
    /// True if `other` asks for something else, wherever it stands in the file.
    pub(super) fn differs(&self, other: &Self) -> bool {
        let told = |web: &Self| {
            let file = |roots: &Option<WebRoots>| {
                let file = |roots: &WebRoots| roots.file.as_ref().map(|file| file.to_path_buf());
                roots.as_ref().map(file)
            };
            (web.prefetch, file(&web.tls), file(&web.hub))
        };
        told(self) != told(other)
    }
}

/// A client's `[web]` as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientWebTable {
    #[serde(default)]
    prefetch: bool,
    #[serde(default)]
    tls: WebTls,
    #[serde(default, deserialize_with = "value::texts")]
    names: Vec<TrustedName>,
}

/// A server's `[web]` as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerWebTable {
    #[serde(default)]
    prefetch: bool,
    #[serde(default)]
    tls: WebTls,
    #[serde(default)]
    hub: bool,
    roots: Option<Spanned<PathBuf>>,
}

impl FromText for TrustedName {
    const EXPECTED: &'static str = "a host name, such as \"intranet.example.com\"";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse()
    }
}

/// Fault of `tls` without what it builds on.
const WITHOUT_PREFETCH: &str = "`tls = \"trusted\"` of `[web]` needs `prefetch = true`: objects of these pages are fetched ahead";

/// Checks a client's `[web]`.
pub(super) fn client(
    source: &Source,
    written: Option<Spanned<ClientWebTable>>,
) -> Result<ClientWeb, ConfigError> {
    let Some(table) = written else {
        return Ok(ClientWeb::default());
    };
    let table = table.into_inner();
    let mut names = table.names;
    names.sort_unstable();
    let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
    let fault = match table.tls {
        WebTls::Off if !names.is_empty() => Some(
            "`names` of `[web]` needs `tls = \"trusted\"`, and the server's `[web]` as well".into(),
        ),
        WebTls::Off => None,
        WebTls::Trusted if !table.prefetch => Some(WITHOUT_PREFETCH.into()),
        WebTls::Trusted if names.is_empty() => Some(
            "`tls = \"trusted\"` of `[web]` needs `names`, such as `names = [\"intranet.example.com\"]`: no other host is touched"
                .into(),
        ),
        WebTls::Trusted if names.len() > MAX_NAMES => Some(format!(
            "`names` of `[web]` lists {} hosts; expected {MAX_NAMES} at most",
            names.len()
        )),
        WebTls::Trusted => twice.map(|pair| format!("`names` lists {} twice; remove one", pair[0])),
    };
    let key = match names.is_empty() || (table.tls == WebTls::Trusted && !table.prefetch) {
        true => "web.tls",
        false => "web.names",
    };
    match fault {
        Some(fault) => Err(source.error_at_key(key, fault)),
        None => Ok(ClientWeb {
            prefetch: table.prefetch,
            names,
        }),
    }
}

/// Checks a server's `[web]`.
pub(super) fn server(
    source: &Source,
    written: Option<Spanned<ServerWebTable>>,
) -> Result<ServerWeb, ConfigError> {
    let Some(table) = written else {
        return Ok(ServerWeb::default());
    };
    let table = table.into_inner();
    let trusted = table.tls == WebTls::Trusted;
    if let Some(roots) = table.roots.as_ref().filter(|_| !trusted && !table.hub) {
        let fault = "`roots` of `[web]` needs `tls = \"trusted\"` or `hub = true`";
        return Err(source.error(&roots.span(), fault));
    }
    if trusted && !table.prefetch {
        return Err(source.error_at_key("web.tls", WITHOUT_PREFETCH));
    }
    let file = table.roots.map(|roots| source.resolve_placed(roots));
    let roots = WebRoots { file };
    Ok(ServerWeb {
        prefetch: table.prefetch,
        tls: trusted.then(|| roots.clone()),
        hub: table.hub.then_some(roots),
    })
}

//! `listen`, `shards` and `public_address`: where the server is reached, and by how many threads.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use bentpipe_config::{Placed, Source};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::LesListening;
use crate::config::ConfigError;
use crate::config::value::{self, FromText, ServerAddress};

/// Addresses of a server, and the threads that serve them.
#[derive(Clone, Debug)]
pub struct Listening {
    /// UDP addresses to serve; at least one, no two the same.
    pub addresses: Placed<Vec<SocketAddr>>,
    /// TCP addresses that take TLS connections in place of UDP.
    pub tls: Option<TlsListening>,
    /// UDP addresses for packets of LES, if it takes some.
    pub les: Option<LesListening>,
    /// Address at which clients reach the server, for the codes by which they join.
    pub public_address: Option<ServerAddress>,
    /// Threads, 1 to 256; `None`: one per core.
    pub shards: Option<u16>,
}

impl Listening {
    /// File of the key of the operator's certificate, if there is one.
    pub(crate) fn certified_key(&self) -> Option<&Path> {
        let (_, key) = self.tls.as_ref()?.certificate.as_ref()?;
        Some(key.as_path())
    }
}

/// Addresses that take TLS connections, and what strangers see there.
#[derive(Clone, Debug)]
pub struct TlsListening {
    /// TCP addresses to serve; at least one, no two the same.
    pub addresses: Placed<Vec<SocketAddr>>,
    /// Files of a certificate chain and of its key, in PEM; `None`: the server makes a certificate when it starts.
    pub certificate: Option<(Placed<PathBuf>, Placed<PathBuf>)>,
    /// Web server that gets the connections which are not for bentpipe.
    pub fallback: Option<SocketAddr>,
}

/// `[tls]` as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TlsTable {
    certificate: Option<Spanned<PathBuf>>,
    key: Option<Spanned<PathBuf>>,
    #[serde(default, deserialize_with = "value::some_text")]
    fallback: Option<SocketAddr>,
}

/// `listen_tls` as written.
pub(super) struct ListenTls(Spanned<Vec<SocketAddr>>);

impl<'de> Deserialize<'de> for ListenTls {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        listen(deserializer).map(Self)
    }
}

/// Checks `listen_tls` and `[tls]` together.
pub(super) fn tls(
    source: &Source,
    listens: Option<ListenTls>,
    table: Option<Spanned<TlsTable>>,
) -> Result<Option<TlsListening>, ConfigError> {
    let Some(ListenTls(addresses)) = listens else {
        return match table {
            Some(table) => Err(source.error(
                &table.span(),
                "`[tls]` needs `listen_tls`, such as `listen_tls = \":443\"`",
            )),
            None => Ok(None),
        };
    };
    one_of_each(source, "listen_tls", &addresses)?;
    let span = addresses.span();
    let addresses = Spanned::new(span, value::both_families(addresses.into_inner()));
    let (certificate, fallback) = match table {
        Some(table) => {
            let span = table.span();
            let table = table.into_inner();
            (
                certificate(source, span, table.certificate, table.key)?,
                table.fallback,
            )
        }
        None => (None, None),
    };
    Ok(Some(TlsListening {
        addresses: source.placed(addresses),
        certificate,
        fallback,
    }))
}

type Files = (Placed<PathBuf>, Placed<PathBuf>);

fn certificate(
    source: &Source,
    table: std::ops::Range<usize>,
    certificate: Option<Spanned<PathBuf>>,
    key: Option<Spanned<PathBuf>>,
) -> Result<Option<Files>, ConfigError> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some((
            source.resolve_placed(certificate),
            source.resolve_placed(key),
        ))),
        (None, None) => Ok(None),
        _ => Err(source.error(
            &table,
            "`certificate` and `key` of `[tls]` belong together: give both, or neither for a certificate made at the start",
        )),
    }
}

/// Refuses an address that is listed twice in the list called `key`.
pub(in crate::config) fn one_of_each(
    source: &Source,
    key: &str,
    listen: &Spanned<Vec<SocketAddr>>,
) -> Result<(), ConfigError> {
    let mut sorted = listen.get_ref().clone();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(source.error(
            &listen.span(),
            format!("`{key}` names {} twice; remove one", pair[0]),
        )),
        None => Ok(()),
    }
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
pub(in crate::config) fn listen<'de, D: Deserializer<'de>>(
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

/// Refuses numbers of threads that no server can have.
pub(super) fn shards(source: &Source, shards: &Spanned<u16>) -> Result<u16, ConfigError> {
    match shards.get_ref() {
        1..=256 => Ok(*shards.get_ref()),
        other => Err(source.error(
            &shards.span(),
            format!("`shards` is {other}; expected 1 to 256"),
        )),
    }
}

//! `listen`, `shards` and `public_address`: where the server is reached, and by how many threads.

use std::net::{Ipv6Addr, SocketAddr};

use bentpipe_config::{Placed, Source};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use crate::config::ConfigError;
use crate::config::value::{self, FromText, ServerAddress};

/// Addresses of a server, and the threads that serve them.
#[derive(Clone, Debug)]
pub struct Listening {
    /// UDP addresses to serve; at least one, no two the same.
    pub addresses: Placed<Vec<SocketAddr>>,
    /// Address at which clients reach the server, for the codes by which they join.
    pub public_address: Option<ServerAddress>,
    /// Threads, 1 to 256; `None`: one per core.
    pub shards: Option<u16>,
}

/// Refuses an address that is listed twice.
pub(in crate::config) fn one_of_each(
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

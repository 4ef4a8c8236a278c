//! `[sle]`: flows that are sealed beside the tunnel, each in a TCP connection of its own.

use std::net::SocketAddr;
use std::ops::Range;

use bentpipe_config::{Placed, Source};
use bentpipe_proto::tunnel::{Destination, Host};
use serde::Deserialize;
use toml::Spanned;

use super::ConfigError;
use super::destinations::{Destinations, Service};
use super::server::{listen, one_of_each};
use super::value;

/// Flows that a client seals beside the tunnel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientSle {
    /// Way in which outer connections are addressed.
    #[serde(default, rename = "mode")]
    _mode: Mode,
    /// Destinations whose flows are sealed; `None`: all.
    #[serde(default, deserialize_with = "some_destinations")]
    destinations: Option<Vec<Destinations>>,
}

/// Way in which outer connections are addressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    /// To the server's port; the flow's destination is sealed.
    #[default]
    Addressed,
}

impl ClientSle {
    /// True if a flow to `destination` is to be sealed. A name is, where all destinations are.
    #[must_use]
    pub fn takes(&self, destination: &Destination) -> bool {
        let Some(listed) = &self.destinations else {
            return true;
        };
        match destination.host {
            Host::Ip(address) => listed
                .iter()
                .any(|one| one.cover(address, Service::Port(destination.port))),
            Host::Name(_) => false,
        }
    }
}

fn some_destinations<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<Destinations>>, D::Error> {
    value::texts(deserializer).map(Some)
}

/// Checks a client's `[sle]`; `paced` says that the link has a `max_rate`, which nobody keeps beside the tunnel.
pub(super) fn client(
    source: &Source,
    written: Option<Spanned<ClientSle>>,
    paced: bool,
) -> Result<Option<ClientSle>, ConfigError> {
    match written {
        Some(table) if paced => Err(source.error(
            &table.span(),
            "`[sle]` cannot keep `max_rate` of `[link]`, for its flows are not in the tunnel; remove one of them",
        )),
        written => Ok(written.map(Spanned::into_inner)),
    }
}

/// Addresses at which a server takes in outer connections.
#[derive(Clone, Debug)]
pub struct ServerSle {
    /// TCP addresses to serve; at least one, all of one port.
    pub addresses: Placed<Vec<SocketAddr>>,
}

impl ServerSle {
    /// TCP port that clients are told.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.addresses.first().map_or(0, SocketAddr::port)
    }
}

/// A server's `[sle]` as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    #[serde(deserialize_with = "listen")]
    listen: Spanned<Vec<SocketAddr>>,
}

/// Checks a server's `[sle]`.
pub(super) fn server(
    source: &Source,
    written: Option<Table>,
) -> Result<Option<ServerSle>, ConfigError> {
    let Some(Table { listen }) = written else {
        return Ok(None);
    };
    one_of_each(source, "listen", &listen)?;
    let span: Range<usize> = listen.span();
    let ports = || listen.get_ref().iter().map(SocketAddr::port);
    let first = ports().next().unwrap_or_default();
    if first == 0 || ports().any(|port| port != first) {
        return Err(source.error(
            &span,
            "`listen` of `[sle]` needs one port at all of its addresses, for clients are told one",
        ));
    }
    let addresses = Spanned::new(span, value::both_families(listen.into_inner()));
    Ok(Some(ServerSle {
        addresses: source.placed(addresses),
    }))
}

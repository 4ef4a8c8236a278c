//! A server's `[sle]`: where outer connections of flows come that clients seal beside their tunnels.

use std::net::SocketAddr;
use std::ops::Range;

use bentpipe_config::{Placed, Source};
use serde::Deserialize;
use toml::Spanned;

use super::listening::{listen, one_of_each};
use crate::config::ConfigError;
use crate::config::value;

/// Addresses at which a server takes in outer connections.
#[derive(Clone, Debug)]
pub struct SleListening {
    /// TCP addresses to serve; at least one, all of one port.
    pub addresses: Placed<Vec<SocketAddr>>,
}

impl SleListening {
    /// TCP port that clients are told.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.addresses.first().map_or(0, SocketAddr::port)
    }
}

/// A server's `[sle]` as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SleTable {
    #[serde(deserialize_with = "listen")]
    listen: Spanned<Vec<SocketAddr>>,
}

/// Checks a server's `[sle]`.
pub(super) fn sle(
    source: &Source,
    written: Option<SleTable>,
) -> Result<Option<SleListening>, ConfigError> {
    let Some(SleTable { listen }) = written else {
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
    Ok(Some(SleListening {
        addresses: source.placed(addresses),
    }))
}

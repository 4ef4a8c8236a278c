//! `[responder]`: what the clients' `bentpipe measure` transfers with.

use std::net::SocketAddr;

use bentpipe_config::{Placed, Source};
use bentpipe_units::ByteCount;
use serde::Deserialize;
use toml::Spanned;

use super::value;

/// Name by which clients reach the responder through the tunnel, on port 80.
pub const RESPONDER_NAME: &str = "responder.bentpipe.internal";

/// Bytes of one transfer when nothing else is said.
const DEFAULT_MAX_REQUEST: ByteCount = ByteCount::new(64 << 20);
/// Connections at once when nothing else is said: what two clients have open who load a page.
const DEFAULT_MAX_CONNECTIONS: u16 = 16;
/// Connections that may begin in a second when nothing else is said.
const DEFAULT_MAX_STARTS_PER_S: u16 = 20;

/// The server's responder.
#[derive(Clone, Debug)]
pub struct Responder {
    /// TCP address of the half that goes past the tunnel.
    pub listen: Placed<SocketAddr>,
    /// Bounds of what its clients may ask of it.
    pub bounds: Bounds,
}

/// Bounds of the responder. Each of the last two holds for connections through the tunnel and for those past it, by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Largest transfer, in either direction.
    pub max_request: ByteCount,
    /// Connections at once.
    pub max_connections: u16,
    /// Connections that may begin in a second; five seconds' worth may begin at once.
    pub max_starts_per_s: u16,
}

/// `[responder]` as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    listen: Spanned<value::TextAddress>,
    max_request: Option<ByteCount>,
    #[serde(default, deserialize_with = "value::within::<_, 1, 1024>")]
    max_connections: Option<u64>,
    #[serde(default, deserialize_with = "value::within::<_, 1, 1000>")]
    max_starts_per_s: Option<u64>,
}

impl Table {
    pub(super) fn placed(self, source: &Source) -> Responder {
        let span = self.listen.span();
        let address = self.listen.into_inner().0;
        let narrow = |value: Option<u64>, default| {
            value.map_or(default, |value| u16::try_from(value).unwrap_or(default))
        };
        Responder {
            listen: source.placed(Spanned::new(span, address)),
            bounds: Bounds {
                max_request: self.max_request.unwrap_or(DEFAULT_MAX_REQUEST),
                max_connections: narrow(self.max_connections, DEFAULT_MAX_CONNECTIONS),
                max_starts_per_s: narrow(self.max_starts_per_s, DEFAULT_MAX_STARTS_PER_S),
            },
        }
    }
}

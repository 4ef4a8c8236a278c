//! A client's `[sle]`: flows that are sealed beside the tunnel, each in a TCP connection of its own.

use std::time::Duration;

use bentpipe_config::Source;
use bentpipe_proto::tunnel::{Destination, Host};
use serde::Deserialize;
use toml::Spanned;

use super::ConfigError;
use super::destinations::{Destinations, Service};
use super::value;

/// Flows that a client seals beside the tunnel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientSle {
    /// Way in which outer connections are addressed.
    #[serde(default)]
    mode: Mode,
    /// Destinations whose flows are sealed; `None`: all.
    #[serde(default, deserialize_with = "some_destinations")]
    destinations: Option<Vec<Destinations>>,
    /// No key of the file: the protocol names it.
    #[serde(skip)]
    epoch_span: EpochSpan,
}

/// Time from one epoch to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EpochSpan(Duration);

impl Default for EpochSpan {
    /// Span of `PROTOCOL.md` §18.1, 1 h.
    fn default() -> Self {
        Self(Duration::from_secs(3600))
    }
}

/// Way in which outer connections are addressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    /// To the server's port; the flow's destination is sealed.
    #[default]
    Addressed,
    /// To the flow's own destination, where the server says that it takes them in on the way.
    Transparent,
}

impl ClientSle {
    /// True if outer connections go to the flows' own destinations, where they can.
    #[must_use]
    pub fn is_transparent(&self) -> bool {
        self.mode == Mode::Transparent
    }

    /// Time from one epoch to the next, 1 h.
    #[must_use]
    pub(crate) fn epoch_span(&self) -> Duration {
        self.epoch_span.0
    }

    /// Has epochs follow each other in this time, for tests that live through some.
    #[cfg(test)]
    pub(crate) fn set_epoch_span(&mut self, span: Duration) {
        self.epoch_span = EpochSpan(span);
    }

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

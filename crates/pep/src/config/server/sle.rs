//! A server's `[sle]`: where outer connections of flows come that clients seal beside their tunnels.

use std::net::SocketAddr;
use std::ops::Range;

use bentpipe_config::{Placed, Source};
use bentpipe_proto::tunnel::MAX_SLE_PREFIXES;
use ipnet::IpNet;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::listening::{listen, one_of_each};
use crate::config::ConfigError;
use crate::config::front::interfaces;
use crate::config::value;

/// Places at which a server takes in outer connections; at least one of the two.
#[derive(Clone, Debug)]
pub struct SleListening {
    /// TCP addresses to serve; at least one, all of one port.
    pub addresses: Option<Placed<Vec<SocketAddr>>>,
    /// Connections to others that are taken in on their way.
    pub intake: Option<Placed<SleIntake>>,
}

/// Connections that a server takes in on their way through its machine, by the kernel's rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SleIntake {
    /// Interfaces by which they come, by name.
    pub interfaces: Vec<String>,
    /// Prefixes that they go to; at most 128.
    pub prefixes: Vec<IpNet>,
    /// Prefixes that they come from: clients' own addresses.
    pub sources: Vec<IpNet>,
}

impl SleListening {
    /// TCP port that clients are told; 0: none.
    #[must_use]
    pub fn port(&self) -> u16 {
        let first = self.addresses.as_ref().and_then(|all| all.first());
        first.map_or(0, SocketAddr::port)
    }

    /// Addresses to serve; none where connections are taken in on their way alone.
    #[must_use]
    pub fn listens(&self) -> &[SocketAddr] {
        self.addresses.as_ref().map_or(&[], |all| all.as_slice())
    }
}

/// A server's `[sle]` as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SleTable {
    #[serde(default, deserialize_with = "some_listen")]
    listen: Option<Spanned<Vec<SocketAddr>>>,
    #[serde(default, deserialize_with = "interfaces")]
    interfaces: Vec<String>,
    #[serde(default, deserialize_with = "value::texts")]
    prefixes: Vec<IpNet>,
    #[serde(default, deserialize_with = "value::texts")]
    sources: Vec<IpNet>,
}

fn some_listen<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Spanned<Vec<SocketAddr>>>, D::Error> {
    listen(deserializer).map(Some)
}

/// Checks a server's `[sle]`.
pub(super) fn sle(
    source: &Source,
    written: Option<Spanned<SleTable>>,
) -> Result<Option<SleListening>, ConfigError> {
    let Some(table) = written else {
        return Ok(None);
    };
    let span = table.span();
    let SleTable {
        listen,
        interfaces,
        prefixes,
        sources,
    } = table.into_inner();
    let intake = SleIntake {
        interfaces,
        prefixes,
        sources,
    };
    let intake = checked(source, &span, intake)?;
    if listen.is_none() && intake.is_none() {
        let fault =
            "`[sle]` takes in nothing; give it `listen`, or `interfaces`, `prefixes` and `sources`";
        return Err(source.error(&span, fault));
    }
    let addresses = listen.map(|listen| addresses(source, listen)).transpose()?;
    Ok(Some(SleListening { addresses, intake }))
}

fn addresses(
    source: &Source,
    listen: Spanned<Vec<SocketAddr>>,
) -> Result<Placed<Vec<SocketAddr>>, ConfigError> {
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
    Ok(source.placed(addresses))
}

/// The three keys belong together: what is not named passes untouched.
fn checked(
    source: &Source,
    span: &Range<usize>,
    intake: SleIntake,
) -> Result<Option<Placed<SleIntake>>, ConfigError> {
    let empty = [
        ("interfaces", intake.interfaces.is_empty()),
        ("prefixes", intake.prefixes.is_empty()),
        ("sources", intake.sources.is_empty()),
    ];
    if empty.iter().all(|(_, empty)| *empty) {
        return Ok(None);
    }
    if let Some((key, _)) = empty.iter().find(|(_, empty)| *empty) {
        return Err(source.error(
            span,
            format!(
                "`[sle]` has no `{key}`; connections are taken in by `interfaces`, to `prefixes`, and from `sources`, the addresses of clients"
            ),
        ));
    }
    if intake.prefixes.len() > MAX_SLE_PREFIXES {
        let fault = format!(
            "`prefixes` of `[sle]` are {}, and clients are told {MAX_SLE_PREFIXES}; join some",
            intake.prefixes.len()
        );
        return Err(source.error_at_key("sle.prefixes", fault));
    }
    Ok(Some(source.placed(Spanned::new(span.clone(), intake))))
}

//! A server's `[les]`: where packets come that clients seal beside their tunnels.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use bentpipe_config::{Placed, Source};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::Packets;
use super::listening::{listen, one_of_each};
use crate::config::ConfigError;
use crate::config::identity::check_peer_key;
use crate::config::laboratory::LaboratoryTable;
use crate::config::les::LES_PORT;
use crate::config::value;
use crate::keys::{PrivateKey, PublicKey};

/// Keys of PEPs that a server may accept.
const MAX_KEYS: usize = 256;

/// Addresses at which a server takes packets of LES, and who else may read their headers.
#[derive(Clone, Debug)]
pub struct LesListening {
    /// UDP addresses to serve; at least one, no two the same.
    pub addresses: Placed<Vec<SocketAddr>>,
    /// Keys of the PEPs to which clients may hand K2.
    pub peps: Vec<PublicKey>,
    /// File of the pre-shared key, of a laboratory's server alone.
    pub psk_file: Option<PathBuf>,
}

/// A server's `[les]` as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LesTable {
    #[serde(default, deserialize_with = "some_listen")]
    listen: Option<Spanned<Vec<SocketAddr>>>,
    #[serde(default)]
    peps: Vec<Spanned<PublicKey>>,
    laboratory: Option<LaboratoryTable>,
}

fn some_listen<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Spanned<Vec<SocketAddr>>>, D::Error> {
    listen(deserializer).map(Some)
}

/// Checks a server's `[les]`, whose packets need the device of `packets`; `own` is the server's key, and `clients` the number
/// that it lists.
pub(super) fn les(
    source: &Source,
    written: Option<Spanned<LesTable>>,
    packets: &Packets,
    (own, clients): (&PrivateKey, usize),
) -> Result<Option<LesListening>, ConfigError> {
    let Some(table) = written else {
        return Ok(None);
    };
    let span = table.span();
    if !packets.enabled {
        return Err(source.error(
            &span,
            "`[les]` hands packets to the device of `[packets]`; remove `enabled = false` there",
        ));
    }
    let everywhere = || vec![(Ipv6Addr::UNSPECIFIED, LES_PORT).into()];
    let LesTable {
        listen,
        peps,
        laboratory,
    } = table.into_inner();
    if laboratory.is_some() && clients != 1 {
        let fault = format!(
            "`[les.laboratory]` serves one client, for its key does not tell who comes, and {clients} are listed; remove it: it is for laboratories alone"
        );
        return Err(source.error(&span, fault));
    }
    let listen = listen.unwrap_or_else(|| Spanned::new(span, everywhere()));
    one_of_each(source, "listen", &listen)?;
    let span = listen.span();
    if listen.get_ref().iter().any(|address| address.port() == 0) {
        let fault = "`listen` of `[les]` needs a port, which clients' `port` names";
        return Err(source.error(&span, fault));
    }
    let addresses = Spanned::new(span, value::both_families(listen.into_inner()));
    Ok(Some(LesListening {
        addresses: source.placed(addresses),
        peps: accepted(source, &peps, own)?,
        psk_file: laboratory
            .map(|laboratory| laboratory.checked(source))
            .transpose()?,
    }))
}

/// Checks the keys of PEPs: none is there twice, or this server's own.
fn accepted(
    source: &Source,
    peps: &[Spanned<PublicKey>],
    own: &PrivateKey,
) -> Result<Vec<PublicKey>, ConfigError> {
    let mut keys: Vec<PublicKey> = Vec::new();
    for pep in peps {
        let (key, span) = (*pep.get_ref(), pep.span());
        check_peer_key(source, own, &key, &span)?;
        if keys.contains(&key) {
            return Err(source.error(
                &span,
                format!("`peps` of `[les]` names {key} twice; remove one"),
            ));
        }
        if keys.len() == MAX_KEYS {
            let fault = format!("`peps` of `[les]` has more than {MAX_KEYS} keys; remove some");
            return Err(source.error(&span, fault));
        }
        keys.push(key);
    }
    Ok(keys)
}

//! A client's `[les]`: TCP that is sealed packet by packet, beside the tunnel.

use std::ops::Range;

use bentpipe_config::Source;
use bentpipe_sealed::les::sa::{Handshake, MAX_SELECTORS};
use ipnet::IpNet;
use serde::Deserialize;
use toml::Spanned;

use super::ConfigError;
use super::front::Intercept;
use super::value::{self, OnFailure};

/// UDP port of LES (`PROTOCOL.md` §20).
pub(super) const LES_PORT: u16 = 4501;

/// TCP of a client that goes by LES.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientLes {
    /// Prefixes whose TCP goes by LES; from one to [`MAX_SELECTORS`].
    pub destinations: Vec<IpNet>,
    /// Messages by which associations begin.
    pub handshake: Handshake,
    /// UDP port of the server.
    pub port: u16,
}

/// `[les]` of a client as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientLesTable {
    #[serde(deserialize_with = "value::texts")]
    destinations: Vec<IpNet>,
    #[serde(default)]
    flow: LesFlow,
    #[serde(default = "default_port")]
    port: u16,
}

/// Messages by which associations begin.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LesFlow {
    /// The client seals behind its first message.
    #[default]
    Short,
    /// The paper's three messages.
    Paper,
}

/// Checks a client's `[les]`; `paced` says that the link has a `max_rate`, which nobody keeps beside the tunnel.
pub(super) fn client(
    source: &Source,
    written: Option<Spanned<ClientLesTable>>,
    intercept: Option<&Intercept>,
    paced: bool,
) -> Result<Option<ClientLes>, ConfigError> {
    let Some(table) = written else {
        return Ok(None);
    };
    let span: Range<usize> = table.span();
    let table = table.into_inner();
    let count = table.destinations.len();
    let fault = match intercept {
        None => "`[les]` seals packets of the client's device, which comes with interception; add `[intercept]`".into(),
        Some(intercept) if intercept.on_failure == OnFailure::Direct => {
            "`[les]` lets nothing leave in clear; remove `on_failure = \"direct\"` of `[intercept]`".into()
        }
        Some(_) if count == 0 => {
            "`destinations` of `[les]` is empty; name the prefixes whose TCP goes by LES, or remove the table".into()
        }
        Some(_) if count > MAX_SELECTORS => format!(
            "`destinations` of `[les]` has {count} entries; at most {MAX_SELECTORS} are possible"
        ),
        Some(_) if table.port == 0 => {
            format!("`port` of `[les]` is 0; name the server's, usually {LES_PORT}")
        }
        Some(_) if paced => {
            "`[les]` cannot keep `max_rate` of `[link]`, for its packets are not in the tunnel; remove one of them".into()
        }
        Some(_) => {
            let destinations = table.destinations.iter().map(IpNet::trunc);
            return Ok(Some(ClientLes {
                destinations: destinations.collect(),
                handshake: match table.flow {
                    LesFlow::Short => Handshake::Short,
                    LesFlow::Paper => Handshake::Paper,
                },
                port: table.port,
            }));
        }
    };
    Err(source.error(&span, fault))
}

const fn default_port() -> u16 {
    LES_PORT
}

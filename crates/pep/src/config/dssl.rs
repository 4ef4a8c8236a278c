//! A client's `[dssl]`: origins whose pages' objects come ahead and stay sealed on the way.

use bentpipe_config::Source;
use bentpipe_sealed::dssl::Mode;
use serde::Deserialize;
use std::path::PathBuf;
use toml::Spanned;

use super::ConfigError;
use super::trusted_name::{MAX_NAMES, TrustedName};
use super::value;
use super::web::WebRoots;

/// `[dssl]` of a client.
#[derive(Clone, Debug, Default)]
pub struct ClientDssl {
    /// Hosts that may be origins; empty: none.
    pub origins: Vec<TrustedName>,
    /// Order of the handshakes.
    pub mode: Mode,
    /// Authorities that may have signed an origin's certificate.
    pub roots: WebRoots,
}

/// `mode` as written.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum WrittenMode {
    Full,
    TwoPhase,
    #[default]
    Quick,
}

/// A client's `[dssl]` as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientDsslTable {
    #[serde(deserialize_with = "value::texts")]
    origins: Vec<TrustedName>,
    #[serde(default)]
    mode: WrittenMode,
    roots: Option<Spanned<PathBuf>>,
}

/// Checks a client's `[dssl]`; `trusted` are the hosts whose pages its server may read.
pub(super) fn client(
    source: &Source,
    written: Option<Spanned<ClientDsslTable>>,
    trusted: &[TrustedName],
) -> Result<ClientDssl, ConfigError> {
    let Some(table) = written else {
        return Ok(ClientDssl::default());
    };
    let table = table.into_inner();
    let mut origins = table.origins;
    origins.sort_unstable();
    let twice = origins.windows(2).find(|pair| pair[0] == pair[1]);
    let read = origins.iter().find(|origin| trusted.contains(origin));
    let fault = if origins.len() > MAX_NAMES {
        let count = origins.len();
        Some(format!(
            "`origins` lists {count} hosts; expected {MAX_NAMES} at most"
        ))
    } else if let Some(pair) = twice {
        Some(format!("`origins` lists {} twice; remove one", pair[0]))
    } else {
        read.map(|name| format!("{name} is in `names` of `[web]`, whose pages the server reads; remove it there or in `origins`"))
    };
    match fault {
        Some(fault) => Err(source.error_at_key("dssl.origins", fault)),
        None => Ok(ClientDssl {
            origins,
            mode: match table.mode {
                WrittenMode::Full => Mode::Full,
                WrittenMode::TwoPhase => Mode::TwoPhase,
                WrittenMode::Quick => Mode::Quick,
            },
            roots: WebRoots {
                file: table.roots.map(|roots| source.resolve_placed(roots)),
            },
        }),
    }
}

//! `[web]`: pages whose objects cross the link before the browser asks for them.

use serde::Deserialize;

/// Pages that are fetched ahead; the same table at client and server, which both have to want it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebTable {
    /// Objects of pages on port 80 are fetched ahead.
    #[serde(default)]
    pub prefetch: bool,
}

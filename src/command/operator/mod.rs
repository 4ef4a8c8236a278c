//! What sets a server and its clients up: `server init|add|list|remove`, `client join`.
//!
//! ```text
//! init ─► server.toml, server.key     add ─► [[client]] with a one-time key ─► code ─► join ─► client.toml, two keys
//! ```

mod clients;
mod code;
mod files;
mod init;
mod join;

pub(super) use files::{give, key_text, make, make_all, plain, refuse_existing};

pub(crate) use clients::{add, list, remove};
pub(crate) use init::init;
pub(crate) use join::join;

/// UDP port of a server that names none.
const PORT: u16 = 4433;

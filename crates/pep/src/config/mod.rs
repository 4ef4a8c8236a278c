//! Configuration: TOML is parsed once into types that cannot hold an invalid value; nothing is checked later.
//!
//! ```text
//! file -> Source (text, line numbers) -> toml + serde -> ClientConfig | ServerConfig
//!              \________ ConfigError: one line, `FILE:LINE: message` ________/
//! ```
//!
//! Quantities are strings with units, paths are relative to the file, unknown keys are errors with a suggestion.

mod client;
mod server;
mod value;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use bentpipe_config::Source;
use bentpipe_units::ByteCount;

pub use bentpipe_config::{ConfigError, Place, Placed};
pub use client::{ClientConfig, Direction, Intercept, Link, ProxyFrontEnd, Rule, Server};
pub use server::{Client, ServerConfig};
pub use value::{OtherTraffic, ServerAddress};

/// How long a stop waits for open flows when nothing else is said.
const DEFAULT_DRAIN: Duration = Duration::from_secs(10);

/// Where is remembered what helps the next process when nothing else is said.
const DEFAULT_STATE_DIR: &str = "/var/lib/bentpipe";

/// Ceiling of buffered data of one tunnel when nothing else is said.
const DEFAULT_MEMORY: ByteCount = ByteCount::new(256 << 20);

/// Which end of the tunnel a file configures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The terminal's side: `bentpipe client`.
    Client,
    /// The internet side: `bentpipe server`.
    Server,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::Server => "server",
        })
    }
}

/// Validates `path` as `role`, or as the role its content shows: `listen` or `[[client]]` make a server,
/// `[server]` and the front ends a client.
///
/// # Errors
/// What [`ClientConfig::load`] and [`ServerConfig::load`] report, or that the content shows no role.
pub fn check(path: &Path, role: Option<Role>) -> Result<Role, ConfigError> {
    let source = Source::read(path)?;
    let role = match role {
        Some(role) => role,
        None => detect(&source)?,
    };
    match role {
        Role::Client => ClientConfig::from_source(&source).map(drop)?,
        Role::Server => ServerConfig::from_source(&source).map(drop)?,
    }
    Ok(role)
}

/// The role that the top-level keys of `source` show.
fn detect(source: &Source) -> Result<Role, ConfigError> {
    let table: toml::Table = source.parse()?;
    let has = |keys: &[&str]| keys.iter().any(|key| table.contains_key(*key));
    if has(&["listen", "client"]) {
        Ok(Role::Server)
    } else if has(&["server", "intercept", "socks5", "http", "link"]) {
        Ok(Role::Client)
    } else {
        Err(source.error_at_line(
            1,
            "neither a client's file (`[server]`) nor a server's (`listen`, `[[client]]`)",
        ))
    }
}

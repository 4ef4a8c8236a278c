//! Roles of daemons, and which of them a file is for.

use std::fmt;
use std::path::Path;

use bentpipe_config::{ConfigError, Source};
use serde::de::DeserializeOwned;

use super::lists;

/// Daemon that a file configures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The terminal's side: `bentpipe client`.
    Client,
    /// The internet side: `bentpipe server`.
    Server,
    /// Either side of an operator's link: `bentpipe pep`.
    Pep,
    /// Before a web server: `bentpipe origin`.
    Origin,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Client, Self::Server, Self::Pep, Self::Origin];

    /// Name for a sentence: "a client", "an origin".
    #[must_use]
    pub fn with_article(self) -> &'static str {
        match self {
            Self::Client => "a client",
            Self::Server => "a server",
            Self::Pep => "a PEP",
            Self::Origin => "an origin",
        }
    }

    /// Keys of a file that this role alone has.
    fn own_keys(self) -> &'static [&'static str] {
        match self {
            Self::Client => &["server", "intercept", "socks5", "http"],
            Self::Server => &["client"],
            Self::Pep => &["peer", "lan", "wan", "clear"],
            Self::Origin => &["origin"],
        }
    }

    /// The configuration of a daemon in this role when nobody names one.
    #[must_use]
    pub fn default_config(self) -> &'static Path {
        Path::new(match self {
            Self::Client => "/etc/bentpipe/client.toml",
            Self::Server => "/etc/bentpipe/server.toml",
            Self::Pep => "/etc/bentpipe/pep.toml",
            Self::Origin => "/etc/bentpipe/origin.toml",
        })
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::Server => "server",
            Self::Pep => "pep",
            Self::Origin => "origin",
        })
    }
}

/// The role that the top-level keys of `source` show.
pub(super) fn detect(source: &Source) -> Result<Role, ConfigError> {
    let table: toml::Table = source.parse()?;
    shown(&table).ok_or_else(|| {
        source.error_at_line(
            1,
            "neither a client's file (`[server]`) nor a server's (`listen`, `[[client]]`) nor a PEP's (`[peer]`) nor an origin's (`[origin]`)",
        )
    })
}

/// The role that the keys of `table`, a whole file, show; `None`: none.
fn shown(table: &toml::Table) -> Option<Role> {
    let has = |keys: &[&str]| keys.iter().any(|key| table.contains_key(*key));
    if has(Role::Origin.own_keys()) {
        Some(Role::Origin)
    } else if has(Role::Pep.own_keys()) {
        Some(Role::Pep)
    } else if has(Role::Server.own_keys()) || has(&["listen"]) {
        Some(Role::Server)
    } else if has(Role::Client.own_keys()) || has(&["link"]) {
        Some(Role::Client)
    } else {
        None
    }
}

/// Parses the file of a daemon in `role`, without lists that are empty and must not be.
pub(super) fn parsed<T: DeserializeOwned>(source: &Source, role: Role) -> Result<T, ConfigError> {
    let file = source
        .parse()
        .map_err(|fault| other_role(source, role).unwrap_or(fault))?;
    lists::check(source)?;
    Ok(file)
}

/// The fault of a file that is another role's than `role`: no key stands in it that this role alone has.
fn other_role(source: &Source, role: Role) -> Option<ConfigError> {
    let table: toml::Table = source.parse().ok()?;
    let other = shown(&table).filter(|other| *other != role)?;
    let mut own = role.own_keys().iter();
    if own.any(|key| table.contains_key(*key)) {
        return None;
    }
    let fault = format!(
        "this is {}'s file, and {}'s is needed; run `bentpipe {other}` with it, or name another",
        other.with_article(),
        role.with_article()
    );
    Some(source.error_at_line(1, fault))
}

//! Configuration: each TOML file is parsed once into types that cannot hold an invalid value, so later code checks nothing.
//!
//! ```text
//! file -> Source (text, line numbers) -> toml + serde -> ClientConfig | ServerConfig | PepConfig | OriginConfig
//!              \________ ConfigError: one line, `FILE:LINE: message` ________/
//! ```
//!
//! Quantities are strings with units, paths are relative to the file, unknown keys are errors with a suggestion.

mod client;
mod destinations;
mod dns;
mod dssl;
mod fec;
mod front;
mod identity;
mod laboratory;
mod les;
mod lists;
mod metering;
mod metrics;
mod monitoring;
mod origin;
mod page;
mod pep;
mod plain;
mod publish;
mod responder;
mod role;
mod rule;
mod server;
mod sle;
mod trusted_name;
mod value;
mod web;
pub(crate) mod written;

#[cfg(test)]
mod tests;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use bentpipe_config::Source;
use bentpipe_units::ByteCount;
pub use bentpipe_units::TimeSpan;
use rustix::process::geteuid;
use serde::Deserialize;
use toml::Spanned;

pub use bentpipe_config::{ConfigError, Place, Placed};
pub use client::{ClientConfig, Direction, Link, MemoryCeilings, Server, WirePreference};
pub use destinations::{Destinations, Service};
pub use dns::{ClientDns, RouterDns, ServerDns};
pub use dssl::ClientDssl;
pub use front::{FrontEnds, Intercept, ProxyFrontEnd};
pub use identity::Identity;
pub(crate) use laboratory::read_psk;
pub use les::{ClientLes, LesPep};
pub use metering::{AtCap, Metering, MonthDay, Period};
pub use monitoring::Monitoring;
pub use origin::OriginConfig;
pub use page::{Page, PageToken};
pub use pep::{ClearTcp, MeetingPlace, OtherPep, PepConfig, PepLes, PepLimits, Sides};
pub use plain::{PlainClient, PlainServer, PlainSource};
pub use publish::{Permit, PortProtocol, Publish};
pub use responder::{Bounds, RESPONDER_NAME, Responder};
pub use role::Role;
use role::{detect, parsed};
pub use rule::{Action, Asked, Domain, Dscp, Protocol, Rule};
pub(crate) use rule::{TCP, UDP};
pub(crate) use server::NAT64_LENGTHS;
pub use server::{
    Client, ClientKey, Dialling, LesListening, Listening, Nat64, Packets, ServerConfig, SleIntake,
    SleListening, TlsListening,
};
pub use sle::ClientSle;
pub use trusted_name::{MAX_NAMES, TrustedName};
pub(crate) use value::scoped;
pub use value::{CongestionControlName, Http3, OnFailure, OtherTraffic, ServerAddress, Transport};
pub use web::{ClientWeb, ServerWeb, WebRoots};

/// Time for which a stop waits for open flows when nothing else is said.
const DEFAULT_DRAIN: Duration = Duration::from_secs(10);

/// State directory of root, and of the user whom a package or a service manager has given it.
const SHARED_STATE_DIR: &str = "/var/lib/bentpipe";

/// Ceiling of buffered data of one tunnel when nothing else is said.
const DEFAULT_MEMORY: ByteCount = ByteCount::new(256 << 20);

/// State directory when the file names none: the service manager's (`$STATE_DIRECTORY`),
/// [`SHARED_STATE_DIR`] for its owner and root, or the user's by the XDG rules.
fn default_state_dir() -> PathBuf {
    let absolute = |name: &str| {
        let value = env::var_os(name)?;
        // systemd separates several with colons.
        let first = env::split_paths(&value).next()?;
        first.is_absolute().then_some(first)
    };
    let of_user = || {
        let home = || Some(absolute("HOME")?.join(".local/state"));
        let base = absolute("XDG_STATE_HOME").or_else(home)?;
        Some(base.join("bentpipe"))
    };
    absolute("STATE_DIRECTORY")
        .or_else(|| if owns_shared() { None } else { of_user() })
        .unwrap_or_else(|| SHARED_STATE_DIR.into())
}

/// True if this user's commands and daemons use [`SHARED_STATE_DIR`].
fn owns_shared() -> bool {
    let user = geteuid();
    let owner = || Some(fs::metadata(SHARED_STATE_DIR).ok()?.uid());
    user.is_root() || owner() == Some(user.as_raw())
}

/// The state directory: `named` by the file, relative to it, or the default.
fn state_dir(source: &Source, named: Option<&Spanned<PathBuf>>) -> Result<PathBuf, ConfigError> {
    let Some(named) = named else {
        return Ok(default_state_dir());
    };
    check_path(source, "state_dir", named)?;
    Ok(source.resolve(named.get_ref()))
}

/// Refuses a path that names nothing: an empty one would be the directory of the file, and none has a NUL.
fn check_path(source: &Source, key: &str, path: &Spanned<PathBuf>) -> Result<(), ConfigError> {
    let fault = match path.get_ref().as_os_str().as_encoded_bytes() {
        [] => "is empty; name a path, or leave the key out",
        bytes if bytes.contains(&0) => "has a NUL character, which no path can have; remove that",
        _ => return Ok(()),
    };
    Err(source.error(&path.span(), format!("`{key}` {fault}")))
}

/// Configuration of a client, by its transport.
#[derive(Clone, Debug)]
pub enum ClientFile {
    /// `transport = "quic"`, the default.
    Tunnel(Box<ClientConfig>),
    /// `transport = "plain"`.
    Plain(Box<PlainClient>),
}

/// Configuration of a server, by its transport.
#[derive(Clone, Debug)]
pub enum ServerFile {
    /// `transport = "quic"`, the default.
    Tunnel(Box<ServerConfig>),
    /// `transport = "plain"`.
    Plain(Box<PlainServer>),
}

/// Configuration of a daemon of any role.
#[derive(Clone, Debug)]
pub enum AnyFile {
    /// A client.
    Client(ClientFile),
    /// A server.
    Server(Box<ServerFile>),
    /// An operator's PEP.
    Pep(Box<PepConfig>),
    /// An origin of DSSL.
    Origin(Box<OriginConfig>),
}

impl AnyFile {
    /// The role that it is for.
    #[must_use]
    pub fn role(&self) -> Role {
        match self {
            Self::Client(_) => Role::Client,
            Self::Server(_) => Role::Server,
            Self::Pep(_) => Role::Pep,
            Self::Origin(_) => Role::Origin,
        }
    }
}

impl ClientFile {
    /// Reads and validates `path` and the private key file it names, if it names one.
    ///
    /// # Errors
    /// [`ConfigError`] with the first fault found.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::from_source(&Source::read(path)?)
    }

    /// Front ends of the client.
    #[must_use]
    pub fn front(&self) -> &FrontEnds {
        match self {
            Self::Tunnel(config) => &config.front,
            Self::Plain(config) => &config.front,
        }
    }

    /// State directory of the client; of one without a tunnel, which keeps no state, that of its user.
    #[must_use]
    pub fn state_dir(&self) -> PathBuf {
        match self {
            Self::Tunnel(config) => config.state_dir.clone(),
            Self::Plain(_) => default_state_dir(),
        }
    }

    fn from_source(source: &Source) -> Result<Self, ConfigError> {
        Ok(match transport(source)? {
            Transport::Quic => Self::Tunnel(Box::new(ClientConfig::from_source(source)?)),
            Transport::Plain => Self::Plain(Box::new(PlainClient::from_source(source)?)),
        })
    }
}

impl ServerFile {
    /// Reads and validates `path` and the private key file it names, if it names one.
    ///
    /// # Errors
    /// [`ConfigError`] with the first fault found.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::from_source(&Source::read(path)?)
    }

    fn from_source(source: &Source) -> Result<Self, ConfigError> {
        Ok(match transport(source)? {
            Transport::Quic => Self::Tunnel(Box::new(ServerConfig::from_source(source)?)),
            Transport::Plain => Self::Plain(Box::new(PlainServer::from_source(source)?)),
        })
    }
}

/// Transport that `source` asks for: it decides which other keys there are.
fn transport(source: &Source) -> Result<Transport, ConfigError> {
    #[derive(Deserialize)]
    struct Head {
        #[serde(default)]
        transport: Transport,
    }
    source.parse().map(|head: Head| head.transport)
}

/// Reads a client's file for what it intercepts.
///
/// # Errors
/// [`ConfigError`] with the first fault found; that nothing is intercepted is one.
pub fn intercepting(path: &Path) -> Result<ClientFile, ConfigError> {
    let source = Source::read(path)?;
    let file = ClientFile::from_source(&source)?;
    if file.front().intercept.is_none() {
        let fault = "nothing is intercepted, so there is nothing to guard; add `[intercept]`";
        return Err(source.error_at_line(1, fault));
    }
    Ok(file)
}

/// Validates `path` as `role`, or as the role its content shows: `listen` or `[[client]]` make a server,
/// `[server]` and the front ends a client, `[peer]` a PEP, `[origin]` an origin.
///
/// # Errors
/// What [`ClientConfig::load`] and [`ServerConfig::load`] report, or that the content shows no role.
pub fn check(path: &Path, role: Option<Role>) -> Result<Role, ConfigError> {
    load(path, role).map(|file| file.role())
}

/// Reads and validates `path` as [`check`] does.
///
/// # Errors
/// As [`check`].
pub fn load(path: &Path, role: Option<Role>) -> Result<AnyFile, ConfigError> {
    let source = Source::read(path)?;
    let role = match role {
        Some(role) => role,
        None => detect(&source)?,
    };
    Ok(match role {
        Role::Client => AnyFile::Client(ClientFile::from_source(&source)?),
        Role::Server => AnyFile::Server(Box::new(ServerFile::from_source(&source)?)),
        Role::Pep => AnyFile::Pep(Box::new(PepConfig::from_source(&source)?)),
        Role::Origin => AnyFile::Origin(Box::new(OriginConfig::from_source(&source)?)),
    })
}

/// Configuration of a PEP with these tables, whose files are in `directory`.
#[cfg(test)]
pub(crate) fn sample_pep(directory: &Path, tables: &str) -> PepConfig {
    use std::os::unix::fs::PermissionsExt as _;

    let key = directory.join("pep.key");
    fs::write(&key, "AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=\n").expect("a file");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("a mode");
    let text = format!(
        "private_key_file = \"pep.key\"\nlan = [\"lan0\"]\nwan = [\"sat0\", \"sat1\"]\n\
         peer = {{ address = \"192.0.2.1:4434\", public_key = \"AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=\" }}\n{tables}"
    );
    PepConfig::from_source(&Source::new(&directory.join("pep.toml"), text))
        .expect("a configuration")
}

//! `bentpipe client`, `bentpipe server`, `bentpipe pep` and `bentpipe origin`: configuration in, daemon until a signal.

use std::path::Path;

#[cfg(target_os = "linux")]
use bentpipe_pep::config::PepConfig;
use bentpipe_pep::config::{ClientFile, OriginConfig, ServerFile};
#[cfg(target_os = "linux")]
use bentpipe_pep::segments;
use bentpipe_pep::{client, end_on_panic, origin, server};

use crate::cli::{Daemon, OriginFile, Role};
use crate::exit::Failure;

/// Runs the client.
pub(crate) fn client(options: &Daemon) -> Result<(), Failure> {
    end_on_panic();
    let config = ClientFile::load(config(options.config.as_deref(), Role::Client)?)?;
    Ok(client::run(config, &options.into())?)
}

/// Runs the server.
pub(crate) fn server(options: &Daemon) -> Result<(), Failure> {
    end_on_panic();
    let config = ServerFile::load(config(options.config.as_deref(), Role::Server)?)?;
    Ok(server::run(config, &options.into())?)
}

/// Runs the PEP.
#[cfg(target_os = "linux")]
pub(crate) fn pep(options: &Daemon) -> Result<(), Failure> {
    end_on_panic();
    let config = PepConfig::load(config(options.config.as_deref(), Role::Pep)?)?;
    Ok(segments::run(config, &options.into())?)
}

/// Runs an origin.
pub(crate) fn origin(options: &OriginFile) -> Result<(), Failure> {
    end_on_panic();
    let config = OriginConfig::load(config(options.config.as_deref(), Role::Origin)?)?;
    Ok(origin::run(config)?)
}

/// The configuration that the command line names, or the usual one of `role`, which must be there.
pub(crate) fn config(named: Option<&Path>, role: Role) -> Result<&Path, Failure> {
    let usual = role.default_config();
    match named {
        Some(named) => Ok(named),
        None if usual.exists() => Ok(usual),
        None => {
            let make = match role {
                Role::Client => "make it with `bentpipe client join CODE`",
                Role::Server => "make it with `bentpipe server init --public HOST[:PORT]`",
                Role::Pep => "write it as docs/sealed.md shows",
                Role::Origin => "write it as docs/dssl.md shows",
            };
            Err(Failure::Key(format!(
                "{} does not exist; {make}, or name a file with --config",
                usual.display()
            )))
        }
    }
}

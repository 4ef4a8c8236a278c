//! `bentpipe client` and `bentpipe server`: configuration in, daemon until a signal.

use bentpipe_pep::config::{ClientConfig, ServerConfig};
use bentpipe_pep::{client, server};

use crate::cli::Daemon;
use crate::exit::Failure;

/// Runs the client.
pub(crate) fn client(options: &Daemon) -> Result<(), Failure> {
    let config = ClientConfig::load(&options.config)?;
    Ok(client::run(config, &options.into())?)
}

/// Runs the server.
pub(crate) fn server(options: &Daemon) -> Result<(), Failure> {
    let config = ServerConfig::load(&options.config)?;
    Ok(server::run(&config, &options.into())?)
}

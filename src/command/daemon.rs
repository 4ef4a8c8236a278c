//! `bentpipe client` and `bentpipe server`: configuration in, daemon until a signal.

use bentpipe_pep::config::{ClientFile, ServerFile};
use bentpipe_pep::{client, server};

use crate::cli::Daemon;
use crate::exit::Failure;

/// Runs the client.
pub(crate) fn client(options: &Daemon) -> Result<(), Failure> {
    let config = ClientFile::load(&options.config)?;
    Ok(client::run(config, &options.into())?)
}

/// Runs the server.
pub(crate) fn server(options: &Daemon) -> Result<(), Failure> {
    let config = ServerFile::load(&options.config)?;
    Ok(server::run(config, &options.into())?)
}

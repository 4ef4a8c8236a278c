//! `bentpipe client` and `bentpipe server`: configuration in, daemon until a signal.

use bentpipe_pep::config::{ClientFile, ServerFile};
use bentpipe_pep::{client, end_on_panic, server};

use crate::cli::Daemon;
use crate::exit::Failure;

/// Runs the client.
pub(crate) fn client(options: &Daemon) -> Result<(), Failure> {
    end_on_panic();
    let config = ClientFile::load(&options.config)?;
    Ok(client::run(config, &options.into())?)
}

/// Runs the server.
pub(crate) fn server(options: &Daemon) -> Result<(), Failure> {
    end_on_panic();
    let config = ServerFile::load(&options.config)?;
    Ok(server::run(config, &options.into())?)
}

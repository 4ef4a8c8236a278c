//! `bentpipe status`: what is the running daemon doing?

use bentpipe_pep::status;

use crate::cli::Status;
use crate::exit::Failure;

/// Asks the daemon and prints its answer.
pub(crate) fn run(options: &Status) -> Result<(), Failure> {
    let report = status::query(options.socket.as_deref()).map_err(|error| {
        if error.is_no_daemon() {
            Failure::NoDaemon(error.to_string())
        } else {
            Failure::Run(error.into())
        }
    })?;
    if options.json {
        super::print(&report.to_json())
    } else {
        super::print(report.to_string().trim_end())
    }
}

//! `bentpipe status`: what is the running daemon doing, and is it healthy?

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use bentpipe_pep::status::{self, StatusReport};

use crate::cli::Status;
use crate::exit::Failure;

/// Time from one screen of `--watch` to the next.
const REFRESH: Duration = Duration::from_secs(2);

/// Moves the cursor home and clears what was there.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Asks the daemon and prints its answer.
pub(crate) fn run(options: &Status) -> Result<ExitCode, Failure> {
    loop {
        let report = query(options);
        let code = match (report, options.watch) {
            (Ok(report), _) => show(options, &report)?,
            (Err(failure), false) => return Err(failure),
            // It may be started again.
            (Err(failure), true) => {
                clear(options)?;
                super::print(&failure.to_string())?;
                failure.exit_code()
            }
        };
        if !options.watch {
            return Ok(code);
        }
        thread::sleep(REFRESH);
    }
}

fn query(options: &Status) -> Result<StatusReport, Failure> {
    let role = options.role.map(Into::into);
    status::query(options.socket.as_deref(), role).map_err(|error| {
        if error.is_no_daemon() {
            Failure::NoDaemon(error.to_string())
        } else {
            Failure::Run(error.into())
        }
    })
}

fn show(options: &Status, report: &StatusReport) -> Result<ExitCode, Failure> {
    clear(options)?;
    if options.check {
        let health = report.health();
        let text = match &health {
            Ok(text) => format!("healthy: {text}"),
            Err(text) => format!("unhealthy: {text}"),
        };
        super::print(&text)?;
        return Ok(match health {
            Ok(_) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        });
    }
    if options.json {
        super::print(&report.to_json())?;
    } else {
        super::print(report.to_string().trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes room for the next screen, on a terminal.
fn clear(options: &Status) -> Result<(), Failure> {
    if options.watch && !options.json && io::stdout().is_terminal() {
        super::print(CLEAR)?;
    }
    Ok(())
}

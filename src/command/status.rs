//! `bentpipe status`: what is the running daemon doing, and is it healthy?

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::Duration;
use std::{env, thread};

use bentpipe_pep::status::{self, Blocks, Screen, StatusReport};

use crate::cli::Status;
use crate::exit::Failure;

/// Time from one screen of `--watch` to the next.
const REFRESH: Duration = Duration::from_secs(1);

/// Clears a terminal and moves the cursor home.
const CLEAR: &str = "\x1b[H\x1b[2J";
/// Moves the cursor home: a screen that is written over the last one does not flicker.
const HOME: &str = "\x1b[H";
/// Clears the rest of a line, and all below.
const END_OF_LINE: &str = "\x1b[K\n";
const BELOW: &str = "\x1b[J";

/// Asks the daemon and prints its answer.
pub(crate) fn run(options: &Status) -> Result<ExitCode, Failure> {
    if options.watch {
        return watch(options);
    }
    let report = query(options)?;
    let (text, code) = answer(options, &report);
    super::print(&text)?;
    Ok(code)
}

/// Asks once a second, until interrupted or until nobody reads any more. A daemon that does not answer may be started again.
fn watch(options: &Status) -> Result<ExitCode, Failure> {
    let mut screen = Screen::new(blocks());
    let redraws = !options.json && io::stdout().is_terminal();
    if redraws {
        super::print(CLEAR)?;
    }
    loop {
        let text = match query(options) {
            Ok(report) if options.json || options.check => answer(options, &report).0,
            Ok(report) => screen.draw(&report),
            Err(failure) => failure.to_string(),
        };
        let text = text.trim_end();
        let is_read = if redraws {
            let lines: Vec<_> = text.lines().collect();
            super::deliver(&format!("{HOME}{}{BELOW}", lines.join(END_OF_LINE)))?
        } else {
            super::deliver(text)?
        };
        if !is_read {
            return Ok(ExitCode::SUCCESS);
        }
        thread::sleep(REFRESH);
    }
}

/// Characters that the terminal can draw curves with, as its locale says.
fn blocks() -> Blocks {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .filter_map(env::var_os)
        .find(|locale| !locale.is_empty());
    let locale = locale.unwrap_or_default().to_string_lossy().to_uppercase();
    match locale.contains("UTF-8") || locale.contains("UTF8") {
        true => Blocks::Unicode,
        false => Blocks::Ascii,
    }
}

fn query(options: &Status) -> Result<StatusReport, Failure> {
    let role = options.role.map(Into::into);
    status::query(options.socket.as_deref(), role).map_err(|error| match error {
        error if error.is_no_daemon() => Failure::NoDaemon(error.to_string()),
        error if error.is_forbidden() => Failure::Privilege(error.to_string()),
        error => Failure::Run(error.into()),
    })
}

/// Text that is asked of `report`, and the exit code that goes with it.
fn answer(options: &Status, report: &StatusReport) -> (String, ExitCode) {
    if options.check {
        return match report.health() {
            Ok(text) => (format!("healthy: {text}"), ExitCode::SUCCESS),
            Err(text) => (format!("unhealthy: {text}"), ExitCode::FAILURE),
        };
    }
    let text = match options.json {
        true => report.to_json(),
        false => report.to_string().trim_end().to_owned(),
    };
    (text, ExitCode::SUCCESS)
}

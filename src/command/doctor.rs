//! `bentpipe doctor`: what keeps a daemon from working here, and how is it mended?

use std::path::Path;
use std::process::ExitCode;

use bentpipe_pep::doctor::{self, Level};

use crate::cli::{Doctor, Role};
use crate::exit::Failure;

/// Examines the machine and prints the findings.
pub(crate) fn run(options: &Doctor) -> Result<ExitCode, Failure> {
    let usual = [Role::Client, Role::Server, Role::Pep, Role::Origin].map(Role::default_config);
    let files = match &options.config {
        Some(named) => vec![named.clone()],
        None => {
            // One that this user may not see counts: that is a finding.
            let absent = |file: &&Path| matches!(file.try_exists(), Ok(false));
            let there = usual.into_iter().filter(|file| !absent(file));
            there.map(Path::to_owned).collect()
        }
    };
    let diagnosis = doctor::examine(&files, env!("BENTPIPE_YEAR").parse().ok());
    if options.json {
        super::print(&diagnosis.to_json())?;
    } else {
        for finding in &diagnosis.findings {
            super::print(&finding.to_string())?;
        }
    }
    Ok(match diagnosis.worst() {
        Level::Ok | Level::Warn => ExitCode::SUCCESS,
        Level::Fail => ExitCode::FAILURE,
    })
}

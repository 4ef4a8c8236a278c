//! `bentpipe measure`: what is the tunnel worth on this link?

use bentpipe_pep::client::measure::{self, Fault, Wishes};
use bentpipe_pep::config::ClientFile;

use super::daemon::config;
use crate::cli::{Measure, Role};
use crate::exit::Failure;

/// Measures, and prints what came of it.
pub(crate) fn run(options: &Measure) -> Result<(), Failure> {
    let file = ClientFile::load(config(options.config.as_deref(), Role::Client)?)?;
    let wishes = Wishes {
        size: options.size,
        rounds: options.rounds,
        max_bytes: options.max_bytes,
    };
    let url = options.url.as_deref();
    let report = measure::run(&file, url, &wishes, &mut |text| eprintln!("{text}"));
    let report = report.map_err(|fault| match fault {
        Fault::FrontEnd(..) => Failure::NoDaemon(fault.to_string()),
        fault => Failure::Run(fault.into()),
    })?;
    match options.json {
        true => super::print(&report.to_json()),
        false => super::print(report.to_string().trim_end()),
    }
}

//! `bentpipe lab`: experiments.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use bentpipe_emulator::Stop;
use bentpipe_emulator::keep_memory;
use bentpipe_emulator::machine::{Tool, prepare};
use bentpipe_lab::contender::Available;
use bentpipe_lab::experiment::{Experiment, Extent, Filter};
use bentpipe_lab::leaks::{self, Thoroughness};
use bentpipe_lab::report::ResultsReport;
use bentpipe_lab::results::{Comparison, merge, read};
use bentpipe_lab::runner::{self, RunnerConfig};
use tracing::warn;

use crate::cli::{Lab, LabCommand, LabCompare, LabLeaks, LabMerge, LabReport, LabRun};
use crate::exit::Failure;

/// Directory of results if nothing is said.
const RESULTS: &str = "lab-results";

/// Does what was asked.
pub(crate) fn run(options: &Lab) -> Result<(), Failure> {
    match &options.command {
        LabCommand::Run(options) => experiment(options),
        LabCommand::Merge(options) => put_together(options),
        LabCommand::Report(options) => draw(options),
        LabCommand::Compare(options) => compare(options),
        LabCommand::Leaks(options) => leaks(options),
        LabCommand::List => list(),
    }
}

fn experiment(options: &LabRun) -> Result<(), Failure> {
    let extent = match (options.quick, options.published) {
        (true, _) => Extent::Quick,
        (false, true) => Extent::Published,
        (false, false) => Extent::Full,
    };
    let experiment = Experiment::load(&options.experiment, extent, &options.binary)?;
    let config = RunnerConfig {
        output: options
            .output
            .clone()
            .unwrap_or_else(|| output(&experiment, options)),
        filter: Filter::new(&options.filter),
        shard: options.shard,
        selection: selection(options),
        bentpipe: own_path()?,
        retry: options.retry.unwrap_or_default(),
        keep: options.keep.unwrap_or_default(),
        experiment,
    };
    let plan = config.plan();
    if plan.is_empty() {
        return Err(Failure::Usage(none_left(options)));
    }
    if options.dry_run {
        let minutes = config.experiment.estimate(&plan).as_secs().div_ceil(60);
        // Without a standard error there is nobody to tell.
        let _ = writeln!(io::stderr(), "{} runs, about {minutes} min", plan.len());
        let lines: Vec<String> = plan.iter().map(|run| run.key.to_string()).collect();
        return super::print(&lines.join("\n"));
    }
    // Before the first thread: see there.
    prepare(&[Tool::Ip, Tool::Nft])?;
    if !keep_memory() {
        warn!("memory is not locked (CAP_IPC_LOCK is missing): a busy machine may delay packets");
    }
    let stop = Stop::on_signals()?;
    // Without a standard error there is nobody to tell.
    let mut say = |line: &str| drop(writeln!(io::stderr(), "{line}"));
    let summary = runner::run(&config, &stop, &mut say)?;
    super::print(&summary.to_string())
}

/// What to say where no run is left.
fn none_left(options: &LabRun) -> String {
    let given = [
        ("--filter", !options.filter.is_empty()),
        ("--shard", options.shard.is_some()),
    ];
    let given = given
        .into_iter()
        .filter_map(|(name, given)| given.then_some(name));
    let given: Vec<_> = given.collect();
    match given.is_empty() {
        true if options.published => {
            "no published finding is about this experiment; --dry-run without --published lists its runs".into()
        }
        true => "this experiment has no run".into(),
        false => {
            let given = given.join(" and ");
            format!("no run is left by {given}; --dry-run without that lists all")
        }
    }
}

fn own_path() -> Result<PathBuf, Failure> {
    Ok(std::env::current_exe().context("cannot tell where this program is")?)
}

/// Each shard has its own: they may share a file system.
fn output(experiment: &Experiment, options: &LabRun) -> PathBuf {
    let mut name = format!("{}-{}", experiment.name, experiment.extent.name());
    if let Some(shard) = options.shard {
        name += &format!("-{}", shard.to_string().replace('/', "-of-"));
    }
    Path::new(RESULTS).join(name)
}

fn selection(options: &LabRun) -> Vec<String> {
    let filters = options
        .filter
        .iter()
        .map(|words| format!("--filter '{words}'"));
    let shard = options.shard.map(|shard| format!("--shard {shard}"));
    let binaries = options
        .binary
        .iter()
        .map(|binary| format!("--binary '{binary}'"));
    filters.chain(shard).chain(binaries).collect()
}

fn put_together(options: &LabMerge) -> Result<(), Failure> {
    let (runs, caveats) = merge(&options.output, &options.from)?;
    for caveat in caveats {
        // Without a standard error there is nobody to tell.
        let _ = writeln!(io::stderr(), "note: {caveat}");
    }
    super::print(&format!("{runs} runs in {}", options.output.display()))
}

fn draw(options: &LabReport) -> Result<(), Failure> {
    let report = ResultsReport::read(&options.from)?;
    report.write_page(&options.page)?;
    super::print(&options.page.display().to_string())?;
    if let Some(file) = &options.markdown {
        report.write_markdown(file)?;
        super::print(&file.display().to_string())?;
    }
    if let Some(directory) = &options.figures {
        let written = report.write_figures(directory)?;
        super::print(&format!("{written} figures in {}", directory.display()))?;
    }
    Ok(())
}

fn compare(options: &LabCompare) -> Result<(), Failure> {
    let (before, after) = (read(&options.before)?, read(&options.after)?);
    let comparison = Comparison::new(&before, &after, options.threshold.as_f64());
    super::print(&comparison.to_string())?;
    if comparison.is_worse() {
        return Err(anyhow::anyhow!("something became worse; see above").into());
    }
    Ok(())
}

fn leaks(options: &LabLeaks) -> Result<(), Failure> {
    prepare(&[Tool::Ip, Tool::Nft])?;
    let stop = Stop::on_signals()?;
    let prefix = runner::prefix()?;
    let available = Available::new(own_path()?, &prefix)?;
    let thoroughness = if options.quick {
        Thoroughness::Quick
    } else {
        Thoroughness::Full
    };
    // Without a standard error there is nobody to tell.
    let mut say = |line: &str| drop(writeln!(io::stderr(), "{line}"));
    let leaks = leaks::run(
        &options.contender,
        &available,
        &prefix,
        thoroughness,
        &stop,
        &mut say,
    )?;
    super::print(leaks.to_string().trim_end())?;
    match leaks.fault() {
        None => Ok(()),
        Some(fault) => Err(anyhow::anyhow!("{fault}").into()),
    }
}

fn list() -> Result<(), Failure> {
    let mut lines = vec!["Experiments, for `bentpipe lab run NAME`:".to_owned()];
    for name in Experiment::names() {
        let experiment = Experiment::load(Path::new(name), Extent::Full, &[])?;
        lines.push(format!("{name:<28}{}", experiment.question));
    }
    lines.push("\nContenders, with what this machine has of them:".to_owned());
    prepare(&[Tool::Ip])?;
    let available = Available::new(own_path()?, &runner::prefix()?)?;
    lines.extend(
        available
            .list()
            .into_iter()
            .map(|(name, version)| match version {
                Ok(version) => format!("{name:<28}{version}"),
                Err(reason) => format!("{name:<28}unsupported: {reason}"),
            }),
    );
    super::print(&lines.join("\n"))
}

//! The command line of `bentpipe lab`.

use std::path::PathBuf;

use bentpipe_lab::Ratio;
use bentpipe_lab::contender::{Binary, Contender};
use bentpipe_lab::experiment::Shard;
use bentpipe_lab::runner::{Keep, Retry};
use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct Lab {
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Run an experiment, or what of it is not finished yet
    ///
    /// Every run has namespaces of its own. A finished run is a line of results.jsonl in the output directory; killed at
    /// any moment and started again, it removes what was left and goes on. Needs root, or a kernel that allows user
    /// namespaces.
    #[command(after_help = RUN_EXAMPLES)]
    Run(Run),

    /// Put results of several shards or machines together
    #[command(
        after_help = "Example:\n  bentpipe lab merge --output all lab-results/cnes-full-1-of-2 lab-results/cnes-full-2-of-2"
    )]
    Merge(Merge),

    /// Draw results into one HTML page that needs no other file
    #[command(
        after_help = "Example:\n  bentpipe lab report --page report.html lab-results/cnes-quick lab-results/qpep-goodput-quick"
    )]
    Report(Report),

    /// Compare results with earlier ones, cell by cell; exits with 1 if any became worse
    #[command(
        after_help = "Example:\n  bentpipe lab compare before/cnes-full lab-results/cnes-full --threshold '5 %'"
    )]
    Compare(Compare),

    /// Show what a contender lets out in clear, in every state of its life; exits with 1 if it does
    ///
    /// Everything that a machine can send is tried from before the contender's start to after its stop, while either end is
    /// killed, stopped and started again and the link fails; the link is watched throughout. Needs root, or a kernel that
    /// allows user namespaces.
    #[command(
        after_help = "Examples:\n  bentpipe lab leaks\n  bentpipe lab leaks openvpn-udp --quick"
    )]
    Leaks(Leaks),

    /// List the experiments, and the contenders with what of them this machine has
    List,
}

#[derive(Debug, Args)]
pub(crate) struct Leaks {
    /// Contenders, by name; `bentpipe lab list` has them
    #[arg(default_value = "bentpipe")]
    pub(crate) contender: Contender,

    /// Watch each state for a second instead of five
    #[arg(long)]
    pub(crate) quick: bool,
}

const RUN_EXAMPLES: &str = "\
Examples:
  bentpipe lab run cnes --quick
  bentpipe lab run cnes --filter 'bentpipe cnes-geo' --filter 'plain/cubic cnes-geo'
  bentpipe lab run my-links.toml --shard 2/5";

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// An experiment that `bentpipe lab list` names, or a file
    #[arg(value_name = "NAME|FILE")]
    pub(crate) experiment: PathBuf,

    /// Only what the experiment's `[quick]` leaves
    #[arg(long, conflicts_with = "published")]
    pub(crate) quick: bool,

    /// Only what published findings are about, and bentpipe beside it, once each
    #[arg(long)]
    pub(crate) published: bool,

    /// Only runs whose names hold all of these words; given several times, those of any
    #[arg(long, value_name = "WORDS")]
    pub(crate) filter: Vec<String>,

    /// Only this share, as in 2/5: the second of five
    #[arg(long, value_name = "I/N", value_parser = shard)]
    pub(crate) shard: Option<Shard>,

    /// The program of a contender, as in qpep=/opt/qpep; of hysteria2, qpep, pepsal and masque; may be given several times
    #[arg(long, value_name = "NAME=PATH")]
    pub(crate) binary: Vec<Binary>,

    /// List the runs in their order, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Do runs again whose result is not valid; with =invalid only those whose figures are doubted
    #[arg(long, value_name = "WHICH", value_parser = retry, num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    pub(crate) retry: Option<Retry>,

    /// Keep files of each run in DIR/kept of the results: pcap, qlog (of bentpipe's daemons), probes, pictures (of pages in Chromium), with commas between
    #[arg(long, value_name = "KINDS", value_parser = keep)]
    pub(crate) keep: Option<Keep>,

    /// Directory of the results [default: lab-results/NAME-full, -quick, -published, and the shard's numbers]
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
}

fn retry(text: &str) -> Result<Retry, &'static str> {
    text.parse()
}

fn keep(text: &str) -> Result<Keep, String> {
    text.parse()
}

fn shard(text: &str) -> Result<Shard, &'static str> {
    text.parse()
}

#[derive(Debug, Args)]
pub(crate) struct Merge {
    /// Directory of the merged results; made if need be
    #[arg(long, value_name = "DIR")]
    pub(crate) output: PathBuf,

    /// Directories of results
    #[arg(required = true, value_name = "DIR")]
    pub(crate) from: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// A directory of earlier results
    pub(crate) before: PathBuf,

    /// The directory of those in question
    pub(crate) after: PathBuf,

    /// By how much a median must be larger to count as worse
    #[arg(long, value_name = "RATIO", default_value = "10 %")]
    pub(crate) threshold: Ratio,
}

#[derive(Debug, Args)]
pub(crate) struct Report {
    /// The page
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub(crate) page: PathBuf,

    /// Writes published findings and their verdicts as Markdown, too
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,

    /// Writes each figure as an SVG into this directory, too
    #[arg(long, value_name = "DIR")]
    pub(crate) figures: Option<PathBuf>,

    /// Directories of results
    #[arg(required = true, value_name = "DIR")]
    pub(crate) from: Vec<PathBuf>,
}

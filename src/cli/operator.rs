//! The command line of what sets servers and clients up, and looks at the machine.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Generate {
    /// Where `completions` and `man` go; made if need be
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

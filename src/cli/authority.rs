//! The command line of the local CA.

use std::path::PathBuf;

use bentpipe_pep::config::TrustedName;
use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct Ca {
    #[command(subcommand)]
    pub(crate) command: CaCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CaCommand {
    /// Make a CA for named hosts
    ///
    /// Its certificate is constrained to the names and to web servers, and valid for two years. Nothing that exists is
    /// overwritten. Says next how the CA is installed.
    #[command(
        after_help = "Examples:\n  bentpipe ca init\n  bentpipe ca init --name intranet.example.com"
    )]
    Init(CaInit),

    /// Print the CA's fingerprint, names and last day, and how to install it
    Show(CaPlace),

    /// Delete the CA and its key, and say where it may still be trusted
    Remove(CaPlace),
}

#[derive(Debug, Args)]
pub(crate) struct CaInit {
    /// Host that the CA is for; may be given several times [default: `names` of the client's `[web]`]
    #[arg(long = "name", value_name = "HOST")]
    pub(crate) names: Vec<TrustedName>,

    #[command(flatten)]
    pub(crate) place: CaPlace,
}

#[derive(Debug, Args)]
pub(crate) struct CaPlace {
    /// Directory of the CA [default: `ca` in the client's state directory]
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    pub(crate) dir: Option<PathBuf>,

    /// The client's configuration [default: /etc/bentpipe/client.toml]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

//! How a command can fail, and the exit code that says so.
//!
//! The codes are a contract with scripts and service managers; `--help` prints [`TABLE`].

use std::fmt;
use std::process::ExitCode;

#[cfg(feature = "lab")]
use bentpipe_emulator::machine::Missing;
#[cfg(feature = "lab")]
use bentpipe_emulator::scenario::BadScenario;
use bentpipe_pep::RunError;
use bentpipe_pep::config::ConfigError;

/// The documentation of the codes.
pub(crate) const TABLE: &str = "\
Exit codes:
  0  done; also a daemon or emulate that was stopped by SIGINT or SIGTERM
  1  failed while running, or interrupted before the work was done (demo, lab, emulate --selftest); not healthy (status --check); something fails (doctor)
  2  wrong command line
  3  wrong configuration, scenario or key
  4  a privilege, a tool, a namespace or an interface is missing (CAP_NET_ADMIN, nft, ip, sat0)
  5  an address or a socket is in use or cannot be bound
  6  no daemon is running (status, measure)";

/// Why a command failed; displays as one line.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Failed while running.
    Run(anyhow::Error),
    /// A configuration file is at fault; displays as `FILE:LINE: message`.
    Config(ConfigError),
    /// The command line is at fault, in a way that only the command can tell.
    Usage(String),
    /// A key is at fault.
    Key(String),
    /// A privilege is missing that this user would need.
    Privilege(String),
    /// A daemon could not start or go on.
    Daemon(RunError),
    /// No daemon answers `status`.
    NoDaemon(String),
    #[cfg(feature = "lab")]
    /// A scenario is at fault; displays as `FILE:LINE: message`.
    Scenario(BadScenario),
    #[cfg(feature = "lab")]
    /// The machine lacks a privilege or a tool.
    Missing(Missing),
}

impl Failure {
    /// The documented code.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Run(_) => 1,
            Self::Usage(_) => 2,
            Self::Config(_)
            | Self::Key(_)
            | Self::Daemon(RunError::Key(_) | RunError::Config(_)) => 3,
            #[cfg(feature = "lab")]
            Self::Scenario(_) => 3,
            #[cfg(feature = "lab")]
            Self::Missing(_) => 4,
            Self::Privilege(_) | Self::Daemon(RunError::Privilege { .. }) => 4,
            Self::Daemon(RunError::Bind { .. } | RunError::Taken { .. }) => 5,
            Self::Daemon(RunError::Io(_)) => 1,
            Self::NoDaemon(_) => 6,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(error) => write!(f, "bentpipe: {error:#}"),
            Self::Config(error) => error.fmt(f),
            #[cfg(feature = "lab")]
            Self::Scenario(error) => error.fmt(f),
            #[cfg(feature = "lab")]
            Self::Missing(error) => write!(f, "bentpipe: {error}"),
            // These name file and line, as a wrong configuration does.
            Self::Daemon(
                error @ (RunError::Config(_)
                | RunError::Bind { .. }
                | RunError::Privilege { .. }
                | RunError::Taken { place: Some(_), .. }),
            ) => error.fmt(f),
            Self::Daemon(error) => write!(f, "bentpipe: {error}"),
            Self::Usage(fault)
            | Self::Key(fault)
            | Self::Privilege(fault)
            | Self::NoDaemon(fault) => write!(f, "bentpipe: {fault}"),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Run(error)
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        Self::Daemon(error)
    }
}

#[cfg(feature = "lab")]
impl From<BadScenario> for Failure {
    fn from(error: BadScenario) -> Self {
        Self::Scenario(error)
    }
}

#[cfg(feature = "lab")]
impl From<Missing> for Failure {
    fn from(error: Missing) -> Self {
        Self::Missing(error)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

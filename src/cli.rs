//! The command line, and nothing else: what can be asked and how it is explained.

mod authority;
#[cfg(feature = "lab")]
mod emulate;
#[cfg(feature = "lab")]
mod lab;
mod operator;

use std::path::{Path, PathBuf};

use bentpipe_pep::client::measure::ByteCount;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::exit::TABLE;
pub(crate) use authority::{Ca, CaCommand, CaInit, CaPlace};
#[cfg(feature = "lab")]
pub(crate) use emulate::{Demo, Emulate, Namespaces};
#[cfg(feature = "lab")]
pub(crate) use lab::{
    Compare as LabCompare, Lab, LabCommand, Leaks as LabLeaks, Merge as LabMerge,
    Report as LabReport, Run as LabRun,
};
#[cfg(target_os = "linux")]
pub(crate) use operator::Doctor;
pub(crate) use operator::{
    Add, Client, ClientCommand, Generate, Init, Join, Listed, Remove, Server, ServerCommand,
    ServerFile,
};

/// Text of `--version`, besides the name.
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit: ",
    env!("BENTPIPE_COMMIT"),
    "\ntarget: ",
    env!("BENTPIPE_TARGET"),
    "\nfeatures: ",
    env!("BENTPIPE_FEATURES"),
);

/// Encrypts and accelerates everything that crosses a satellite or other high-latency link.
#[derive(Debug, Parser)]
#[command(version, long_version = VERSION, after_help = TABLE, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Least severe level of the lines on standard error
    #[arg(long, global = true, value_enum, value_name = "LEVEL", default_value_t = LogLevel::Info)]
    pub(crate) log: LogLevel,

    /// Form of the log [default: text, with priorities instead of times where standard error is the journal]
    #[arg(long, global = true, value_enum, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print a new private key
    ///
    /// The key is 32 bytes in base64. With --out it goes into a new file of mode 0600, and one that exists is left alone.
    /// A file that standard output is redirected to is closed to everybody but its owner before the key is written.
    #[command(
        after_help = "Examples:\n  bentpipe genkey --out client.key\n  bentpipe genkey > client.key"
    )]
    Genkey(Genkey),

    /// Print the public key of the private key on standard input
    #[command(after_help = "Example:\n  bentpipe pubkey < client.key")]
    Pubkey,

    /// Run the client, at the terminal
    ///
    /// Takes in TCP as its configuration says and carries it to the server. Prints a line with "ready" once the tunnel
    /// is up; SIGINT and SIGTERM let open connections end first.
    #[command(
        after_help = "Example:\n  bentpipe client --config client.toml",
        mut_arg("config", |config| config.help("Configuration of the client [default: /etc/bentpipe/client.toml]"))
    )]
    Client(Client),

    /// Run the server, on the internet side
    ///
    /// Prints a line with "ready" once it serves. SIGHUP reads the list of clients again; SIGINT and SIGTERM let open
    /// connections end first.
    #[command(
        after_help = "Example:\n  bentpipe server --config server.toml",
        mut_arg("config", |config| config.help("Configuration of the server [default: /etc/bentpipe/server.toml]"))
    )]
    Server(Server),

    /// Run an operator's PEP, at either side of a link
    ///
    /// Relays the TCP of unmodified hosts to another PEP across the link, segment by segment. Prints a line with "ready"
    /// once it takes packets; what it cannot relay passes untouched. SIGINT and SIGTERM let relayed connections end first.
    #[cfg(target_os = "linux")]
    #[command(
        after_help = "Example:\n  bentpipe pep --config pep.toml",
        mut_arg("config", |config| config.help("Configuration of the PEP [default: /etc/bentpipe/pep.toml]"))
    )]
    Pep(Daemon),

    /// Run an origin of DSSL, before a web server
    ///
    /// Speaks TLS in the place of the web server at `upstream`. Browsers get what that answers; clients that list the host in `[dssl]`
    /// get pages that nobody on the way reads, and their objects ahead, sealed, by servers that `hubs` lists. Prints a line with
    /// "ready" once it serves; SIGINT and SIGTERM let open connections end first. Described in docs/dssl.md.
    #[command(after_help = "Example:\n  bentpipe origin --config origin.toml")]
    Origin(OriginFile),

    /// Validate a configuration file and the key file that it names
    ///
    /// Prints the first fault as `FILE:LINE: message` and exits with 3.
    #[command(
        after_help = "Example:\n  bentpipe check client.toml && systemctl restart bentpipe-client"
    )]
    Check(Check),

    /// Show what a running daemon is doing
    ///
    /// Without --socket the only daemon of this user is asked; among several, the one in the current network namespace.
    /// Exits with 6 if there is none. With --check prints one line and exits with 0 if the daemon is healthy, else with 1: a
    /// client and a PEP are healthy while their tunnel is up and answers, a server and an origin while they serve.
    #[command(
        after_help = "Examples:\n  bentpipe status\n  bentpipe status --json | jq .tunnel.rtt_ms\n  bentpipe status --check --role client"
    )]
    Status(Status),

    /// Make, show or remove the local CA, by which a client answers for named HTTPS hosts
    ///
    /// Only for hosts that `names` of the client's `[web]` lists, and only in browsers in which the CA was installed by hand.
    /// Whoever has its key can show these browsers certificates for those hosts. Described in docs/web.md.
    Ca(Ca),

    /// Find out what keeps a daemon from working on this machine
    ///
    /// Looks at the kernel, tools, routes, firewalls, files, and at what the configurations need; a client's server is reached by a
    /// real handshake. Prints a line for each thing, `ok`, `warn` or `fail`, each fault with its mend. Changes nothing. Exits with 1 if
    /// something fails. Without root it says what it could not look at.
    #[command(
        after_help = "Examples:\n  bentpipe doctor\n  bentpipe doctor --config client.toml --json | jq '.findings[] | select(.level == \"fail\")'"
    )]
    #[cfg(target_os = "linux")]
    Doctor(Doctor),

    /// Measure what the tunnel is worth on this link
    ///
    /// Transfers with the server's responder (`[responder]` of its file), or with --url, past the tunnel and through the running
    /// client in turns: small requests, a small page, a download, an upload. Says first how many bytes that takes, then how
    /// many times as fast the tunnel is, how sure that is, and plainly where it is no gain. Exits with 6 if no client runs.
    #[command(
        after_help = "Examples:\n  bentpipe measure\n  bentpipe measure --rounds 12 --size \"5 MB\" --report link.html\n  bentpipe measure --url http://www.example.com/file"
    )]
    Measure(Measure),

    /// Write tab completion, man pages and a page of all commands, for packages and the site
    #[command(hide = true)]
    Generate(Generate),

    /// Keep traffic in while no client runs
    ///
    /// `on` puts a table of its own in force, which drops what would leave in clear of all that the client's file
    /// intercepts, and lasts until `off`. It needs neither the network nor the client: start it first at boot.
    #[command(
        after_help = "Examples:\n  bentpipe guard on --config client.toml\n  bentpipe guard show\n  bentpipe guard off"
    )]
    #[cfg(target_os = "linux")]
    Guard(Guard),

    /// Show what bentpipe does: an emulated satellite link with and without it
    ///
    /// Builds user, terminal, gateway and web as network namespaces, with a link of 10/2 Mbit/s and an RTT of 500 ms
    /// between them; measures requests, a download and a page, plain and then through bentpipe; checks every byte, and
    /// that nothing crossed the link in clear. Takes two minutes. Needs root, or a kernel that allows user namespaces.
    #[cfg(feature = "lab")]
    #[command(after_help = "Examples:\n  bentpipe demo\n  bentpipe demo --keep")]
    Demo(Demo),

    /// Emulate a satellite link
    ///
    /// Between whole namespaces for user, terminal, gateway and web; with --join between namespaces that exist, each of
    /// which gets the TUN device sat0, up and without addresses; with --interfaces between two Ethernet interfaces of
    /// this machine. Prints a line with "ready", runs until SIGINT or SIGTERM, then prints as JSON what the link carried
    /// and whether the run is VALID. SIGUSR1 prints how it goes. Scenarios are described in docs/emulator.md.
    #[cfg(feature = "lab")]
    #[command(after_help = emulate::EXAMPLES)]
    Emulate(Emulate),

    /// Run experiments: contenders over emulated links, measured alike
    ///
    /// What an experiment's file says, and what comes of it, is described in docs/lab.md.
    #[cfg(feature = "lab")]
    Lab(Lab),
}

#[derive(Debug, Args)]
pub(crate) struct Genkey {
    /// Write the key into this new file, mode 0600, instead of standard output; directories that are missing are made, mode 0750
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct Guard {
    /// Command
    #[arg(value_enum)]
    pub(crate) action: GuardAction,

    /// The client's configuration [default: /etc/bentpipe/client.toml]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[cfg(target_os = "linux")]
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum GuardAction {
    /// Put it in force, or replace it
    On,
    /// Remove it
    Off,
    /// Print its rules with what they have dropped
    Show,
}

#[derive(Debug, Args)]
pub(crate) struct OriginFile {
    /// Configuration of the origin [default: /etc/bentpipe/origin.toml]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Daemon {
    /// Configuration of the daemon, whose default each command names
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Append TLS secrets to this file, for Wireshark: who reads it can read all traffic
    #[arg(long, value_name = "FILE")]
    pub(crate) key_log: Option<PathBuf>,

    /// Write a qlog trace of every connection into this directory, for qvis
    #[arg(long, value_name = "DIR")]
    pub(crate) qlog: Option<PathBuf>,
}

impl From<&Daemon> for bentpipe_pep::Diagnosis {
    fn from(daemon: &Daemon) -> Self {
        Self {
            key_log: daemon.key_log.clone(),
            qlog: daemon.qlog.clone(),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The configuration of a client, a server, a PEP or an origin
    pub(crate) file: PathBuf,

    /// Role of the file, if the file's content does not show it
    #[arg(long, value_enum)]
    pub(crate) role: Option<Role>,
}

#[derive(Debug, Args)]
pub(crate) struct Measure {
    /// The client's configuration [default: /etc/bentpipe/client.toml]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Transfer with this http:// URL instead of the server's responder: requests and downloads alone
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,

    /// Size of a download; an upload has a quarter of it
    #[arg(long, value_name = "SIZE", default_value = "2 MB")]
    pub(crate) size: ByteCount,

    /// Pairs of each kind of transfer; below 6 nothing is concluded
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) rounds: u32,

    /// Ceiling of all transfers' bytes together, both ways; where it is short there are fewer rounds
    #[arg(long, value_name = "SIZE", default_value = "100 MB")]
    pub(crate) max_bytes: ByteCount,

    /// Print the whole result as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Write the result as a page, too: one file, with every pair in a figure
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Print the whole document as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Print whether the daemon is healthy, and why; the exit code tells it, too
    #[arg(long, conflicts_with = "json")]
    pub(crate) check: bool,

    /// Show the state and the last minutes on one screen, drawn anew every second, until interrupted
    #[arg(long)]
    pub(crate) watch: bool,

    /// Ask a daemon in this role, of several that run
    #[arg(long, value_enum, conflicts_with = "socket")]
    pub(crate) role: Option<Role>,

    /// The daemon's socket
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

/// Daemon that a file configures.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Role {
    Client,
    Server,
    Pep,
    Origin,
}

impl From<Role> for bentpipe_pep::config::Role {
    fn from(role: Role) -> Self {
        match role {
            Role::Client => Self::Client,
            Role::Server => Self::Server,
            Role::Pep => Self::Pep,
            Role::Origin => Self::Origin,
        }
    }
}

impl Role {
    /// The configuration of the daemon in this role when the command line names none.
    pub(crate) fn default_config(self) -> &'static Path {
        bentpipe_pep::config::Role::from(self).default_config()
    }
}

/// Forms of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line for each event
    Text,
    /// A JSON object for each event, one a line
    Json,
}

/// Levels of the log.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl From<LogLevel> for tracing::Level {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}

//! The command line of what sets servers and clients up.

use std::path::PathBuf;
use std::time::Duration;

use bentpipe_pep::config::TimeSpan;
use clap::{Args, Subcommand};

use super::Daemon;

/// Shortest life of a code.
const SHORTEST: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub(crate) struct Generate {
    /// Directory for `completions`, `man` and `commands.md`; made if need be
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// The configuration of a daemon [default: those of client, server, PEP and origin in /etc/bentpipe that are there]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Print the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Server {
    #[command(flatten)]
    pub(crate) daemon: Daemon,

    #[command(subcommand)]
    pub(crate) command: Option<ServerCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ServerCommand {
    /// Make a key and a configuration for a server
    ///
    /// Nothing that exists is overwritten.
    #[command(
        after_help = "Examples:\n  bentpipe server init --public gateway.example.com\n  bentpipe server init --public gateway.example.com:443 --listen 4433"
    )]
    Init(Init),

    /// List a client, and print the code by which it joins
    ///
    /// A server that runs reads its list again. The code is good for one client and one time: whoever has it before that can join
    /// in the client's place, so hand it over as you would a password.
    #[command(after_help = "Example:\n  bentpipe server add terminal-1")]
    Add(Add),

    /// Print the clients, and which of them have joined
    List(Listed),

    /// Remove a client; a server that runs closes its tunnel
    Remove(Remove),
}

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// Address of the server for clients: a name or an IP address, with a UDP port if that is not 4433
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) public: String,

    /// UDP port of this machine that the server listens on, where a NAT leads another one to it; else that of `--public`
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) listen: Option<u16>,

    #[command(flatten)]
    pub(crate) file: ServerFile,
}

#[derive(Debug, Args)]
pub(crate) struct Add {
    /// The client's name in logs and `status`: letters, digits, dots, dashes and underscores
    pub(crate) name: String,

    /// Time for which the code may be used
    #[arg(long, value_name = "TIME", default_value = "24 h", value_parser = life)]
    pub(crate) expires: Duration,

    /// Print the code as a picture, too, although standard output is no terminal
    #[arg(long)]
    pub(crate) qr: bool,

    #[command(flatten)]
    pub(crate) file: ServerFile,
}

#[derive(Debug, Args)]
pub(crate) struct Listed {
    /// Print them as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) file: ServerFile,
}

#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// The client's name
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) file: ServerFile,
}

#[derive(Debug, Args)]
pub(crate) struct ServerFile {
    /// The server's configuration
    #[arg(long, value_name = "FILE", default_value = "/etc/bentpipe/server.toml")]
    pub(crate) config: PathBuf,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Client {
    #[command(flatten)]
    pub(crate) daemon: Daemon,

    #[command(subcommand)]
    pub(crate) command: Option<ClientCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClientCommand {
    /// Make a key and a configuration for a client, from the code that the server's operator has handed over
    ///
    /// The client names its key to the server when it first connects. Nothing that exists is overwritten.
    #[command(after_help = "Example:\n  bentpipe client join bentpipe://… --lan lan0")]
    Join(Join),
}

#[derive(Debug, Args)]
pub(crate) struct Join {
    /// Code that `bentpipe server add` has printed
    pub(crate) code: String,

    /// Take in what every host behind this interface sends; else applications use the proxies on 127.0.0.1
    #[arg(long, value_name = "IFACE")]
    pub(crate) lan: Vec<String>,

    /// The client's configuration, to be made
    #[arg(long, value_name = "FILE", default_value = "/etc/bentpipe/client.toml")]
    pub(crate) config: PathBuf,
}

/// Life of a code, a minute at least: it is handed over meanwhile.
fn life(text: &str) -> Result<Duration, String> {
    let span: TimeSpan = text.parse().map_err(|error| format!("{error}"))?;
    match span.get() {
        span if span < SHORTEST => Err(
            "a code has to be handed over while it may be used; allow \"1 min\" at least".into(),
        ),
        span => Ok(span),
    }
}

//! The binary `bentpipe`: reads the command line, starts logging and hands over to one command.
//!
//! ```text
//! cli (what was asked) ──► command/* (glue) ──► pep, lab (the work) ──► exit (how it ended)
//! ```

mod cli;
mod command;
mod exit;
mod log;

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Parser;

use crate::cli::{CaCommand, Cli, ClientCommand, Command, ServerCommand};
use exit::Failure;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => return tell(&answer),
    };
    let form = log::start(cli.log, cli.log_format);
    let code = run(cli).unwrap_or_else(|failure| {
        form.tell(&failure);
        failure.exit_code()
    });
    form.end();
    code
}

/// Prints help or version, which a script may read, or what is wrong with the command line.
fn tell(answer: &clap::Error) -> ExitCode {
    if answer.use_stderr() {
        answer.exit();
    }
    let printed = answer.print().and_then(|()| io::stdout().flush());
    match printed {
        // A reader that has gone, as `head` does, has read what it wanted.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let error = anyhow!("cannot write to standard output: {error}");
            let failure = Failure::Run(error);
            // Without a standard error there is nobody to tell.
            let _ = writeln!(io::stderr(), "{failure}");
            failure.exit_code()
        }
        _ => ExitCode::SUCCESS,
    }
}

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let done = match cli.command {
        Command::Genkey(options) => command::keys::genkey(&options),
        Command::Pubkey => command::keys::pubkey(),
        Command::Client(options) => match options.command {
            None => command::daemon::client(&options.daemon),
            Some(ClientCommand::Join(options)) => command::operator::join(&options),
        },
        Command::Server(options) => match options.command {
            None => command::daemon::server(&options.daemon),
            Some(ServerCommand::Init(options)) => command::operator::init(&options),
            Some(ServerCommand::Add(options)) => command::operator::add(&options),
            Some(ServerCommand::List(options)) => command::operator::list(&options),
            Some(ServerCommand::Remove(options)) => command::operator::remove(&options),
        },
        #[cfg(target_os = "linux")]
        Command::Pep(options) => command::daemon::pep(&options),
        Command::Origin(options) => command::daemon::origin(&options),
        Command::Check(options) => command::check::run(&options),
        // An unhealthy daemon is an answer, not a failure.
        Command::Status(options) => return command::status::run(&options),
        Command::Ca(options) => match options.command {
            CaCommand::Init(options) => command::authority::init(&options),
            CaCommand::Show(place) => command::authority::show(&place),
            CaCommand::Remove(place) => command::authority::remove(&place),
        },
        // What fails on the machine is an answer, too.
        #[cfg(target_os = "linux")]
        Command::Doctor(options) => return command::doctor::run(&options),
        Command::Measure(options) => command::measure::run(&options),
        Command::Generate(options) => command::generate::run(&options),
        #[cfg(target_os = "linux")]
        Command::Guard(options) => command::guard::run(&options),
        #[cfg(feature = "lab")]
        Command::Demo(options) => command::demo::run(&options),
        #[cfg(feature = "lab")]
        Command::Emulate(options) => command::emulate::run(&options),
        #[cfg(feature = "lab")]
        Command::Lab(options) => command::lab::run(&options),
    };
    done.map(|()| ExitCode::SUCCESS)
}

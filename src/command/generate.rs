//! `bentpipe generate DIR`: what packages and the site take from the program's own command line.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::{Cli, Generate};
use crate::exit::Failure;

/// The program's name in completions and man pages.
const NAME: &str = "bentpipe";

/// Shells, and what the completion of each is called where it looks for it.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bentpipe.bash"),
    (Shell::Zsh, "_bentpipe"),
    (Shell::Fish, "bentpipe.fish"),
];

/// Writes `DIR/completions`, `DIR/man` and `DIR/commands.md`.
pub(crate) fn run(options: &Generate) -> Result<(), Failure> {
    let completions = make(&options.directory, "completions")?;
    for (shell, name) in COMPLETIONS {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), NAME, &mut text);
        write(&completions.join(name), &text)?;
    }
    let man = make(&options.directory, "man")?;
    pages(Cli::command(), &man).context("cannot write man pages")?;
    let page = reference(Cli::command());
    write(&options.directory.join("commands.md"), page.as_bytes())
}

/// Help of the program and of each of its commands, as one page of Markdown.
fn reference(command: clap::Command) -> String {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut page =
        "# Commands\n\nThe text of `bentpipe COMMAND --help`, for each command.\n".to_owned();
    describe(&mut command, &mut page);
    page
}

/// Appends a chapter for `command`, then one for each of its subcommands that help shows.
fn describe(command: &mut clap::Command, page: &mut String) {
    let name = command.get_bin_name().unwrap_or(NAME).to_owned();
    let help = command.render_long_help().to_string();
    // Writing to a string does not fail.
    let _ = write!(page, "\n## {name}\n\n```text\n{}\n```\n", help.trim_end());
    for command in command.get_subcommands_mut() {
        if !command.is_hide_set() {
            describe(command, page);
        }
    }
}

/// A page for the program and one for each of its commands, `bentpipe-lab-run.1`.
fn pages(command: clap::Command, man: &Path) -> std::io::Result<()> {
    // Otherwise each command would have a page and an option of its own for help.
    let command = command.disable_help_subcommand(true);
    clap_mangen::generate_to(command, man)
}

fn make(directory: &Path, name: &str) -> Result<std::path::PathBuf, Failure> {
    let directory = directory.join(name);
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    Ok(directory)
}

fn write(file: &Path, text: &[u8]) -> Result<(), Failure> {
    Ok(fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?)
}

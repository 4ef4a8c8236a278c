//! Runs the system's own tools (`ip`, `nft`, …) and turns their failures into errors one can act on.
//!
//! Control path only. It neither parses output nor retries; arguments go to the program directly,
//! never through a shell.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Children that are remembered, for [`is_own_child`].
const CHILDREN: usize = 64;

/// Process ids of the last tools that were run, in a ring, and where the next goes.
static RUN: Mutex<([u32; CHILDREN], usize)> = Mutex::new(([0; CHILDREN], 0));

/// True if this process id is of a tool that this process ran lately: what the tool changed, we changed.
pub(crate) fn is_own_child(pid: u32) -> bool {
    let (children, _) = *RUN.lock().unwrap_or_else(PoisonError::into_inner);
    pid != 0 && children.contains(&pid)
}

fn remember_child(pid: u32) {
    let mut run = RUN.lock().unwrap_or_else(PoisonError::into_inner);
    let (children, next) = &mut *run;
    children[*next % CHILDREN] = pid;
    *next += 1;
}

/// Runs `program args…` in the calling thread's network namespace and returns its standard output.
///
/// # Errors
/// The program is missing (the text names the package to install) or ended with a failure (the text
/// shows the command and what it wrote to standard error).
pub fn run<A: AsRef<OsStr>>(program: &str, args: &[A]) -> io::Result<String> {
    run_command(tool(program).args(args))
}

/// A command that is also found where the system keeps its administrators' tools: the search path of ordinary users
/// lacks these directories, and `nft` is there.
#[must_use]
pub fn tool(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", search_path());
    command
}

/// True if [`tool`] would find `program`.
#[must_use]
pub fn is_installed(program: &str) -> bool {
    let path = search_path();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Directories in which [`tool`] looks for programs.
pub(crate) fn search_path() -> OsString {
    // An empty entry would mean the working directory.
    let path = std::env::var_os("PATH").filter(|path| !path.is_empty());
    let mut path = path.unwrap_or_else(|| "/usr/bin:/bin".into());
    path.push(":/usr/sbin:/sbin");
    path
}

/// Runs a prepared command to its end and returns its standard output. See [`run`] for errors.
pub fn run_command(command: &mut Command) -> io::Result<String> {
    finish(command.stdin(Stdio::null()), None)
}

/// Like [`run_command`], with `input` on the command's standard input.
pub fn run_with_input(command: &mut Command, input: &str) -> io::Result<String> {
    finish(command.stdin(Stdio::piped()), Some(input))
}

fn finish(command: &mut Command, input: Option<&str>) -> io::Result<String> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| cannot_start(command, &error))?;
    // Before it hears what to do: notices of its work are then known as ours.
    remember_child(child.id());
    if let Some(input) = input
        && let Some(mut stdin) = child.stdin.take()
    {
        // A program that dies before it has read everything says why on stderr: that is the better
        // message, so a broken pipe here is not an error of its own.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let text = format!(
        "`{}` failed ({}): {}",
        shown(command),
        output.status,
        stderr.trim()
    );
    Err(io::Error::new(kind_of(&stderr), text))
}

fn cannot_start(command: &Command, error: &io::Error) -> io::Error {
    let program = command.get_program().to_string_lossy();
    let mend = match (error.kind(), program.as_ref()) {
        (io::ErrorKind::NotFound, "ip" | "tc" | "ss" | "bridge") => {
            "; install the package iproute2"
        }
        (io::ErrorKind::NotFound, "nft") => "; install the package nftables",
        _ => "",
    };
    io::Error::new(
        error.kind(),
        format!("cannot start `{program}`: {error}{mend}"),
    )
}

/// Tools report the kernel's error as text only; callers want to match on it.
fn kind_of(stderr: &str) -> io::ErrorKind {
    if stderr.contains("Operation not permitted") || stderr.contains("Permission denied") {
        io::ErrorKind::PermissionDenied
    } else if stderr.contains("File exists") {
        io::ErrorKind::AlreadyExists
    } else if stderr.contains("No such ") || stderr.contains("Cannot find device") {
        io::ErrorKind::NotFound
    } else {
        io::ErrorKind::Other
    }
}

fn shown(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_shows_command_and_stderr() {
        let error = run("ls", &["/nonexistent-bentpipe"]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(
            error
                .to_string()
                .contains("`ls /nonexistent-bentpipe` failed"),
            "{error}"
        );
    }

    #[test]
    fn a_missing_tool_names_its_package() {
        let missing = io::Error::from(io::ErrorKind::NotFound);
        let error = cannot_start(&Command::new("nft"), &missing);
        assert!(
            error.to_string().ends_with("install the package nftables"),
            "{error}"
        );
    }

    #[test]
    fn tools_of_administrators_are_found() {
        // Through sh, whose own search path is what `tool` made.
        let shown = run_command(tool("sh").args(["-c", "echo $PATH"])).unwrap();
        assert!(shown.trim().ends_with(":/usr/sbin:/sbin"), "{shown}");
    }

    #[test]
    fn input_reaches_the_program() {
        assert_eq!(
            run_with_input(&mut Command::new("cat"), "x\n").unwrap(),
            "x\n"
        );
    }
}

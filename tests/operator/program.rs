//! What the program says of itself: version, completion, man pages, the form of its log.

use std::fs;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::config_errors::home::{Home, PATIENCE, run};
use crate::BENTPIPE;

fn stdout(arguments: &[&str]) -> String {
    let output = Command::new(BENTPIPE).args(arguments).output();
    let output = output.expect("bentpipe runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_long_version_says_what_was_built() {
    let long = stdout(&["--version"]);
    for line in ["bentpipe ", "commit: ", "target: ", "features: "] {
        let found = long.lines().find_map(|long| long.strip_prefix(line));
        assert!(found.is_some_and(|rest| !rest.is_empty()), "{line}: {long}");
    }
    assert_eq!(stdout(&["-V"]).lines().count(), 1);
}

#[test]
fn generate_writes_what_packages_install() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().to_str().expect("text");
    stdout(&["generate", path]);
    // A package is built anew over what was there.
    stdout(&["generate", path]);
    let read = |name: &str| {
        let file = directory.path().join(name);
        fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    };
    for (name, word) in [
        ("completions/bentpipe.bash", "--log-format"),
        ("completions/_bentpipe", "#compdef bentpipe"),
        ("completions/bentpipe.fish", "complete -c bentpipe"),
        ("man/bentpipe.1", "Exit codes"),
        ("man/bentpipe-status.1", "--watch"),
        ("man/bentpipe-lab-run.1", "--shard"),
        ("commands.md", "\n## bentpipe server add\n"),
    ] {
        // Dashes are escaped in pages.
        let text = read(name).replace("\\-", "-");
        assert!(text.contains(word), "no {word} in {name}");
    }
    for page in fs::read_dir(directory.path().join("man")).expect("a directory") {
        let name = page.expect("an entry").file_name();
        assert!(!name.to_string_lossy().contains("generate"), "{name:?}");
    }
    let help = stdout(&["--help"]);
    assert!(!help.contains("generate"), "{help}");
}

#[test]
fn a_daemon_without_its_usual_file_says_how_to_make_it() {
    if fs::exists("/etc/bentpipe").unwrap_or(true) {
        eprintln!("skipped: this machine has /etc/bentpipe");
        return;
    }
    for (role, word) in [
        ("server", "bentpipe server init"),
        ("client", "client join"),
        ("pep", "docs/sealed.md"),
        ("origin", "docs/dssl.md"),
    ] {
        let output = Command::new(BENTPIPE).arg(role).output();
        let output = output.expect("bentpipe runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains(word) && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn a_log_in_json_is_an_object_a_line_to_the_last() {
    let arguments = ["--log-format", "json", "client", "--config", "/none\u{9b}"];
    let output = Command::new(BENTPIPE).args(arguments).output();
    let said = output.expect("bentpipe runs").stderr;
    let said = String::from_utf8(said).expect("text");
    let object: Value = serde_json::from_str(&said).expect("an object");
    assert_eq!(object["level"], "ERROR");
    let message = object["message"].as_str().expect("text");
    assert!(message.contains("cannot read this file"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn the_journal_is_given_priorities_and_no_times() {
    let said = |stream: &str| {
        // The shell's own standard error, which the program has too.
        let output = Command::new("sh")
            .args([
                "-c",
                &format!("JOURNAL_STREAM={stream} exec \"$0\" client --config /none"),
            ])
            .arg(BENTPIPE)
            .output();
        String::from_utf8(output.expect("sh runs").stderr).expect("text")
    };
    let journal = said("$(stat -L -c %d:%i /dev/stderr)");
    assert!(journal.starts_with("<3>/none:1: "), "{journal}");
    // Redirected since.
    assert!(said("1:1").starts_with("/none:1: "));
}

#[test]
fn what_cannot_be_written_is_no_success() {
    for (line, word) in [
        ("--help > /dev/full", "No space left on device"),
        ("--version > /dev/full", "No space left on device"),
        ("server add --help > /dev/full", "No space left on device"),
        ("genkey > /dev/full", "No space left on device"),
        ("genkey >&-", "the key would be lost"),
    ] {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec \"$0\" {line}"), BENTPIPE]);
        run(&mut command).must_say(1, "bentpipe: ", &["standard output", word]);
    }
    // Whoever throws it away means it.
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" genkey > /dev/null", BENTPIPE]);
    assert_eq!(run(&mut command).code, Some(0));
}

#[test]
fn what_is_no_key_is_no_failure_of_the_program() {
    let home = Home::new();
    fs::write(home.path("binary"), [0xff, 0, 0xfe]).expect("a file");
    for input in ["binary", ".", "server.toml"] {
        let mut command = Command::new("sh");
        command
            .args(["-c", "exec \"$0\" pubkey < \"$1\"", BENTPIPE, input])
            .current_dir(home.directory.path());
        run(&mut command).must_say(3, "bentpipe: standard input: ", &[]);
    }
}

#[test]
fn a_trace_that_cannot_be_written_ends_a_daemon_as_one_place_does() {
    let home = Home::new();
    for option in ["--key-log", "--qlog"] {
        let mut daemon = home.daemon("client");
        daemon.args([option, "client.toml/none"]);
        let ended = run(&mut daemon);
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        let words = "client.toml/none: Not a directory";
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
}

/// As `head` does, which reads the first lines and goes.
#[test]
fn a_reader_that_goes_ends_the_program_quietly() {
    let home = Home::new();
    for arguments in [
        &["status", "--watch", "--socket", "none.sock"][..],
        &["status", "--watch", "--json", "--socket", "none.sock"],
        &["server", "list", "--config", "server.toml"],
        &["doctor", "--config", "none.toml"],
        &["check", "client.toml"],
        &["genkey"],
        &["emulate", "--presets"],
        &["--help"],
    ] {
        let mut program = Command::new(BENTPIPE)
            .args(arguments)
            .current_dir(home.directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("bentpipe starts");
        drop(program.stdout.take());
        let deadline = Instant::now() + PATIENCE;
        let ended = loop {
            match program.try_wait().expect("a child") {
                Some(ended) => break ended,
                None if Instant::now() < deadline => thread::sleep(Duration::from_millis(20)),
                None => {
                    program.kill().expect("it is ours");
                    panic!("{arguments:?} goes on");
                }
            }
        };
        let output = program.wait_with_output().expect("an output");
        let said = String::from_utf8_lossy(&output.stderr);
        // A configuration that is not there is a fault that was found.
        let code = i32::from(arguments[0] == "doctor");
        assert_eq!((ended.code(), &*said), (Some(code), ""), "{arguments:?}");
    }
}

/// As docs/exit-codes.md says of commands that catch no signal: a shell then shows 143. SIGINT would do as well, where the tests
/// themselves were not started without it.
#[test]
fn a_watch_that_is_interrupted_dies_of_the_signal() {
    let home = Home::new();
    let mut watch = Command::new(BENTPIPE)
        .args(["status", "--watch", "--socket", "none.sock"])
        .current_dir(home.directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("bentpipe starts");
    let mut first = [0];
    let mut screen = watch.stdout.take().expect("an output");
    screen.read_exact(&mut first).expect("an answer");
    kill_process(Pid::from_child(&watch), Signal::TERM).expect("it runs");
    let ended = watch.wait().expect("a child");
    assert_eq!((ended.code(), ended.signal()), (None, Some(15)));
}

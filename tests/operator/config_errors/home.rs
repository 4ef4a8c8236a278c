//! A configuration of each side in a directory, the daemons that run on it, and what they write.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_testbed::keys;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

use crate::BENTPIPE;

/// Who has no privileges.
const NOBODY: u32 = 65_534;

/// What a daemon that cannot start is given to say so.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A directory with a valid configuration of each side.
pub(crate) struct Home {
    pub(crate) directory: TempDir,
}

impl Home {
    /// Runs the client for a second, and returns its log.
    pub(crate) fn log_of_client(&self) -> String {
        let mut client = Command::new("timeout");
        client
            .args(["--signal=TERM", "1", BENTPIPE, "client", "--config"])
            .arg("client.toml")
            .current_dir(self.directory.path());
        run(&mut client).stderr
    }

    pub(crate) fn new() -> Self {
        let directory = tempfile::Builder::new()
            .prefix("bp-config-")
            .tempdir()
            .expect("a directory");
        let home = Self { directory };
        let client = keys::generate(BENTPIPE, &home.path("client.key")).expect("a key");
        let server = keys::generate(BENTPIPE, &home.path("server.key")).expect("a key");
        home.write(
            "server.toml",
            &format!(
                "private_key_file = \"server.key\"\n\
                 listen = \"127.0.0.1:0\"\n\
                 status_socket = \"server.sock\"\n\
                 [[client]]\n\
                 name = \"terminal-1\"\n\
                 public_key = \"{client}\"\n\
                 allow = [\"10.30.0.0/24\"]\n"
            ),
        );
        home.write(
            "client.toml",
            &format!(
                "private_key_file = \"client.key\"\n\
                 state_dir = \"state\"\n\
                 status_socket = \"client.sock\"\n\
                 [server]\n\
                 address = \"127.0.0.1:4433\"\n\
                 public_key = \"{server}\"\n\
                 [socks5]\n\
                 listen = \"127.0.0.1:0\"\n"
            ),
        );
        home
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        fs::write(self.path(file), text).expect("a file");
    }

    /// Replaces `old`, which is there once, with `new`.
    pub(crate) fn edit(&self, file: &str, old: &str, new: &str) {
        let text = fs::read_to_string(self.path(file)).expect("a file");
        assert_eq!(text.matches(old).count(), 1, "`{old}` in {text}");
        self.write(file, &text.replace(old, new));
    }

    /// `bentpipe ROLE` on its configuration, as an operator runs it: from the directory.
    pub(crate) fn daemon(&self, role: &str) -> Command {
        self.daemon_from(Path::new(BENTPIPE), role)
    }

    fn daemon_from(&self, program: &Path, role: &str) -> Command {
        let mut command = Command::new(program);
        command
            .args([role, "--config", &format!("{role}.toml")])
            .current_dir(self.directory.path());
        command
    }

    /// As [`Home::daemon`], for a user without privileges, who owns all that is here.
    pub(crate) fn daemon_of_nobody(&self, role: &str) -> Command {
        if !geteuid().is_root() {
            return self.daemon(role);
        }
        // Somewhere that nobody can get at: the build's own directory may be closed to others.
        let program = self.path("bentpipe");
        // By a process of its own: a file that is open for writing, here or in a child forked meanwhile, cannot be run.
        let copied = Command::new("cp").arg(BENTPIPE).arg(&program).status();
        assert!(copied.is_ok_and(|status| status.success()), "no copy");
        let entries = fs::read_dir(self.directory.path()).expect("a directory");
        let files = entries.map(|entry| entry.expect("an entry").path());
        for file in files.chain([self.directory.path().to_owned()]) {
            chown(file, Some(NOBODY), Some(NOBODY)).expect("a file of ours");
        }
        let mut command = self.daemon_from(&program, role);
        command.uid(NOBODY).gid(NOBODY);
        command
    }
}

/// How a process ended and what it wrote.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `command` to its end, which must come soon.
pub(crate) fn run(command: &mut Command) -> Ended {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("bentpipe starts");
    finish(child)
}

fn finish(mut child: Child) -> Ended {
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().expect("a child of ours").is_none() {
        if Instant::now() >= deadline {
            let _ = child.kill();
            let output = child.wait_with_output().expect("its output");
            panic!("still running: {}", String::from_utf8_lossy(&output.stderr));
        }
        thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().expect("its output");
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Ended {
    /// One line on standard error that begins with `place` and has every one of `words`; nothing else anywhere.
    pub(crate) fn must_say(&self, code: i32, place: &str, words: &[&str]) {
        let Self { stdout, stderr, .. } = self;
        assert_eq!(self.code, Some(code), "exit code; it wrote: {stderr}");
        assert_eq!(stdout, "", "standard output");
        assert_eq!(stderr.lines().count(), 1, "not one line:\n{stderr}");
        assert!(stderr.ends_with('\n'), "an unfinished line: {stderr}");
        assert!(stderr.starts_with(place), "not `{place}`: {stderr}");
        for word in words {
            assert!(stderr.contains(word), "no `{word}`: {stderr}");
        }
        for sign in ["panicked", "backtrace", "Error(", "Os {"] {
            assert!(!stderr.contains(sign), "`{sign}`: {stderr}");
        }
    }
}

/// A daemon that runs until this is dropped.
pub(crate) struct Running(Option<Child>);

impl Running {
    /// Starts `command` and waits for its status socket.
    pub(crate) fn start(mut command: Command, socket: &Path) -> Self {
        let child = command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("bentpipe starts");
        let running = Self(Some(child));
        let deadline = Instant::now() + PATIENCE;
        while !socket.exists() {
            assert!(Instant::now() < deadline, "no status socket");
            thread::sleep(Duration::from_millis(5));
        }
        running
    }

    /// Number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.0.as_ref().expect("it runs").id()
    }

    /// Sends it the signal of this name.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.is_ok_and(|status| status.success()), "no {name}");
    }

    /// SIGTERM and its end.
    pub(crate) fn stop(mut self) -> Ended {
        let child = self.0.take().expect("stopped once");
        kill_process(Pid::from_child(&child), Signal::TERM).expect("a child of ours");
        finish(child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

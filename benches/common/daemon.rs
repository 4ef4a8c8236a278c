//! Daemons of a bench, as their users run them.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

const BENTPIPE: &str = env!("CARGO_BIN_EXE_bentpipe");

/// A TCP port of 127.0.0.1 that nobody had a moment ago.
pub(crate) fn free_port() -> u16 {
    let probe = TcpListener::bind("127.0.0.1:0").expect("a port");
    probe.local_addr().expect("an address").port()
}

/// Makes a key file `NAME.key`; returns the public key.
pub(crate) fn make_key(directory: &Path, name: &str) -> String {
    let path = directory.join(format!("{name}.key"));
    let run = |command: &str, input: Stdio| {
        let output = Command::new(BENTPIPE).arg(command).stdin(input).output();
        output.expect("bentpipe runs").stdout
    };
    let key = run("genkey", Stdio::null());
    let file = fs::OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(&path);
    file.and_then(|mut file| file.write_all(&key))
        .expect("a key file");
    let public = run(
        "pubkey",
        fs::File::open(&path).expect("it was written").into(),
    );
    String::from_utf8(public).expect("base64").trim().to_owned()
}

/// A daemon that is killed with its guard.
pub(crate) struct Daemon(Child);

impl Daemon {
    pub(crate) fn start(directory: &Path, role: &str) -> Self {
        let log = directory.join(format!("{role}.log"));
        let child = Command::new(BENTPIPE)
            .args([role, "--config", &format!("{role}.toml")])
            .current_dir(directory)
            .stderr(fs::File::create(&log).expect("a log file"))
            .spawn();
        let daemon = Self(child.expect("bentpipe runs"));
        for _ in 0..1000 {
            if fs::read_to_string(&log).is_ok_and(|text| text.contains("ready")) {
                return daemon;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!(
            "{role} is not ready: {}",
            fs::read_to_string(&log).unwrap_or_default()
        );
    }

    /// Number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

//! Daemons on loopback addresses, as their users run them.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A port of 127.0.0.1 that nobody had a moment ago, neither for TCP nor for UDP.
pub fn free_port() -> u16 {
    loop {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = tcp.local_addr().expect("an address");
        if UdpSocket::bind(address).is_ok() {
            return address.port();
        }
    }
}

/// Time that a daemon has to end in order when its guard goes.
const ENDS: Duration = Duration::from_secs(1);

/// A running `bentpipe`, which ends with its guard.
#[derive(Debug)]
pub struct Daemon {
    child: Mutex<Child>,
    directory: PathBuf,
    log: PathBuf,
    home: Option<TempDir>,
}

impl Daemon {
    /// Starts `program` as `role` (`client` or `server`) in `directory`, with the configuration `NAME.toml` there; what it
    /// says goes to `NAME.log`.
    pub fn start(program: &str, role: &str, directory: &Path, name: &str) -> io::Result<Self> {
        let log = directory.join(format!("{name}.log"));
        let child = Command::new(program)
            .args([role, "--config", &format!("{name}.toml")])
            .current_dir(directory)
            .stdin(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()?;
        Ok(Self {
            child: Mutex::new(child),
            directory: directory.to_owned(),
            log,
            home: None,
        })
    }

    /// Keeps `home` for as long as the daemon runs.
    #[must_use]
    pub fn keeping(mut self, home: TempDir) -> Self {
        self.home = Some(home);
        self
    }

    /// Directory that the daemon was started in.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Number of the process.
    pub fn id(&self) -> u32 {
        self.child().id()
    }

    /// Text that the daemon has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).expect("a log")
    }

    /// Exit code of the daemon, if it has ended in order.
    pub fn ended(&self) -> Option<i32> {
        let status = self.child().try_wait().expect("a child");
        status.and_then(|status| status.code())
    }

    /// Waits until the daemon has logged `text`, and panics with the log if that takes longer than `patience`.
    pub fn wait_for(&self, text: &str, patience: Duration) {
        let deadline = Instant::now() + patience;
        while !self.log().contains(text) {
            assert!(Instant::now() < deadline, "no `{text}`:\n{}", self.log());
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn child(&self) -> std::sync::MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let mut child = self.child();
        // A server that is killed leaves its table and `ip_forward` in the machine's own namespace.
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| matches!(child.try_wait(), Ok(None))) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + ENDS;
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

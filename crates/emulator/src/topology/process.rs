//! A process of an experiment: started inside a namespace, ended and reaped by its guard.
//!
//! Signals go to its process ID while it is unreaped, so never to a stranger. What it writes to standard error
//! lands in a file, which is how one waits for its "ready" line. It restarts nothing.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bentpipe_sys::netns::NetNs;
use rustix::process::{Pid, Signal, kill_process};

/// Time that a process may take to end after SIGTERM before it gets SIGKILL.
const GRACE: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The guard of a running process: dropping it sends SIGTERM, after five seconds SIGKILL, and reaps.
#[derive(Debug)]
pub struct Process {
    running: Arc<RunningProgram>,
}

/// State that guard and topology share.
#[derive(Debug)]
pub(super) struct RunningProgram {
    name: String,
    child: Mutex<Child>,
    stderr: PathBuf,
}

impl Process {
    /// Starts `command` in `namespace`; its standard error goes to a fresh file in `directory`.
    pub(super) fn start(namespace: &NetNs, mut command: Command, directory: &Path) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = Path::new(command.get_program())
            .file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let stderr = directory.join(format!("{number}-{name}.stderr"));
        let file =
            File::create(&stderr).with_context(|| format!("cannot create {}", stderr.display()))?;
        // A group of its own: Ctrl-C at the terminal reaches us, and we end it in our order.
        command
            .stdin(Stdio::null())
            .stderr(Stdio::from(file))
            .process_group(0);
        // A child starts in the network namespace of the thread that forks it.
        let child = namespace.enter(|| command.spawn())?.with_context(|| {
            let program = command.get_program().to_string_lossy();
            format!("cannot start {program} in {}", namespace.name())
        })?;
        Ok(Self {
            running: Arc::new(RunningProgram {
                name,
                child: Mutex::new(child),
                stderr,
            }),
        })
    }

    pub(super) fn running(&self) -> Weak<RunningProgram> {
        Arc::downgrade(&self.running)
    }

    /// Process ID.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.running.child().id()
    }

    /// Text that the process has written to standard error so far.
    #[must_use]
    pub fn stderr_text(&self) -> String {
        let bytes = fs::read(&self.running.stderr).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until a whole line of its standard error contains `text`.
    ///
    /// # Errors
    /// The process ended or `timeout` passed first; the text shows what it wrote.
    pub fn wait_for_line(&self, text: &str, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        loop {
            // Asked before reading: what it wrote before it ended is then all there.
            let ended = self.try_wait()?;
            let stderr = self.stderr_text();
            let complete = stderr.rfind('\n').map_or("", |end| &stderr[..end]);
            if complete.lines().any(|line| line.contains(text)) {
                return Ok(());
            }
            let name = &self.running.name;
            if let Some(status) = ended {
                bail!("{name} ended ({status}) before it said `{text}`; it wrote:\n{stderr}");
            }
            if Instant::now() >= deadline {
                bail!("{name} did not say `{text}` within {timeout:?}; it wrote:\n{stderr}");
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until it has made `file`, such as the socket that it takes orders at.
    ///
    /// # Errors
    /// It ended before, or has not made it after `timeout`; the text has what it wrote to stderr.
    pub fn wait_for_file(&self, file: &Path, timeout: Duration) -> Result<()> {
        self.wait_until(&format!("made {}", file.display()), timeout, || {
            file.exists()
        })
    }

    /// Waits until somebody in its network namespace listens at a TCP port.
    ///
    /// # Errors
    /// It ended before, or nobody does after `timeout`; the text has what it wrote to stderr.
    pub fn wait_for_listener(&self, port: u16, timeout: Duration) -> Result<()> {
        let tables = ["tcp", "tcp6"].map(|table| format!("/proc/{}/net/{table}", self.id()));
        self.wait_until(&format!("listened at port {port}"), timeout, || {
            let mut texts = tables
                .iter()
                .filter_map(|path| fs::read_to_string(path).ok());
            texts.any(|text| text.lines().any(|line| listens(line, port)))
        })
    }

    fn wait_until(&self, what: &str, timeout: Duration, done: impl Fn() -> bool) -> Result<()> {
        let deadline = Instant::now() + timeout;
        while !done() {
            let name = &self.running.name;
            if let Some(status) = self.try_wait()? {
                let stderr = self.stderr_text();
                bail!("{name} ended ({status}) before it {what}; it wrote:\n{stderr}");
            }
            if Instant::now() >= deadline {
                let stderr = self.stderr_text();
                bail!("{name} had not {what} after {timeout:?}; it wrote:\n{stderr}");
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Exit status of the process, if it has ended.
    ///
    /// # Errors
    /// The kernel cannot tell, which means that somebody else has reaped it.
    pub fn try_wait(&self) -> Result<Option<ExitStatus>> {
        self.running
            .child()
            .try_wait()
            .with_context(|| format!("cannot ask after {}", self.running.name))
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It has not ended after `timeout`.
    pub fn wait(&self, timeout: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                bail!("{} is still running after {timeout:?}", self.running.name);
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Sends a signal (SIGKILL, SIGHUP, …). A process that has ended gets none.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.running.signal(signal)
    }

    /// Ends it like dropping does, and returns once it is reaped.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.running.end();
    }
}

impl RunningProgram {
    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let mut child = self.child();
        // Under the lock and unreaped: the ID is still its own.
        if child.try_wait()?.is_some() {
            return Ok(());
        }
        kill_process(Pid::from_child(&child), signal)
            .with_context(|| format!("cannot send {signal:?} to {}", self.name))
    }

    /// SIGTERM, a grace period, SIGKILL; reaped when this returns.
    pub(super) fn end(&self) {
        // A failure here leaves SIGKILL to do the work.
        let _ = self.signal(Signal::TERM);
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline {
            if !matches!(self.child().try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(POLL_INTERVAL);
        }
        let mut child = self.child();
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// True if a line of `/proc/net/tcp` is of a socket that listens at `port`, as in `0: 0100007F:1F90 00000000:0000 0A`.
fn listens(line: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let mut fields = line.split_whitespace().skip(1);
    let local = fields.next().and_then(|address| address.rsplit_once(':'));
    let state = fields.nth(1);
    let at = local.and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
    state == Some(LISTEN) && at == Some(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_listening_socket_of_that_port_counts() {
        let of = |state: &str| {
            format!(
                "   0: 00000000000000000000000000000000:1F90 00000000:0000 {state} 00000000:00000000 00:00000000"
            )
        };
        assert!(listens(&of("0A"), 8080));
        assert!(!listens(&of("0A"), 80));
        assert!(!listens(&of("01"), 8080));
        assert!(!listens(
            "  sl  local_address rem_address   st tx_queue rx_queue",
            8080
        ));
    }
}

//! Named network namespaces, compatible with `ip netns` (files in `/run/netns`).
//!
//! A namespace belongs to a thread, not to a process: [`NetNs::enter`] therefore runs its closure on a
//! thread of its own, and sockets or devices opened there stay in the namespace wherever they are used
//! afterwards. Links, addresses and routes are `ip`'s work, through [`NetNs::run`]. Mount namespaces are
//! left alone: `/sys/class/net` inside a namespace shows the caller's interfaces.
#![expect(
    unsafe_code,
    reason = "Command::pre_exec is how a child starts inside a namespace"
)]

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::command::{run, run_command, tool};

const DIRECTORY: &str = "/run/netns";

/// An open network namespace. It lives as long as this handle, a process in it, or its name.
#[derive(Debug, Clone)]
pub struct NetNs {
    name: String,
    // Shared with the commands made from it, which may run after the handle is gone.
    file: Arc<File>,
}

impl NetNs {
    /// Makes and opens the namespace `name`; its loopback device is up.
    ///
    /// # Errors
    /// The name is taken, the privilege is missing, or `ip` is not installed.
    pub fn create(name: &str) -> io::Result<Self> {
        run("ip", &["netns", "add", name])?;
        let made = Self::open(name)?;
        made.run("ip", &["link", "set", "lo", "up"])?;
        Ok(made)
    }

    /// Makes the namespace `name` and deletes it when the guard is dropped.
    ///
    /// # Errors
    /// As [`NetNs::create`].
    pub fn temporary(name: &str) -> io::Result<NetNsGuard> {
        Self::create(name).map(NetNsGuard)
    }

    /// Opens a namespace by its name, or by a path (anything with a `/`, such as `/proc/7/ns/net`).
    ///
    /// # Errors
    /// There is no such namespace, or it may not be opened.
    pub fn open(name_or_path: &str) -> io::Result<Self> {
        let path = path_of(name_or_path);
        let file = File::open(&path).map_err(|error| {
            let text = format!(
                "cannot open network namespace `{name_or_path}` ({}): {error}; `ip netns list` shows those that exist",
                path.display()
            );
            io::Error::new(error.kind(), text)
        })?;
        Ok(Self {
            name: name_or_path.to_owned(),
            file: Arc::new(file),
        })
    }

    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn current() -> io::Result<Self> {
        Self::open("/proc/thread-self/ns/net")
    }

    /// The name or path it was opened by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Removes a namespace's name. The namespace itself ends with its last process and handle.
    ///
    /// # Errors
    /// There is no such name, or the privilege is missing.
    pub fn delete(name: &str) -> io::Result<()> {
        run("ip", &["netns", "del", name]).map(drop)
    }

    /// Runs `work` on a fresh thread inside the namespace and returns its result. The caller waits and
    /// stays in its own namespace. A panic in `work` continues in the caller.
    ///
    /// # Errors
    /// The namespace cannot be entered (CAP_SYS_ADMIN is needed), or no thread can be made.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        thread::scope(|scope| {
            let inside = move || {
                self.move_thread()?;
                Ok(work())
            };
            let thread = thread::Builder::new()
                .name("netns".into())
                .spawn_scoped(scope, inside)?;
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// A command that will run inside the namespace. Only its network is inside: mounts (and so
    /// `/sys`, `/etc/resolv.conf`) are the caller's, unlike with `ip netns exec`.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = tool(program);
        let file = Arc::clone(&self.file);
        let setns = move || Ok(set_namespace(file.as_fd())?);
        // SAFETY: between fork and exec the closure makes one system call on an open descriptor: it
        // takes no lock, allocates nothing, and touches no memory the parent might have been changing.
        unsafe { command.pre_exec(setns) };
        command
    }

    /// Runs `program args…` inside the namespace and returns its standard output.
    ///
    /// # Errors
    /// As [`crate::command::run`]; the text names the namespace.
    pub fn run<A: AsRef<OsStr>>(&self, program: &str, args: &[A]) -> io::Result<String> {
        run_command(self.command(program).args(args)).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("in network namespace `{}`: {error}", self.name),
            )
        })
    }

    fn move_thread(&self) -> io::Result<()> {
        set_namespace(self.file.as_fd()).map_err(|error| {
            let error = io::Error::from(error);
            let text = format!(
                "cannot enter network namespace `{}`: {error}; needs CAP_SYS_ADMIN (run as root or in a user namespace)",
                self.name
            );
            io::Error::new(error.kind(), text)
        })
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A namespace that is deleted, with everything in it, when this is dropped.
#[derive(Debug)]
pub struct NetNsGuard(NetNs);

impl Deref for NetNsGuard {
    type Target = NetNs;

    fn deref(&self) -> &NetNs {
        &self.0
    }
}

impl Drop for NetNsGuard {
    fn drop(&mut self) {
        // Drop cannot report; a name that somebody else already deleted is no harm.
        let _ = NetNs::delete(&self.0.name);
    }
}

fn path_of(name_or_path: &str) -> PathBuf {
    if name_or_path.contains('/') {
        PathBuf::from(name_or_path)
    } else {
        Path::new(DIRECTORY).join(name_or_path)
    }
}

fn set_namespace(namespace: BorrowedFd<'_>) -> rustix::io::Result<()> {
    move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))
}

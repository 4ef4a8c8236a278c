//! Reasons why a status socket cannot be bound.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use thiserror::Error;

/// True once a sandbox closes the file system to this process, but for what was there at its start.
static FILES_CLOSED: AtomicBool = AtomicBool::new(false);

/// A sandbox closes the file system from now on.
#[cfg(target_os = "linux")]
pub(crate) fn on_closed_files() {
    FILES_CLOSED.store(true, Ordering::Relaxed);
}

/// True if a sandbox closes the file system.
pub(super) fn are_files_closed() -> bool {
    FILES_CLOSED.load(Ordering::Relaxed)
}

/// A status socket that cannot be bound.
#[derive(Debug, Error)]
pub enum SocketError {
    /// Another daemon answers there.
    #[error("status socket {} is served by another daemon; stop it or set another `status_socket`", .0.display())]
    InUse(PathBuf),
    /// Something that is no socket is in the way.
    #[error("{} exists and is no socket; set another `status_socket`", .0.display())]
    NotASocket(PathBuf),
    /// A socket that no daemon of this user has made is in the way.
    #[error("{} is a socket of another program, or of another user's daemon, and stays; set another `status_socket`", .0.display())]
    Foreign(PathBuf),
    /// The socket's directory is missing. To make it later is not enough where a sandbox is closed, which has what was there at the start.
    #[error(
        "status socket {} has no directory; make it{}", .path.display(),
        if *.closed { " and restart this daemon" } else { "" }
    )]
    NoDirectory {
        /// The socket.
        path: PathBuf,
        /// A sandbox closes the file system.
        closed: bool,
    },
    /// The socket's directory has come, or come again, after the daemon's sandbox was closed.
    #[error("status socket {} is in a directory that was made after this daemon's start, which its sandbox does not let it use; restart this daemon", .0.display())]
    LateDirectory(PathBuf),
    /// The kernel said no.
    #[error("cannot bind status socket {}: {source}; make its directory writable or set another `status_socket`", .path.display())]
    Bind {
        /// The socket.
        path: PathBuf,
        /// Error that was met.
        source: io::Error,
    },
}

impl SocketError {
    /// Reason why `path` cannot be bound, of what the kernel said; `closed`: a sandbox closes the file system.
    pub(super) fn why(path: PathBuf, source: io::Error, closed: bool) -> Self {
        let directory = path.parent().unwrap_or(Path::new(""));
        let may_write = || {
            let wanted = Access::WRITE_OK | Access::EXEC_OK;
            accessat(CWD, directory, wanted, AtFlags::EACCESS).is_ok()
        };
        match source.kind() {
            _ if !directory.exists() => Self::NoDirectory { path, closed },
            // Nobody but the sandbox is left to refuse: it holds the directories that were there at the start.
            io::ErrorKind::PermissionDenied if closed && may_write() => Self::LateDirectory(path),
            _ => Self::Bind { path, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_sandbox_a_restart_is_asked_of_nobody() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("late").join("client.sock");
        let absent = || io::Error::from(io::ErrorKind::NotFound);
        let said = |closed| SocketError::why(path.clone(), absent(), closed).to_string();
        assert!(said(false).ends_with("has no directory; make it"));
        assert!(said(true).ends_with("make it and restart this daemon"));
        // Somebody else refuses, in a directory that may be written to.
        let path = place.path().join("client.sock");
        let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
        let why = |closed| SocketError::why(path.clone(), refused(), closed);
        assert!(matches!(why(false), SocketError::Bind { .. }));
        assert!(matches!(why(true), SocketError::LateDirectory(_)));
    }
}

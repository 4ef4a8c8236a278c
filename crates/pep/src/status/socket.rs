//! The unix socket between a daemon and `bentpipe status`.
//!
//! Every daemon binds `ROLE-PID.sock`, mode 0600, in the first run directory that it may write: the service manager's
//! `$RUNTIME_DIRECTORY`, `/run/bentpipe` of root or of its owner, `/run/user/UID/bentpipe`,
//! `/tmp/bentpipe-UID` (`directory.rs`). Nothing is asked, bound or removed in a directory that somebody else may write. Whether a socket
//! is alive is asked of the socket itself: a dead daemon's refuses connections, whatever has become of its process id.
//!
//! Who asks removes nothing. A daemon removes its own socket, and replaces or removes those of dead daemons (`left.rs`).

mod directory;
mod error;
mod left;
mod query;

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs};

use tokio::io::AsyncWriteExt;
use tokio::net::UnixListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{sleep, timeout};

use super::StatusReport;
use crate::config::Role;
pub(super) use directory::RunDirectory;
pub use error::SocketError;
use error::are_files_closed;
#[cfg(target_os = "linux")]
pub(crate) use error::on_closed_files;
use left::{FileId, Occupant};
#[cfg(test)]
pub(super) use query::query_in;
pub use query::{Found, QueryError, query};

/// Time for which either end waits for the other.
const PATIENCE: Duration = Duration::from_secs(2);

/// Time from one look whether the socket's file is still there to the next.
const LOOK: Duration = Duration::from_secs(5);

/// A status socket, bound or to be bound as soon as that is possible; its file goes when this is dropped.
pub struct StatusSocket {
    role: Role,
    /// Path of the configuration.
    configured: Option<PathBuf>,
    bound: Option<BoundSocket>,
    /// Reason why the socket is not bound, as the log was told.
    fault: Option<String>,
    /// SIGUSR1: the report goes to the log.
    wanted: Option<Signal>,
}

/// A status socket's listener and file.
struct BoundSocket {
    listener: UnixListener,
    path: PathBuf,
    /// File that this process has made at the path.
    file: FileId,
}

impl fmt::Debug for StatusSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StatusSocket").field(&self.path()).finish()
    }
}

impl StatusSocket {
    /// Binds `path` (`status_socket` of the configuration), or without one `ROLE-PID.sock` in the run directory, from
    /// which sockets of dead daemons are removed. Where that is not possible the log is told, and it is tried again every few seconds: no
    /// daemon ends for it. To be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`SocketError::InUse`] alone: another daemon answers at `path`, so that this one was started by mistake.
    pub fn bind(role: Role, path: Option<&Path>) -> Result<Self, SocketError> {
        let mut socket = Self {
            role,
            configured: path.map(Path::to_owned),
            bound: None,
            fault: None,
            wanted: signal(SignalKind::user_defined1()).ok(),
        };
        match socket.attempt() {
            Err(error @ SocketError::InUse(_)) => Err(error),
            tried => {
                socket.take(tried);
                Ok(socket)
            }
        }
    }

    fn attempt(&self) -> Result<BoundSocket, SocketError> {
        match &self.configured {
            Some(path) => BoundSocket::at(path.clone(), are_files_closed()),
            None => BoundSocket::within(&RunDirectory::own(), self.role),
        }
    }

    /// Takes what an attempt has brought, and tells the log of what is new about that.
    fn take(&mut self, tried: Result<BoundSocket, SocketError>) {
        match tried {
            Ok(bound) => {
                if self.fault.take().is_some() {
                    tracing::info!("status socket {} is bound now", bound.path.display());
                }
                self.bound = Some(bound);
            }
            Err(error) => {
                let fault = error.to_string();
                if self.fault.as_ref() != Some(&fault) {
                    tracing::warn!(
                        "{fault}: `bentpipe status` does not find this daemon until that is mended; SIGUSR1 puts the report into this log"
                    );
                }
                self.fault = Some(fault);
            }
        }
    }

    /// Binds in the first of `directories` that can be used.
    #[cfg(test)]
    pub(super) fn bind_in(directories: &[RunDirectory], role: Role) -> Result<Self, SocketError> {
        Ok(Self {
            role,
            configured: None,
            bound: Some(BoundSocket::within(directories, role)?),
            fault: None,
            wanted: None,
        })
    }

    /// Path of the socket, once it is bound.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.bound.as_ref().map(|bound| bound.path.as_path())
    }

    /// Answers every connection with what `snapshot` gives at that moment, one at a time, until dropped; SIGUSR1 puts it
    /// into the log.
    pub async fn serve(mut self, snapshot: impl Fn() -> StatusReport) {
        let mut wanted = self.wanted.take();
        let asked = async {
            match &mut wanted {
                Some(wanted) => {
                    while wanted.recv().await.is_some() {
                        for line in snapshot().to_string().lines() {
                            tracing::info!("status: {}", printable(line));
                        }
                    }
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = asked => {}
            () = self.answer(&snapshot) => {}
        }
    }

    async fn answer(&mut self, snapshot: &impl Fn() -> StatusReport) {
        let mut told = false;
        loop {
            let asked = async {
                match &self.bound {
                    Some(bound) => bound.listener.accept().await,
                    None => std::future::pending().await,
                }
            };
            let Ok(asked) = timeout(LOOK, asked).await else {
                self.keep(&mut told);
                continue;
            };
            let Ok((mut stream, _)) = asked else {
                // Out of descriptors, most likely: status can wait.
                sleep(PATIENCE).await;
                continue;
            };
            let mut document =
                serde_json::to_vec(&snapshot()).expect("a report has string keys only");
            document.push(b'\n');
            // Who asks and does not listen gets nothing; the next one must not wait long for that.
            let answer = async {
                stream
                    .write_all(&document)
                    .await
                    .and(stream.shutdown().await)
            };
            if !matches!(timeout(PATIENCE, answer).await, Ok(Ok(()))) {
                tracing::debug!("a status request was given up by its sender");
            }
        }
    }
}

impl StatusSocket {
    /// Binds the socket if it was not possible before, or if another program has removed its file; the log is `told` of a failure once.
    pub(super) fn keep(&mut self, told: &mut bool) {
        let Some(bound) = &mut self.bound else {
            let tried = self.attempt();
            return self.take(tried);
        };
        if fs::symlink_metadata(&bound.path).is_ok() {
            *told = false;
            return;
        }
        let path = bound.path.display();
        match listen(&bound.path) {
            Ok((listener, file)) => {
                tracing::warn!("status socket {path} was removed by another program; it is back");
                bound.listener = listener;
                bound.file = file;
            }
            Err(error) if !std::mem::replace(told, true) => tracing::warn!(
                "status socket {path} was removed by another program and cannot be bound again: {}; `bentpipe status` does \
                 not find this daemon until that is mended, which is looked for every {} s",
                SocketError::why(bound.path.clone(), error, are_files_closed()),
                LOOK.as_secs()
            ),
            Err(_) => {}
        }
    }
}

impl BoundSocket {
    /// Binds in the first of `directories` that can be used.
    fn within(directories: &[RunDirectory], role: Role) -> Result<Self, SocketError> {
        let mut failure = None;
        for directory in directories {
            match directory.make() {
                Ok(()) => {
                    directory.sockets().for_each(|socket| left::clear(&socket));
                    let name = format!("{role}-{}.sock", std::process::id());
                    return Self::at(directory.path().join(name), are_files_closed());
                }
                Err(source) => {
                    failure = Some(SocketError::Bind {
                        path: directory.path().to_owned(),
                        source,
                    });
                }
            }
        }
        Err(failure.expect("there is always a directory to try"))
    }

    /// Binds at `path`; says why not, where a sandbox closes the file system or does not.
    fn at(path: PathBuf, closed: bool) -> Result<Self, SocketError> {
        match Occupant::of(&path) {
            Occupant::Nothing | Occupant::Left => {}
            Occupant::NoSocket => return Err(SocketError::NotASocket(path)),
            Occupant::Daemon => return Err(SocketError::InUse(path)),
            Occupant::Stranger => return Err(SocketError::Foreign(path)),
        }
        match listen(&path) {
            Ok((listener, file)) => Ok(Self {
                listener,
                path,
                file,
            }),
            Err(source) => Err(SocketError::why(path, source, closed)),
        }
    }
}

/// Listens at `path`, in the file that is returned.
fn listen(path: &Path) -> io::Result<(UnixListener, FileId)> {
    // Renamed into place only when it listens and is closed to others: whoever sees it, sees it whole.
    let unborn = path.with_extension(format!("{}.new", std::process::id()));
    let listener = UnixListener::bind(&unborn)?;
    let placed = fs::set_permissions(&unborn, fs::Permissions::from_mode(0o600))
        .and_then(|()| FileId::of(&unborn))
        .and_then(|file| fs::rename(&unborn, path).map(|()| file));
    if placed.is_err() {
        // It would be in the way of the next try.
        let _ = fs::remove_file(&unborn);
    }
    placed.map(|file| (listener, file))
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        // Another program may have put something else there since.
        if FileId::of(&self.path).is_ok_and(|there| there == self.file) {
            // Nothing else can be done on the way out.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The run directories that this user's daemons may use, those that are there; the first one that can be is made.
#[cfg(target_os = "linux")]
pub(crate) fn run_directories() -> Vec<PathBuf> {
    let own = RunDirectory::own();
    let _made = own.iter().find(|directory| directory.make().is_ok());
    own.iter()
        .filter(|directory| directory.is_own())
        .map(|directory| directory.path().to_owned())
        .collect()
}

/// Connects to `socket`, and waits no longer than that for its answers.
fn connect(socket: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// `text` without what would command a terminal: a report of another user's process is shown to root.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use bentpipe_sys::sandbox::{Files, Sandbox};

    use super::*;

    #[test]
    fn a_directory_that_comes_after_the_sandbox_asks_for_a_restart() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("late");
        let path = directory.join("client.sock");
        let (made, comes) = channel();
        let (failed, fault) = channel();
        let daemon = thread::spawn(move || {
            let entered = Sandbox::default().enter_with_this_thread().unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let _context = runtime.enter();
            let closed = entered.files != Files::Unavailable;
            let attempt = || BoundSocket::at(path.clone(), closed).err();
            failed.send(attempt()).unwrap();
            comes.recv().unwrap();
            failed.send(attempt()).unwrap();
            entered.files
        });
        let first = fault.recv().unwrap().unwrap();
        assert!(matches!(first, SocketError::NoDirectory { .. }), "{first}");
        fs::create_dir(&directory).unwrap();
        made.send(()).unwrap();
        let second = fault.recv().unwrap();
        match (daemon.join().unwrap(), second) {
            // Nothing is closed, so it can be bound.
            (Files::Unavailable, second) => assert!(second.is_none(), "{second:?}"),
            (_, second) => {
                let late = matches!(second, Some(SocketError::LateDirectory(_)));
                assert!(late, "{second:?}");
            }
        }
    }
}

//! The unix socket between a daemon and `bentpipe status`.
//!
//! Every daemon binds `ROLE-PID.sock`, mode 0600, in the first run directory that it may write: `/run/bentpipe`,
//! `/run/user/UID/bentpipe`, `/tmp/bentpipe-UID`, each mode 0700 and its owner's. Whether a socket is alive is asked of
//! the socket itself: a dead daemon's refuses connections, whatever has become of its process id.

use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs};

use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixListener;
use tokio::time::{sleep, timeout};

use super::StatusReport;
use crate::config::Role;

/// How long either end waits for the other.
const PATIENCE: Duration = Duration::from_secs(2);
/// Largest document accepted: ten thousand clients and room to spare.
const MAX_DOCUMENT: u64 = 32 << 20;

/// A status socket that cannot be bound.
#[derive(Debug, Error)]
pub enum SocketError {
    /// Another daemon answers there.
    #[error("status socket {} is served by another daemon; stop it or set another `status_socket`", .0.display())]
    InUse(PathBuf),
    /// Something that is no socket is in the way.
    #[error("{} exists and is no socket; remove it or set another `status_socket`", .0.display())]
    NotASocket(PathBuf),
    /// The kernel said no.
    #[error("cannot bind status socket {}: {source}", .path.display())]
    Bind {
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// A daemon that could be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its socket.
    pub socket: PathBuf,
    /// Its process id, as this process sees it.
    pub pid: u32,
}

/// No report could be had.
#[derive(Debug, Error)]
pub enum QueryError {
    /// No daemon is running, or none that this user may ask.
    #[error("no bentpipe daemon of this user is running (no live socket in {})", list(.0))]
    NoDaemon(Vec<PathBuf>),
    /// Nobody answers at the socket given.
    #[error("no daemon answers at {}: {source}", .socket.display())]
    Unreachable {
        /// The socket asked.
        socket: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Several daemons could be meant.
    #[error("several daemons are running; choose one with --socket: {}", list(.0.iter().map(|found| &found.socket)))]
    Several(Vec<Found>),
    /// What came back is no report.
    #[error("{} does not answer with a status report: {source}", .socket.display())]
    Malformed {
        /// The socket asked.
        socket: PathBuf,
        /// What is wrong with the answer.
        source: serde_json::Error,
    },
}

impl QueryError {
    /// Whether no daemon is there to ask, as opposed to an unclear question or answer.
    #[must_use]
    pub fn is_no_daemon(&self) -> bool {
        matches!(self, Self::NoDaemon(_) | Self::Unreachable { .. })
    }
}

fn list<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> String {
    let paths: Vec<_> = paths
        .into_iter()
        .map(|path| path.as_ref().display().to_string())
        .collect();
    paths.join(", ")
}

/// A bound status socket; its file goes when this is dropped.
pub struct StatusSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl fmt::Debug for StatusSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StatusSocket").field(&self.path).finish()
    }
}

impl StatusSocket {
    /// Binds `path` (`status_socket` of the configuration), or without one `ROLE-PID.sock` in the run directory, from
    /// which sockets of dead daemons are removed. To be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`SocketError`] if the place is taken or cannot be written.
    pub fn bind(role: Role, path: Option<&Path>) -> Result<Self, SocketError> {
        match path {
            Some(path) => Self::bind_at(path.to_owned()),
            None => Self::bind_in(&run_directories(), role),
        }
    }

    /// Binds in the first of `directories` that can be used.
    pub(super) fn bind_in(directories: &[PathBuf], role: Role) -> Result<Self, SocketError> {
        let mut failure = None;
        for directory in directories {
            match private_directory(directory) {
                Ok(()) => {
                    sockets_in(directory).for_each(|socket| drop(connect(&socket)));
                    return Self::bind_at(
                        directory.join(format!("{role}-{}.sock", std::process::id())),
                    );
                }
                Err(source) => {
                    failure = Some(SocketError::Bind {
                        path: directory.clone(),
                        source,
                    });
                }
            }
        }
        Err(failure.expect("there is always a directory to try"))
    }

    fn bind_at(path: PathBuf) -> Result<Self, SocketError> {
        if let Ok(metadata) = fs::symlink_metadata(&path) {
            if !metadata.file_type().is_socket() {
                return Err(SocketError::NotASocket(path));
            }
            if connect(&path).is_ok() {
                return Err(SocketError::InUse(path));
            }
        }
        // Renamed into place only when it listens and is closed to others: whoever sees it, sees it whole.
        let unborn = path.with_extension(format!("{}.new", std::process::id()));
        let bound = UnixListener::bind(&unborn).and_then(|listener| {
            fs::set_permissions(&unborn, fs::Permissions::from_mode(0o600))?;
            fs::rename(&unborn, &path)?;
            Ok(listener)
        });
        match bound {
            Ok(listener) => Ok(Self { listener, path }),
            Err(source) => Err(SocketError::Bind { path, source }),
        }
    }

    /// Where it is bound.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Answers every connection with what `snapshot` gives at that moment, one at a time, until dropped.
    pub async fn serve(&self, snapshot: impl Fn() -> StatusReport) {
        loop {
            let Ok((mut stream, _)) = self.listener.accept().await else {
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

impl Drop for StatusSocket {
    fn drop(&mut self) {
        // Gone already is as good; nothing else can be done on the way out.
        let _ = fs::remove_file(&self.path);
    }
}

/// Asks the daemon at `socket`, or without one the only daemon of this user; daemons in the caller's own network
/// namespace are preferred. Blocks for up to a few seconds.
///
/// # Errors
/// [`QueryError`] if there is none, there are several, or what answers is no daemon.
pub fn query(socket: Option<&Path>) -> Result<StatusReport, QueryError> {
    match socket {
        Some(socket) => match connect(socket) {
            Ok(stream) => ask(socket, stream),
            Err(source) => Err(QueryError::Unreachable {
                socket: socket.to_owned(),
                source,
            }),
        },
        None => query_in(&run_directories()),
    }
}

/// Asks the only daemon with a socket in one of `directories`.
pub(super) fn query_in(directories: &[PathBuf]) -> Result<StatusReport, QueryError> {
    let mut live = Vec::new();
    for socket in directories
        .iter()
        .flat_map(|directory| sockets_in(directory))
    {
        if let Ok(stream) = connect(&socket) {
            let pid = socket_peercred(&stream)
                .map_or(0, |peer| peer.pid.as_raw_nonzero().get().unsigned_abs());
            live.push((Found { socket, pid }, stream));
        }
    }
    if live.iter().any(|(found, _)| is_in_our_network(found.pid)) {
        live.retain(|(found, _)| is_in_our_network(found.pid));
    }
    match live.len() {
        0 => Err(QueryError::NoDaemon(directories.to_owned())),
        1 => live
            .into_iter()
            .map(|(found, stream)| ask(&found.socket, stream))
            .next()
            .expect("one is there"),
        _ => Err(QueryError::Several(
            live.into_iter().map(|(found, _)| found).collect(),
        )),
    }
}

/// Where sockets are looked for, and bound in the first that works.
fn run_directories() -> Vec<PathBuf> {
    let user = geteuid().as_raw();
    let mut directories = vec![
        format!("/run/user/{user}/bentpipe").into(),
        format!("/tmp/bentpipe-{user}").into(),
    ];
    if geteuid().is_root() {
        directories.insert(0, PathBuf::from("/run/bentpipe"));
    }
    directories
}

/// Makes `directory` and sees that it is a directory of ours that nobody else can enter.
fn private_directory(directory: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let metadata = fs::symlink_metadata(directory)?;
    let ours =
        metadata.is_dir() && metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o077 == 0;
    let fault = "is not a directory of this user's own with mode 0700";
    ours.then_some(())
        .ok_or_else(|| io::Error::new(io::ErrorKind::PermissionDenied, fault))
}

/// The sockets in `directory`, in order of name.
fn sockets_in(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let mut sockets: Vec<_> = entries
        .filter(|path| path.extension().is_some_and(|end| end == "sock"))
        .collect();
    sockets.sort();
    sockets.into_iter()
}

/// Connects to `socket`; one that a dead daemon left behind is removed.
fn connect(socket: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(socket).inspect_err(|error| {
        if error.kind() == io::ErrorKind::ConnectionRefused {
            // Of another user, perhaps: then it stays.
            let _ = fs::remove_file(socket);
        }
    })?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn ask(socket: &Path, stream: UnixStream) -> Result<StatusReport, QueryError> {
    let mut document = Vec::new();
    let read = stream.take(MAX_DOCUMENT).read_to_end(&mut document);
    read.map_err(|source| QueryError::Unreachable {
        socket: socket.to_owned(),
        source,
    })?;
    serde_json::from_slice(&document).map_err(|source| QueryError::Malformed {
        socket: socket.to_owned(),
        source,
    })
}

/// Whether `pid` is in this process's network namespace; not if that cannot be told.
fn is_in_our_network(pid: u32) -> bool {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/net"));
    match (namespace("self"), namespace(&pid.to_string())) {
        (Ok(ours), Ok(theirs)) => ours == theirs,
        _ => false,
    }
}

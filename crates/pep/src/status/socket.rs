//! The unix socket between a daemon and `bentpipe status`.
//!
//! Every daemon binds `ROLE-PID.sock`, mode 0600, in the first run directory that it may write: the service manager's
//! `$RUNTIME_DIRECTORY`, `/run/bentpipe` of root or of its owner, `/run/user/UID/bentpipe`,
//! `/tmp/bentpipe-UID` (`directory.rs`). Nothing is asked, bound or removed in a directory that somebody else may write. Whether a socket is alive is asked of the socket itself: a
//! dead daemon's refuses connections, whatever has become of its process id.

mod directory;

use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs};

use rustix::process::{Uid, geteuid};
use serde_json::Value;
use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{sleep, timeout};

use super::StatusReport;
use crate::config::Role;
pub(super) use directory::RunDirectory;

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
    pub pid: Option<u32>,
    /// Its user's number.
    pub user: u32,
}

/// No report could be had.
#[derive(Debug, Error)]
pub enum QueryError {
    /// No daemon is running, or none that this user may ask.
    #[error("no bentpipe daemon{} is running (no live socket in {})", of_this_user(), .0.join(", "))]
    NoDaemon(Vec<String>),
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

/// Root sees the daemons of all users.
fn of_this_user() -> &'static str {
    if geteuid().is_root() {
        ""
    } else {
        " of this user"
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
    /// SIGUSR1: the report goes to the log.
    wanted: Option<Signal>,
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
            None => Self::bind_in(&RunDirectory::own(), role),
        }
    }

    /// Binds in the first of `directories` that can be used.
    pub(super) fn bind_in(directories: &[RunDirectory], role: Role) -> Result<Self, SocketError> {
        let mut failure = None;
        for directory in directories {
            match directory.make() {
                Ok(()) => {
                    for socket in directory.sockets() {
                        drop(connect(&socket, true));
                    }
                    let name = format!("{role}-{}.sock", std::process::id());
                    return Self::bind_at(directory.path().join(name));
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

    fn bind_at(path: PathBuf) -> Result<Self, SocketError> {
        if let Ok(metadata) = fs::symlink_metadata(&path) {
            if !metadata.file_type().is_socket() {
                return Err(SocketError::NotASocket(path));
            }
            if connect(&path, true).is_ok() {
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
            Ok(listener) => Ok(Self {
                listener,
                path,
                wanted: signal(SignalKind::user_defined1()).ok(),
            }),
            Err(source) => Err(SocketError::Bind { path, source }),
        }
    }

    /// Where it is bound.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
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

    async fn answer(&self, snapshot: &impl Fn() -> StatusReport) {
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

/// Asks the daemon at `socket`, or without one the only daemon of this user (for root: of any user), in `role` if one is
/// given; daemons in the caller's own network namespace are preferred, then those of the caller. Blocks for up to a few
/// seconds.
///
/// # Errors
/// [`QueryError`] if there is none, there are several, or what answers is no daemon.
pub fn query(socket: Option<&Path>, role: Option<Role>) -> Result<StatusReport, QueryError> {
    match socket {
        Some(socket) => match connect(socket, true) {
            Ok(stream) => ask(socket, stream),
            Err(source) => Err(QueryError::Unreachable {
                socket: socket.to_owned(),
                source,
            }),
        },
        None => query_in(&RunDirectory::all(), role),
    }
}

/// Asks the only daemon, in `role` if one is given, with a socket in one of `directories`.
pub(super) fn query_in(
    directories: &[RunDirectory],
    role: Option<Role>,
) -> Result<StatusReport, QueryError> {
    let own = geteuid().as_raw();
    let mut live = Vec::new();
    for (directory, socket) in directories
        .iter()
        .flat_map(|directory| directory.sockets().map(move |socket| (directory, socket)))
        .filter(|(_, socket)| role.is_none_or(|role| is_of(socket, role)))
    {
        let Ok(stream) = connect(&socket, directory.is_own()) else {
            continue;
        };
        // Whoever answers is the directory's owner, or root: others cannot have bound it there.
        let Some((user, pid)) = peer(&socket, &stream).filter(|(user, _)| directory.is_of(*user))
        else {
            continue;
        };
        let user = user.as_raw();
        live.push((Found { socket, pid, user }, stream));
    }
    prefer(&mut live, |found| found.pid.is_some_and(is_in_our_network));
    prefer(&mut live, |found| found.user == own);
    match live.len() {
        0 => {
            let own = RunDirectory::own();
            Err(QueryError::NoDaemon(
                own.iter().map(ToString::to_string).collect(),
            ))
        }
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

/// Keeps those that are `better`, if there are any.
fn prefer(live: &mut Vec<(Found, UnixStream)>, better: impl Fn(&Found) -> bool) {
    if live.iter().any(|(found, _)| better(found)) {
        live.retain(|(found, _)| better(found));
    }
}

/// The user and the process at the other end.
#[cfg(target_os = "linux")]
fn peer(_: &Path, stream: &UnixStream) -> Option<(Uid, Option<u32>)> {
    let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
    let pid = peer.pid.as_raw_nonzero().get().unsigned_abs();
    Some((peer.uid, Some(pid)))
}

/// The user who has bound `socket`: only its directory's owner, or root, can have put it there.
#[cfg(not(target_os = "linux"))]
fn peer(socket: &Path, _: &UnixStream) -> Option<(Uid, Option<u32>)> {
    use std::os::unix::fs::MetadataExt;

    let owner = fs::symlink_metadata(socket).ok()?.uid();
    Some((Uid::from_raw(owner), None))
}

/// Whether a daemon in this role has bound `socket`, by its name.
fn is_of(socket: &Path, role: Role) -> bool {
    let name = socket.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(&format!("{role}-")))
}

/// Connects to `socket`; one of `ours` that a dead daemon left behind is removed.
fn connect(socket: &Path, ours: bool) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(socket).inspect_err(|error| {
        if ours && error.kind() == io::ErrorKind::ConnectionRefused {
            // Of another user, perhaps: then it stays.
            let _ = fs::remove_file(socket);
        }
    })?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// `text` without what would command a terminal: a report of another user's process is shown to root.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// Makes every string of `document` printable.
fn clean(document: &mut Value) {
    match document {
        Value::String(text) if text.contains(char::is_control) => *text = printable(text),
        Value::Array(items) => items.iter_mut().for_each(clean),
        Value::Object(entries) => entries.values_mut().for_each(clean),
        _ => {}
    }
}

fn ask(socket: &Path, stream: UnixStream) -> Result<StatusReport, QueryError> {
    let mut document = Vec::new();
    let read = stream.take(MAX_DOCUMENT).read_to_end(&mut document);
    read.map_err(|source| QueryError::Unreachable {
        socket: socket.to_owned(),
        source,
    })?;
    let report = serde_json::from_slice(&document).and_then(|mut document: Value| {
        clean(&mut document);
        serde_json::from_value(document)
    });
    report.map_err(|source| QueryError::Malformed {
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

//! The asking end: which daemon is meant, and what it answers.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::process::{Uid, geteuid};
use serde_json::Value;
use thiserror::Error;

use super::super::StatusReport;
use super::{RunDirectory, connect, printable};
use crate::config::Role;

/// Largest document accepted: ten thousand clients and room to spare.
const MAX_DOCUMENT: u64 = 32 << 20;

/// A daemon that could be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Socket of the daemon.
    pub socket: PathBuf,
    /// Process id of the daemon, as this process sees it.
    pub pid: Option<u32>,
    /// Number of the daemon's user.
    pub user: u32,
}

/// No report could be had.
#[derive(Debug, Error)]
pub enum QueryError {
    /// No daemon is running, or none that this user may ask.
    #[error("no bentpipe {}{} is running: {} (looked for its socket in {})", .role.map_or_else(|| "daemon".to_owned(), |role| role.to_string()), of_this_user(), begin(*.role, .set_up.as_deref()), .directories.join(", "))]
    NoDaemon {
        /// Role that was asked for.
        role: Option<Role>,
        /// Roles whose usual configuration is there; `None`: this user may not look.
        set_up: Option<Vec<Role>>,
        /// Directories in which there is none.
        directories: Vec<String>,
    },
    /// What is at the path given is no socket.
    #[error("{} is no socket, so no daemon answers there; name the socket of one, or leave --socket out", .0.display())]
    NoSocket(PathBuf),
    /// A daemon is there that this user may not ask.
    #[error("{} may not be asked by this user; run as root or as the daemon's user", .0.display())]
    Forbidden(PathBuf),
    /// No daemon answers at the socket given.
    #[error("{}", unreachable(.socket, .source))]
    Unreachable {
        /// The socket asked.
        socket: PathBuf,
        /// Error that was met.
        source: io::Error,
    },
    /// Several daemons could be meant.
    #[error("several daemons are running; choose one with --socket: {}", list(.0.iter().map(|found| &found.socket)))]
    Several(Vec<Found>),
    /// Bytes that are no report came back.
    #[error("{} does not answer with a status report: {source}", .socket.display())]
    Malformed {
        /// The socket asked.
        socket: PathBuf,
        /// Fault of the answer.
        source: serde_json::Error,
    },
}

impl QueryError {
    /// True if no daemon is there to ask, as opposed to an unclear question or answer.
    #[must_use]
    pub fn is_no_daemon(&self) -> bool {
        matches!(
            self,
            Self::NoDaemon { .. } | Self::NoSocket(_) | Self::Unreachable { .. }
        )
    }

    /// True if a daemon may be there, and this user lacks the privilege to ask it.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Forbidden(_))
    }

    /// Reason why `socket` cannot be connected to, of what the kernel said.
    fn why(socket: &Path, source: io::Error) -> Self {
        let is_other = |found: fs::Metadata| !found.file_type().is_socket();
        // A link may lead to a socket.
        if fs::metadata(socket).is_ok_and(is_other) {
            return Self::NoSocket(socket.to_owned());
        }
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::Forbidden(socket.to_owned()),
            _ => Self::Unreachable {
                socket: socket.to_owned(),
                source,
            },
        }
    }
}

/// Line about a socket at which nobody answers: with the unit to start, if that is since nothing runs there.
fn unreachable(socket: &Path, source: &io::Error) -> String {
    let shown = socket.display();
    let role = Role::ALL
        .into_iter()
        .find(|role| is_named_after(socket, *role));
    let nothing = |why| format!("nothing runs at {shown}: {why}; {}", start(role));
    match source.kind() {
        io::ErrorKind::NotFound => nothing("there is no such socket"),
        io::ErrorKind::ConnectionRefused => nothing("the daemon that made this socket has ended"),
        _ => format!("no daemon answers at {shown}: {source}"),
    }
}

/// Commands that start a daemon in `role`, or else in one of those that are `set_up` on this machine, as far as that is known.
fn begin(role: Option<Role>, set_up: Option<&[Role]>) -> String {
    match (role, set_up) {
        (Some(role), _) | (None, Some(&[role])) => start(Some(role)),
        (None, None) => "this user may not look into /etc/bentpipe; ask as root".to_owned(),
        (None, Some([])) => "none is set up in /etc/bentpipe; `bentpipe server init` does that at the gateway, `bentpipe client join` at the \
                       terminal, and a daemon on another file is started with `--config FILE`"
            .to_owned(),
        (None, Some(several)) => start_one(several),
    }
}

/// Roles whose usual configuration is there; `None` if this user may not look.
fn set_up() -> Option<Vec<Role>> {
    let there = Role::ALL.map(|role| role.default_config().try_exists());
    let roles = Role::ALL.into_iter().zip(there);
    let found = roles.map(|(role, there)| Ok(there?.then_some(role)));
    let found: io::Result<Vec<_>> = found.collect();
    found
        .ok()
        .map(|found| found.into_iter().flatten().collect())
}

/// Commands that start a daemon, and say why it does not run.
fn start(role: Option<Role>) -> String {
    match role {
        Some(role) => format!(
            "`systemctl start bentpipe-{role}` starts it (without systemd: `bentpipe {role}`), `systemctl status bentpipe-{role}` says why it ended"
        ),
        None => start_one(&Role::ALL),
    }
}

fn start_one(roles: &[Role]) -> String {
    let units: Vec<_> = roles
        .iter()
        .map(|role| format!("bentpipe-{role}"))
        .collect();
    format!(
        "`systemctl start UNIT` starts one ({}), `systemctl status UNIT` says why it ended",
        units.join(", ")
    )
}

/// Root sees the daemons of all users.
fn of_this_user() -> &'static str {
    if geteuid().is_root() {
        ""
    } else {
        " of this user (root sees those of all)"
    }
}

fn list<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> String {
    let paths: Vec<_> = paths
        .into_iter()
        .map(|path| path.as_ref().display().to_string())
        .collect();
    paths.join(", ")
}

/// Asks the daemon at `socket`, or without one the only daemon of this user (for root: of any user), in `role` if one is
/// given; daemons in the caller's own network namespace are preferred, then those of the caller. Blocks for up to a few
/// seconds.
///
/// # Errors
/// [`QueryError`] if there is none, there are several, or what answers is no daemon.
pub fn query(socket: Option<&Path>, role: Option<Role>) -> Result<StatusReport, QueryError> {
    match socket {
        Some(socket) => match connect(socket) {
            Ok(stream) => ask(socket, stream),
            Err(source) => Err(QueryError::why(socket, source)),
        },
        None => query_in(&RunDirectory::all(), role),
    }
}

/// Asks the only daemon, in `role` if one is given, with a socket in one of `directories`.
pub(in crate::status) fn query_in(
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
        let Ok(stream) = connect(&socket) else {
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
            let directories = RunDirectory::names(&RunDirectory::own(), directories);
            Err(QueryError::NoDaemon {
                role,
                set_up: set_up(),
                directories,
            })
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

/// True if a daemon in this role has bound `socket`, by its name.
fn is_of(socket: &Path, role: Role) -> bool {
    let name = socket.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(&format!("{role}-")))
}

/// True if a socket has the name of a daemon in `role`, or one that an operator is likely to give it.
fn is_named_after(socket: &Path, role: Role) -> bool {
    let stem = socket.file_stem().and_then(|stem| stem.to_str());
    is_of(socket, role) || stem == Some(role.to_string().as_str())
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

/// True if `pid` is in this process's network namespace; not if that cannot be told.
fn is_in_our_network(pid: u32) -> bool {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/net"));
    match (namespace("self"), namespace(&pid.to_string())) {
        (Ok(ours), Ok(theirs)) => ours == theirs,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_no_daemon_is_told_the_one_to_start() {
        let said = |role, set_up: Option<&[Role]>| {
            let error = QueryError::NoDaemon {
                role,
                set_up: set_up.map(<[Role]>::to_vec),
                directories: vec!["/run/bentpipe".to_owned()],
            };
            error.to_string()
        };
        let client = said(None, Some(&[Role::Client]));
        assert!(client.starts_with("no bentpipe daemon"), "{client}");
        for words in [
            "is running: `systemctl start bentpipe-client`",
            "`bentpipe client`",
        ] {
            assert!(client.contains(words), "{client}");
        }
        let both = said(None, Some(&[Role::Client, Role::Server]));
        assert!(
            both.contains("(bentpipe-client, bentpipe-server)"),
            "{both}"
        );
        assert!(said(None, Some(&[])).contains("`bentpipe client join`"));
        assert!(said(Some(Role::Pep), Some(&[])).contains("`systemctl start bentpipe-pep`"));
        let hidden = said(None, None);
        assert!(hidden.contains("ask as root"), "{hidden}");
    }
}

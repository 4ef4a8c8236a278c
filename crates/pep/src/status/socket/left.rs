//! What stands at the path of a status socket, and what of it a daemon may replace or remove: sockets that dead daemons left.
//!
//! A socket refuses connections once nobody listens at it, and so does a regular file. Both kinds of evidence count together: the
//! file is a socket as daemons make it, and it refuses.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::process::geteuid;

/// Identity of a file on this machine, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// Identity of the file at `path`; of a link, not of what it leads to.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(path)?;
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }
}

/// What stands at the path of a status socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occupant {
    /// Nothing that this user can see.
    Nothing,
    /// A file, a directory or a link.
    NoSocket,
    /// A socket at which somebody listens.
    Daemon,
    /// A socket that a daemon of this user has left.
    Left,
    /// A socket of another program, or of another user's.
    Stranger,
}

impl Occupant {
    /// What stands at `path`.
    pub(super) fn of(path: &Path) -> Self {
        let Ok(metadata) = fs::symlink_metadata(path) else {
            return Self::Nothing;
        };
        if !metadata.file_type().is_socket() {
            return Self::NoSocket;
        }
        match UnixStream::connect(path) {
            Ok(_) => Self::Daemon,
            Err(error)
                if error.kind() == io::ErrorKind::ConnectionRefused && is_ours(&metadata) =>
            {
                Self::Left
            }
            Err(_) => Self::Stranger,
        }
    }
}

/// True if a socket is as a daemon that this user may clean up after makes it: closed to others, and this user's own.
fn is_ours(metadata: &Metadata) -> bool {
    let user = geteuid();
    let own = user.is_root() || metadata.uid() == user.as_raw();
    own && metadata.mode() & 0o777 == 0o600
}

/// Removes what a dead daemon has left at `path`, in a run directory; nothing else.
pub(super) fn clear(path: &Path) {
    if Occupant::of(path) == Occupant::Left {
        // What cannot be removed is in nobody's way.
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::os::unix::net::{UnixDatagram, UnixListener};

    use super::*;

    #[test]
    fn nothing_counts_as_left_but_a_closed_socket_that_refuses() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let close = |name: &str| {
            fs::set_permissions(path(name), fs::Permissions::from_mode(0o600)).unwrap();
        };
        fs::write(path("file"), "precious").unwrap();
        close("file");
        drop(UnixListener::bind(path("left")).unwrap());
        close("left");
        symlink("left", path("link")).unwrap();
        // As other programs leave theirs.
        drop(UnixListener::bind(path("open")).unwrap());
        fs::set_permissions(path("open"), fs::Permissions::from_mode(0o755)).unwrap();
        let _living = UnixListener::bind(path("living")).unwrap();
        // One that takes no connections, and is in use.
        let _datagrams = UnixDatagram::bind(path("datagrams")).unwrap();
        close("datagrams");
        for (name, wanted) in [
            ("none", Occupant::Nothing),
            ("file", Occupant::NoSocket),
            (".", Occupant::NoSocket),
            ("link", Occupant::NoSocket),
            ("left", Occupant::Left),
            ("open", Occupant::Stranger),
            ("living", Occupant::Daemon),
            ("datagrams", Occupant::Stranger),
        ] {
            assert_eq!(Occupant::of(&path(name)), wanted, "{name}");
            clear(&path(name));
            let stays = !["none", "left"].contains(&name);
            assert_eq!(path(name).symlink_metadata().is_ok(), stays, "{name}");
        }
    }
}

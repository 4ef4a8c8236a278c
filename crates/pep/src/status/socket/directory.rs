//! Directories in which daemons have their status sockets, and whom each may be trusted to.
//!
//! A user's own are made if need be, mode 0700. Those of others are root's business alone. `/tmp` is open to all, so a name
//! there says nothing: a directory counts only while it belongs to whom its name says and nobody else may write it.

use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::{env, fmt, fs};

use rustix::process::{Uid, geteuid};

/// More users' directories than this are not looked at: anybody may fill `/tmp`.
const MAX_USERS: usize = 1000;

/// Directory of root's daemons, and of those that a service manager runs.
const SHARED: &str = "/run/bentpipe";

/// One directory for status sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::status) struct RunDirectory {
    path: PathBuf,
    /// User that has to own it; `None`: whoever does, for root alone can have made it.
    owner: Option<Uid>,
    /// True if others may read it: a service manager makes it so.
    lax: bool,
}

/// The path; where it is not to be trusted, with the reason.
impl fmt::Display for RunDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        match self.check() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                write!(f, ", which {error}")
            }
            _ => Ok(()),
        }
    }
}

impl RunDirectory {
    /// Directories in which this user's daemons bind, in the first that works.
    pub(in crate::status) fn own() -> Vec<Self> {
        let user = geteuid();
        let given = env::var_os("RUNTIME_DIRECTORY");
        // systemd separates several with colons.
        let given = given
            .as_ref()
            .and_then(|given| env::split_paths(given).next());
        let given = given.filter(|path| path.is_absolute()).map(|path| Self {
            path,
            owner: Some(user),
            lax: true,
        });
        let shared = Self::of(SHARED.into(), user);
        // The daemons' own user finds there what a service manager runs.
        let shared = match user.is_root() {
            true => Some(shared),
            false => Some(Self {
                lax: true,
                ..shared
            })
            .filter(|it| it.check().is_ok()),
        };
        let raw = user.as_raw();
        let mut all: Vec<_> = given.into_iter().chain(shared).collect();
        all.push(Self::of(format!("/run/user/{raw}/bentpipe").into(), user));
        all.push(Self::of(format!("/tmp/bentpipe-{raw}").into(), user));
        all
    }

    /// Directories of the daemons that this user may ask: root those of all users.
    pub(in crate::status) fn all() -> Vec<Self> {
        let mut all = Self::own();
        if geteuid().is_root() {
            // What a service manager made there for a service's user: only root can write /run.
            all.push(Self {
                path: SHARED.into(),
                owner: None,
                lax: true,
            });
            let of_users = users("/run/user", "").map(|(path, user)| (path.join("bentpipe"), user));
            let of_users = of_users.chain(users("/tmp", "bentpipe-"));
            all.extend(of_users.map(|(path, user)| Self::of(path, user)));
        }
        let mut once: Vec<Self> = Vec::new();
        for directory in all {
            let usable = directory.check().is_ok();
            if usable && !once.iter().any(|known| known.path == directory.path) {
                once.push(directory);
            }
        }
        once
    }

    /// Names of this user's `own` directories, for people who find no daemon in those that were `asked`: with the reason where one was not
    /// asked. One that a service manager made for another user, root asks all the same.
    pub(super) fn names(own: &[Self], asked: &[Self]) -> Vec<String> {
        let is_asked = |one: &&Self| asked.iter().any(|it| it.path == one.path);
        let name = |one: &Self| match is_asked(&one) {
            true => one.path.display().to_string(),
            false => one.to_string(),
        };
        own.iter().map(name).collect()
    }

    /// The directory of `user` at `path`, closed to others.
    pub(in crate::status) fn of(path: PathBuf, user: Uid) -> Self {
        Self {
            path,
            owner: Some(user),
            lax: false,
        }
    }

    /// Path of the directory.
    pub(in crate::status) fn path(&self) -> &Path {
        &self.path
    }

    /// True if it is this user's.
    pub(super) fn is_own(&self) -> bool {
        self.is_of(geteuid()) && self.check().is_ok()
    }

    /// True if `user` may have bound a socket here.
    pub(super) fn is_of(&self, user: Uid) -> bool {
        user.is_root() || self.owner.is_none_or(|owner| owner == user)
    }

    /// Makes it if need be, and sees whose it is.
    pub(in crate::status) fn make(&self) -> io::Result<()> {
        match fs::DirBuilder::new().mode(0o700).create(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => self.check(),
        }
    }

    /// The sockets in it, in order of name; none if it is not to be trusted.
    pub(super) fn sockets(&self) -> impl Iterator<Item = PathBuf> + use<> {
        let entries = self.check().and_then(|()| fs::read_dir(&self.path));
        let entries = entries.into_iter().flatten().flatten();
        let mut sockets: Vec<_> = entries
            // Of the entry itself, not of what a link leads to.
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()))
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "sock"))
            .collect();
        sockets.sort();
        sockets.into_iter()
    }

    fn check(&self) -> io::Result<()> {
        // Not what a link leads to: the link's maker chose that.
        let metadata = fs::symlink_metadata(&self.path)?;
        let owner = Uid::from_raw(metadata.uid());
        let forbidden = if self.lax { 0o022 } else { 0o077 };
        let good = metadata.is_dir()
            && self.owner.is_none_or(|expected| expected == owner)
            && metadata.mode() & forbidden == 0;
        let fault = match self.owner {
            Some(user) if user != geteuid() => "is not a directory that its user alone may write",
            _ => "is not a directory of this user's own with mode 0700",
        };
        good.then_some(())
            .ok_or_else(|| io::Error::new(io::ErrorKind::PermissionDenied, fault))
    }
}

/// Entries of `parent` whose names are `prefix` and a user's number.
fn users(parent: &str, prefix: &'static str) -> impl Iterator<Item = (PathBuf, Uid)> + use<> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let numbered = entries.filter_map(move |entry| {
        let name = entry.file_name();
        let user = name.to_str()?.strip_prefix(prefix)?.parse().ok()?;
        Some((entry.path(), Uid::from_raw(user)))
    });
    numbered.take(MAX_USERS)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// As a service manager leaves one behind for a service's user, when the daemon has ended.
    #[test]
    fn a_directory_that_was_asked_is_named_without_a_complaint() {
        let place = tempfile::tempdir().expect("a place");
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o750)).expect("it is ours");
        let own = [RunDirectory::of(place.path().to_owned(), geteuid())];
        let left = RunDirectory {
            path: place.path().to_owned(),
            owner: None,
            lax: true,
        };
        assert!(left.check().is_ok());
        let path = place.path().display().to_string();
        let named = |asked: &[RunDirectory]| RunDirectory::names(&own, asked).join(", ");
        assert_eq!(named(&[left]), path);
        let said = named(&[]);
        let why = "is not a directory of this user's own";
        assert!(said.starts_with(&path) && said.contains(why), "{said}");
    }
}

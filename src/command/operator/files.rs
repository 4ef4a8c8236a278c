//! Files that are made or changed for an operator: never half, never over others, and the daemon's own where it has a directory.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use bentpipe_pep::keys::PrivateKey;
use tempfile::NamedTempFile;

/// Beginning of the names of files that are written aside.
const PREFIX: &str = ".bentpipe-";

/// The directory of `file`, which may be bare.
fn beside(file: &Path) -> &Path {
    match file.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    }
}

/// What the system said, without the name of a file aside, which nobody knows.
pub(in crate::command) fn plain(error: io::Error) -> io::Error {
    let text = error.to_string();
    match text.split_once(" at path \"") {
        Some((said, _)) => io::Error::new(error.kind(), said),
        None => error,
    }
}

/// The directory of `file`, made if need be, closed to others.
fn directory(file: &Path) -> io::Result<PathBuf> {
    let directory = beside(file);
    if !directory.exists() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o750)
            .create(directory)?;
    }
    Ok(directory.to_owned())
}

/// Gives a file that root has made to the owner of its directory, for the daemon may run as that user.
pub(in crate::command) fn give(file: &File, directory: &Path) -> io::Result<()> {
    let (own, theirs) = (file.metadata()?, fs::metadata(directory)?);
    if own.uid() == 0 && theirs.uid() != 0 {
        fchown(file, Some(theirs.uid()), Some(theirs.gid()))?;
    }
    Ok(())
}

/// Mend of a configuration's files that exist.
pub(super) const ELSEWHERE: &str = "; remove it first, or choose another place with --config";

/// Refuses to go on if one of `files` exists; `mend` is the end of the sentence that says so.
pub(in crate::command) fn refuse_existing(files: &[&Path], mend: &str) -> Result<(), String> {
    match files.iter().find(|file| file.symlink_metadata().is_ok()) {
        Some(file) => Err(exists(file, mend)),
        None => Ok(()),
    }
}

fn exists(file: &Path, mend: &str) -> String {
    format!("{} exists and stays as it is{mend}", file.display())
}

/// Makes `file` with `text`, mode 0600 from birth and whole: it takes its name once all of it is on the disk. One that exists stays.
pub(in crate::command) fn make(file: &Path, text: &str) -> Result<(), String> {
    let made = || {
        let directory = directory(file)?;
        // Gone again unless it takes its name.
        let mut made = NamedTempFile::with_prefix_in(PREFIX, &directory)?;
        made.write_all(text.as_bytes())?;
        give(made.as_file(), &directory)?;
        made.as_file().sync_all()?;
        made.persist_noclobber(file)?;
        Ok(())
    };
    made().map_err(|error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => exists(file, "; remove it first, or choose another name"),
        _ => format!("cannot make {}: {}", file.display(), plain(error)),
    })
}

/// Makes `files`, each by its text: all of them, or none.
pub(in crate::command) fn make_all(files: &[(&Path, &str)]) -> Result<(), String> {
    for (index, (file, text)) in files.iter().enumerate() {
        if let Err(fault) = make(file, text) {
            // They are a moment old, and of no use without the others.
            for (made, _) in &files[..index] {
                let _ = fs::remove_file(made);
            }
            return Err(fault);
        }
    }
    Ok(())
}

/// Text of the file of a key.
pub(in crate::command) fn key_text(key: &PrivateKey) -> String {
    format!("{}\n", key.to_base64())
}

/// File that `file` is a link to; `None` if it is no link. A link is followed where its maker could write to the file himself.
fn target(file: &Path) -> io::Result<Option<PathBuf>> {
    let link = file.symlink_metadata()?;
    if !link.is_symlink() {
        return Ok(None);
    }
    let target = fs::canonicalize(file)?;
    let owners = [
        0,
        rustix::process::geteuid().as_raw(),
        fs::metadata(&target)?.uid(),
    ];
    if !owners.contains(&link.uid()) {
        let text = format!(
            "it is a link of user {} to {}, which is not theirs; name that file with --config",
            link.uid(),
            target.display()
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(Some(target))
}

/// A changed copy of `file` beside it, with its mode and owner; takes its place by [`Draft::install`], or that of the file which it
/// is a link to. Gone again unless it is installed.
pub(super) struct Draft<'a> {
    file: &'a Path,
    text: &'a str,
    aside: NamedTempFile,
}

impl<'a> Draft<'a> {
    /// Writes `text` aside, under a name that nothing had.
    pub(super) fn new(file: &'a Path, text: &'a str) -> Result<Self, String> {
        let write = || {
            let old = fs::metadata(file)?;
            let mut aside = NamedTempFile::with_prefix_in(PREFIX, beside(file))?;
            let new = aside.as_file();
            if new.metadata()?.uid() != old.uid() {
                fchown(new, Some(old.uid()), Some(old.gid()))?;
            }
            new.set_permissions(Permissions::from_mode(old.mode() & 0o777))?;
            aside.write_all(text.as_bytes())?;
            aside.as_file().sync_all()?;
            Ok(aside)
        };
        let aside = write().map_err(|error: io::Error| {
            format!("cannot write beside {}: {}", file.display(), plain(error))
        })?;
        Ok(Self { file, text, aside })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        self.aside.path()
    }

    /// Has it take the file's place. A link stays, and the file that it leads to is replaced.
    pub(super) fn install(self) -> Result<(), String> {
        let cannot = |file: &Path, error: io::Error| {
            format!("cannot replace {}: {}", file.display(), plain(error))
        };
        let target = target(self.file).map_err(|error| cannot(self.file, error))?;
        let (aside, file) = match &target {
            None => (self.aside, self.file),
            // Names in the file are relative to the link, so the copy beside that was the one to check; only beside the target
            // it can take its place whole.
            Some(target) => (Draft::new(target, self.text)?.aside, &**target),
        };
        let installed = aside.persist(file);
        installed
            .map(drop)
            .map_err(|fault| cannot(file, fault.error))
    }
}

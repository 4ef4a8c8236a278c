//! Files that are made or changed for an operator: never half, never over others, and the daemon's own where it has a directory.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use bentpipe_pep::keys::PrivateKey;
use tempfile::NamedTempFile;

/// The directory of `file`, made if need be, closed to others.
fn directory(file: &Path) -> io::Result<PathBuf> {
    let directory = match file.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    };
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
        let mut made = NamedTempFile::with_prefix_in(".bentpipe-", &directory)?;
        made.write_all(text.as_bytes())?;
        give(made.as_file(), &directory)?;
        made.as_file().sync_all()?;
        made.persist_noclobber(file)?;
        Ok(())
    };
    made().map_err(|error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => exists(file, "; remove it first, or choose another name"),
        _ => format!("cannot make {}: {error}", file.display()),
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
/// is a link to.
pub(super) struct Draft<'a> {
    file: &'a Path,
    text: &'a str,
    aside: PathBuf,
}

impl<'a> Draft<'a> {
    /// Writes `text` aside.
    pub(super) fn new(file: &'a Path, text: &'a str) -> Result<Self, String> {
        let aside = file.with_extension("toml.new");
        let draft = Self { file, text, aside };
        let write = || {
            let old = fs::metadata(file)?;
            // Whoever owns the directory may have put a link there, to a file that root would then write to and give away.
            match fs::remove_file(&draft.aside) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut options = OpenOptions::new();
            let mut new = options
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&draft.aside)?;
            if new.metadata()?.uid() != old.uid() {
                fchown(&new, Some(old.uid()), Some(old.gid()))?;
            }
            new.set_permissions(Permissions::from_mode(old.mode() & 0o777))?;
            new.write_all(text.as_bytes())?;
            new.sync_all()
        };
        write().map_err(|error: io::Error| {
            format!("cannot write {}: {error}", draft.aside.display())
        })?;
        Ok(draft)
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.aside
    }

    /// Has it take the file's place. A link stays, and the file that it leads to is replaced.
    pub(super) fn install(self) -> Result<(), String> {
        let cannot =
            |file: &Path, error: io::Error| format!("cannot replace {}: {error}", file.display());
        let target = target(self.file).map_err(|error| cannot(self.file, error))?;
        match target {
            None => fs::rename(&self.aside, self.file).map_err(|error| cannot(self.file, error)),
            // Names in the file are relative to the link, so the copy beside that was the one to check; only beside the target
            // it can take its place whole.
            Some(target) => {
                let copy = Draft::new(&target, self.text)?;
                fs::rename(&copy.aside, &target).map_err(|error| cannot(&target, error))
            }
        }
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        // Gone already if it was installed.
        let _ = fs::remove_file(&self.aside);
    }
}

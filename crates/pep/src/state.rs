//! Files in the state directory: read within bounds, replaced whole, readable by their owner alone.
//!
//! What they hold is decided elsewhere (`paths.rs`, `client/memory.rs`). Nothing here is needed to run: whoever loses
//! these files loses what was learned, no more.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bentpipe_config::directory;
use rustix::fs::{Access, AtFlags, CWD, OFlags, accessat};
use rustix::io::Errno;
use tokio::runtime::Handle;

use crate::complaint::LastingFault;

/// Opens a regular file for reading.
///
/// # Errors
/// The file cannot be opened, or is a pipe, a device or a directory.
pub(crate) fn open(file: &Path) -> io::Result<File> {
    // Opening a pipe that somebody left there would wait for its writer for ever.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(file)?;
    match opened.metadata()?.is_file() {
        true => Ok(opened),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// The content of `file`, of which more than `limit` bytes are an error.
pub(crate) fn read(file: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(file)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::other(format!("it exceeds {limit} bytes")));
    }
    Ok(bytes)
}

/// Writes aside, syncs and renames, so that a power cut leaves the old file or the new. Makes the directory. Blocks as long
/// as the disk does.
pub(crate) fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    // Without this a file system may put the new name on the disk before the bytes, and a power cut leaves an empty file.
    exchange(file, bytes, File::sync_all)?;
    #[cfg(test)]
    SYNCED.set(SYNCED.get() + 1);
    // The name itself. Not every file system can sync a directory; then the old file may come back, whole.
    let _ = File::open(directory(file)).and_then(|directory| directory.sync_all());
    Ok(())
}

/// Writes aside and renames: the end of this process leaves the old file or the new, and a power cut may leave anything. Makes
/// the directory. Waits for no disk.
pub(crate) fn replace_in_memory(file: &Path, bytes: &[u8]) -> io::Result<()> {
    exchange(file, bytes, |_| Ok(()))
}

#[cfg(test)]
thread_local! {
    /// Files of this thread that have waited for the disk.
    pub(crate) static SYNCED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// Writes aside, has that `kept`, and renames.
fn exchange(
    file: &Path,
    bytes: &[u8],
    kept: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    fs::create_dir_all(directory(file))?;
    // A name that no other program gives its files, for what bears it is removed.
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".bentpipe-new");
    let aside = file.with_file_name(name);
    // One that was left behind may have another mode, or be a link that somebody else has put there.
    match fs::remove_file(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut new = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&aside)?;
    new.write_all(bytes)?;
    kept(&new)?;
    fs::rename(aside, file)
}

/// Reason why nothing can be remembered in `directory`, whatever the file; `None` if there is none, or it is still to be made.
fn fault_of(directory: &Path) -> Option<&'static str> {
    match fs::metadata(directory) {
        Ok(found) if !found.is_dir() => Some("is no directory"),
        Ok(_) => {
            let wanted = Access::WRITE_OK | Access::EXEC_OK;
            let usable = accessat(CWD, directory, wanted, AtFlags::EACCESS);
            (usable == Err(Errno::ACCESS)).then_some("may not be written by the daemon's user")
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            Some("lies below what is no directory")
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Some("may not be entered by the daemon's user")
        }
        Err(_) => None,
    }
}

/// True if `directory` is at fault for all of its files, which the log is told once.
pub(crate) fn is_lost(directory: &Path) -> bool {
    static TOLD: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let Some(fault) = fault_of(directory) else {
        return false;
    };
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if told.insert(directory.to_owned()) {
        tracing::warn!(
            "state directory {} {fault}: nothing is remembered, and what was is unknown; mend it, or set `state_dir`, and \
             restart this daemon",
            directory.display()
        );
    }
    true
}

/// One file of the state directory that is replaced again and again, in order, without holding up its writer.
#[derive(Debug)]
pub(crate) struct StateFile(Arc<FileShared>);

#[derive(Debug)]
struct FileShared {
    path: PathBuf,
    /// Name of what the file remembers, for the log: "the link".
    what: &'static str,
    /// Number of contents so far.
    newest: AtomicU64,
    writing: Mutex<()>,
    /// Reason why the file cannot be written.
    fault: Mutex<LastingFault>,
    directory: Mutex<DirectorySeen>,
}

/// State of the directory at the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DirectorySeen {
    /// Directory that has not been there so far: the first write makes it.
    #[default]
    Never,
    Present,
    /// Directory that was there, and could not be made again.
    Lost,
}

impl StateFile {
    /// Names the file and, for the log, what it remembers; nothing is opened.
    pub(crate) fn new(path: PathBuf, what: &'static str) -> Self {
        Self(Arc::new(FileShared {
            path,
            what,
            newest: AtomicU64::new(0),
            writing: Mutex::default(),
            fault: Mutex::default(),
            directory: Mutex::default(),
        }))
    }

    /// Looks whether the directory is there. One that another program has removed is made again, and the log is told. True if it was made:
    /// then what is remembered is to be written anew.
    pub(crate) fn restore_directory(&self) -> bool {
        let directory = directory(&self.0.path);
        let mut seen = (self.0.directory.lock()).unwrap_or_else(PoisonError::into_inner);
        if directory.is_dir() {
            *seen = DirectorySeen::Present;
            return false;
        }
        let shown = directory.display();
        if *seen == DirectorySeen::Never {
            return false;
        }
        match (*seen, fs::create_dir_all(directory)) {
            (_, Ok(())) => {
                *seen = DirectorySeen::Present;
                tracing::warn!(
                    "state directory {shown} was removed by another program; it is back"
                );
                true
            }
            (DirectorySeen::Present, Err(error)) => {
                *seen = DirectorySeen::Lost;
                tracing::warn!(
                    "state directory {shown} was removed by another program and cannot be made again: {error}; make it and restart \
                     this daemon, which remembers nothing until then"
                );
                false
            }
            (_, Err(_)) => false,
        }
    }

    /// The content as `decode` reads it. A missing file is the default; so is one that is damaged, which is logged.
    pub(crate) fn load<T: Default, E: ToString>(
        &self,
        limit: u64,
        decode: impl FnOnce(&[u8]) -> Result<T, E>,
    ) -> T {
        let path = &self.0.path;
        let content = match read(path, limit) {
            Ok(bytes) => decode(&bytes).map_err(|error| error.to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
            Err(error) => Err(error.to_string()),
        };
        content.unwrap_or_else(|error| {
            if is_lost(directory(path)) {
                return T::default();
            }
            tracing::warn!(
                "{} is ignored and will be written anew: {error}",
                path.display()
            );
            T::default()
        })
    }

    /// Replaces the file soon, on another thread: syncing a slow disk takes seconds, for which no packet may wait. Outside a
    /// runtime it is done at once.
    pub(crate) fn replace_soon(&self, bytes: Vec<u8>) {
        let number = self.next();
        let shared = self.0.clone();
        match Handle::try_current() {
            Ok(runtime) => {
                drop(runtime.spawn_blocking(move || shared.replace(number, &bytes)));
            }
            Err(_) => shared.replace(number, &bytes),
        }
    }

    /// Replaces the file before it returns.
    pub(crate) fn replace_now(&self, bytes: &[u8]) {
        self.0.replace(self.next(), bytes);
    }

    fn next(&self) -> u64 {
        self.0.newest.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// True if the last write has failed.
    #[cfg(test)]
    pub(crate) fn is_at_fault(&self) -> bool {
        self.0.fault().text().is_some()
    }
}

impl FileShared {
    fn replace(&self, number: u64, bytes: &[u8]) {
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.newest.load(Ordering::Relaxed) != number {
            // A newer content is on its way, or on the disk.
            return;
        }
        let path = self.path.display();
        match replace(&self.path, bytes) {
            Ok(()) if self.fault().is_over() => tracing::info!("{path} is written again"),
            Err(error) if self.fault().is_news(&error) && !is_lost(directory(&self.path)) => {
                tracing::warn!(
                    "cannot remember {} in {path}: {error}; make room, or set `state_dir`",
                    self.what
                );
            }
            Ok(()) | Err(_) => {}
        }
    }

    fn fault(&self) -> MutexGuard<'_, LastingFault> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_none_is_at_fault_itself() {
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("file");
        fs::write(&file, b"precious").expect("it is ours");
        assert_eq!(fault_of(place.path()), None);
        assert_eq!(fault_of(&place.path().join("late")), None, "it is made");
        assert_eq!(fault_of(&file), Some("is no directory"));
        let below = fault_of(&file.join("state"));
        assert_eq!(below, Some("lies below what is no directory"));
        assert!(is_lost(&file) && !is_lost(place.path()));
    }

    #[test]
    fn a_directory_that_is_removed_in_use_is_made_again() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = place.path().join("state");
        let file = StateFile::new(directory.join("a.json"), "a thing");
        assert!(!file.restore_directory(), "the first write makes it");
        assert!(!directory.exists());
        file.replace_now(b"known");
        assert!(!file.restore_directory());
        fs::remove_dir_all(&directory).expect("it is ours");
        assert!(file.restore_directory());
        assert!(directory.is_dir());
        // A file in its place is in the way.
        fs::remove_dir_all(&directory).expect("it is ours");
        fs::write(&directory, b"").expect("it is ours");
        for _ in 0..2 {
            assert!(!file.restore_directory());
        }
        fs::remove_file(&directory).expect("it is ours");
        assert!(file.restore_directory(), "once that is possible");
    }

    #[test]
    fn the_newest_content_stays_whatever_the_order_of_the_writes() {
        let directory = std::env::temp_dir().join(format!("bentpipe-state-{}", std::process::id()));
        let path = directory.join("a.json");
        let file = StateFile::new(path.clone(), "a thing");
        let (first, second) = (file.next(), file.next());
        file.0.replace(second, b"new");
        file.0.replace(first, b"old");
        assert_eq!(fs::read(&path).expect("it was written"), b"new");
        let runtime = crate::process::runtime().expect("a runtime");
        runtime.block_on(async { file.replace_soon(b"soon".to_vec()) });
        // It waits for what has begun.
        drop(runtime);
        let content = fs::read(&path).expect("it was written");
        assert!(content == b"soon" || content == b"new", "{content:?}");
        file.replace_now(b"last");
        assert_eq!(fs::read(&path).expect("it was written"), b"last");
        assert!(!file.is_at_fault());
        // A directory where the new content is to be written.
        let in_the_way = directory.join("a.json.bentpipe-new");
        fs::create_dir(&in_the_way).expect("the directory is ours");
        file.replace_now(b"lost");
        assert!(file.is_at_fault());
        fs::remove_dir(&in_the_way).expect("it is ours");
        file.replace_now(b"last");
        assert!(!file.is_at_fault(), "it is written again");
        fs::remove_dir_all(directory).expect("the directory is ours");
    }
}

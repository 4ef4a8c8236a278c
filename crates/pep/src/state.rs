//! Files in the state directory: read within bounds, replaced whole, readable by their owner alone.
//!
//! What they hold is decided elsewhere (`paths.rs`, `client/memory.rs`). Nothing here is needed to run: whoever loses
//! these files loses what was learned, no more.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// The content of `file`, of which more than `limit` bytes are an error.
pub(crate) fn read(file: &Path, limit: u64) -> io::Result<Vec<u8>> {
    // Opening a pipe that somebody left there would wait for ever.
    if !fs::metadata(file)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(file)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::other(format!("it exceeds {limit} bytes")));
    }
    Ok(bytes)
}

/// Writes aside and renames, so that a power cut leaves the old file or the new. Makes the directory.
pub(crate) fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory)?;
    }
    let aside = file.with_extension("new");
    let mut options = OpenOptions::new();
    let mut new = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&aside)?;
    // It may have been left behind with another mode.
    new.set_permissions(fs::Permissions::from_mode(0o600))?;
    new.write_all(bytes)?;
    fs::rename(aside, file)
}

//! The file that receives TLS secrets, for whoever is to read a recording.

use std::fmt;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::OFlags;
use rustix::process::geteuid;

use super::RunError;

/// Opens the file that receives TLS secrets, if the operator asked for one, and says so.
pub(crate) fn open_key_log(
    path: Option<&Path>,
) -> Result<Option<Arc<dyn rustls::KeyLog>>, RunError> {
    let Some(path) = path else { return Ok(None) };
    let file = KeyLogFile::create(path).map_err(|error| {
        let fault = format!("cannot write key log {}: {error}", path.display());
        io::Error::new(error.kind(), fault)
    })?;
    tracing::warn!(
        "TLS secrets are written to {}: whoever reads it reads the traffic",
        path.display()
    );
    Ok(Some(Arc::new(file)))
}

/// NSS key log format, as Wireshark reads it. (rustls' own writer takes its path from the
/// environment, which no option of ours does.)
struct KeyLogFile(Mutex<File>);

impl KeyLogFile {
    fn create(path: &Path) -> io::Result<Self> {
        // No link that somebody else laid, and no waiting for a pipe's reader.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .custom_flags(flags.bits() as i32)
            .open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        if metadata.uid() != geteuid().as_raw() {
            let fault = format!("it belongs to user {}; remove it", metadata.uid());
            return Err(io::Error::other(fault));
        }
        // It may have been there, open to others.
        file.set_permissions(Permissions::from_mode(0o600))?;
        Ok(Self(Mutex::new(file)))
    }
}

impl fmt::Debug for KeyLogFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyLogFile")
    }
}

impl rustls::KeyLog for KeyLogFile {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let line = format!("{label} {} {}\n", hex(client_random), hex(secret));
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = file.write_all(line.as_bytes());
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

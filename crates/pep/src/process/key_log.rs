//! The file that receives TLS secrets, for whoever is to read a recording.

use std::fmt;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::OFlags;
use rustix::process::geteuid;

use super::RunError;
use crate::complaint::LastingFault;

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
struct KeyLogFile {
    path: PathBuf,
    lines: Mutex<KeyLogLines>,
}

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
        Ok(Self {
            path: path.to_owned(),
            lines: Mutex::new(KeyLogLines::new(file)),
        })
    }
}

/// Lines of secrets, and why they cannot be written.
struct KeyLogLines<W = File> {
    to: W,
    fault: LastingFault,
}

/// Change of what the operator knows of a key log.
#[derive(Debug, PartialEq, Eq)]
enum KeyLogNews {
    /// Lines are lost for this reason.
    Lost(String),
    /// Lines are written again.
    Again,
}

impl<W: Write> KeyLogLines<W> {
    const fn new(to: W) -> Self {
        Self {
            to,
            fault: LastingFault::none(),
        }
    }

    /// Writes a `line`, which ends with a newline; what the operator is to hear of that.
    fn write(&mut self, line: &str) -> Option<KeyLogNews> {
        // A part of the last line may stand there, to which nothing may be added.
        let written = match self.fault.text() {
            Some(_) => self.to.write_all(format!("\n{line}").as_bytes()),
            None => self.to.write_all(line.as_bytes()),
        };
        match written {
            Ok(()) => self.fault.is_over().then_some(KeyLogNews::Again),
            Err(error) => {
                let news = self.fault.is_news(&error);
                news.then(|| KeyLogNews::Lost(error.to_string()))
            }
        }
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
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let (news, path) = (lines.write(&line), self.path.display());
        match news {
            Some(KeyLogNews::Lost(error)) => tracing::error!(
                "cannot write key log {path}: {error}; tunnels that begin now cannot be read from a recording; make room"
            ),
            Some(KeyLogNews::Again) => tracing::info!("key log {path} is written again"),
            None => {}
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Disk with so many bytes of room.
    struct Disk {
        room: usize,
        content: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.room);
            if taken == 0 && !bytes.is_empty() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= taken;
            self.content.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_is_told_once_and_its_end_and_no_line_is_spoilt() {
        let mut lines = KeyLogLines::new(Disk {
            room: 10,
            content: Vec::new(),
        });
        assert_eq!(lines.write("A 1 2\n"), None);
        let lost = KeyLogNews::Lost(io::Error::from(io::ErrorKind::StorageFull).to_string());
        assert_eq!(lines.write("B 1 2\n"), Some(lost));
        assert_eq!(lines.write("C 1 2\n"), None, "it was told");
        lines.to.room = 100;
        assert_eq!(lines.write("D 1 2\n"), Some(KeyLogNews::Again));
        assert_eq!(lines.write("E 1 2\n"), None);
        let text = String::from_utf8(lines.to.content).expect("text");
        let whole: Vec<_> = text.lines().filter(|line| line.len() == 5).collect();
        assert_eq!(whole, ["A 1 2", "D 1 2", "E 1 2"], "{text}");
    }
}

//! Files of private keys and other secrets: nobody but their owner may read them.

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;
use zeroize::Zeroizing;

use crate::state;

pub use bentpipe_tunnel::engine::identity::{PrivateKey, PublicKey};

/// More than any key file holds, in bytes; stops a wrong file from being read whole.
pub const MAX_KEY_FILE: u64 = 4096;

/// Reads the private key in the file at `path`, which belongs to root or to this process's user and is closed to all others.
/// For root it may also belong to the user whose directory it is in: root looks at, and adds clients to, what a daemon with
/// a user of its own runs on.
///
/// # Errors
/// The file is missing, another user's, accessible to others or holds no key; the message says which, and the mend.
pub fn read(path: &Path) -> Result<PrivateKey, String> {
    let name = path.display();
    let make = format!("make one with `bentpipe genkey > {name}`");
    let text = secret(path, "private key file", &make)?;
    text.parse()
        .map_err(|_| format!("private key file {name} holds no key, which is one line of base64; mend it, or move it away and {make}"))
}

fn metadata_of_directory(path: &Path) -> io::Result<std::fs::Metadata> {
    std::fs::metadata(bentpipe_config::directory(path))
}

/// Reads the file at `path`, a secret in words, as [`secret_bytes`] does.
///
/// # Errors
/// As there, or the file is no text.
pub(crate) fn secret(path: &Path, what: &str, make: &str) -> Result<Zeroizing<String>, String> {
    let bytes = secret_bytes(path, what, make)?;
    let text = str::from_utf8(&bytes);
    let text = text.map_err(|error| format!("{what} {} is no text: {error}", path.display()))?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// Reads the file at `path`, a secret of at most [`MAX_KEY_FILE`] bytes that belongs to root or to this process's user and is
/// closed to all others; of a longer one a byte more. A message calls it `what`, and says how to `make` one that is missing.
///
/// # Errors
/// The file is missing, another user's or accessible to others; the message says which, and the mend.
pub(crate) fn secret_bytes(
    path: &Path,
    what: &str,
    make: &str,
) -> Result<Zeroizing<Vec<u8>>, String> {
    let name = path.display();
    let cannot = |error: io::Error| {
        let mend = match error.kind() {
            io::ErrorKind::NotFound => format!("; {make}"),
            io::ErrorKind::PermissionDenied => {
                "; it must belong to the user who runs bentpipe".into()
            }
            _ => String::new(),
        };
        format!("cannot read {what} {name}: {error}{mend}")
    };
    let file = state::open(path).map_err(cannot)?;
    let metadata = file.metadata().map_err(cannot)?;
    let (owner, user) = (metadata.uid(), geteuid().as_raw());
    // Root looks at the files of a daemon that has a directory of its own, and leaves them to it.
    let daemon = match user {
        0 => metadata_of_directory(path).map_or(0, |directory| directory.uid()),
        _ => user,
    };
    if ![0, user, daemon].contains(&owner) {
        return Err(format!(
            "{what} {name} belongs to user {owner}, who can change it; run `chown {daemon} {name}`"
        ));
    }
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(format!(
            "{what} {name} is accessible to others (mode {mode:04o}); run `chmod 600 {name}`"
        ));
    }
    let mut bytes = Zeroizing::new(Vec::new());
    file.take(MAX_KEY_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(cannot)?;
    Ok(bytes)
}

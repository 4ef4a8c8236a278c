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

/// Users who may read the file of a secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Readers {
    /// The file's owner, who is root or this process's user.
    #[default]
    Owner,
    /// The file's owner, whoever that is, and its group, as with the keys of web servers: who renews a certificate owns them.
    Group,
}

impl Readers {
    /// Bits of a mode by which others could read or write the file.
    pub(crate) const fn others(self) -> u32 {
        match self {
            Self::Owner => 0o077,
            Self::Group => 0o037,
        }
    }

    /// Mode that lets these in, for `chmod`.
    pub(crate) const fn mode(self) -> &'static str {
        match self {
            Self::Owner => "600",
            Self::Group => "640",
        }
    }

    /// Mend of a file that this process may not open.
    const fn mend(self) -> &'static str {
        match self {
            Self::Owner => "; it must belong to the user who runs bentpipe",
            Self::Group => {
                "; the user who runs bentpipe must own it, or be in its group, which may read it (mode 640)"
            }
        }
    }
}

/// Most bytes of a file with certificates or a key in PEM.
const MAX_PEM: u64 = 1 << 20;

/// Reads the file at `path`, the private key of a certificate in PEM: [`Readers::Group`] may read it.
///
/// # Errors
/// The file is missing, or accessible to others; the message says which, and the mend.
pub(crate) fn pem_key(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let make = "name the file with the key of the certificate";
    closed_bytes(path, "key file", make, (Readers::Group, MAX_PEM))
}

/// Reads the file at `path`, certificates in PEM, which all may read.
///
/// # Errors
/// The file is missing, or too long.
pub(crate) fn pem_certificates(path: &Path) -> io::Result<Vec<u8>> {
    state::read(path, MAX_PEM)
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
    closed_bytes(path, what, make, (Readers::Owner, MAX_KEY_FILE))
}

/// Reads the file at `path` up to a byte after the `most`, unless others than `readers` have access to it.
fn closed_bytes(
    path: &Path,
    what: &str,
    make: &str,
    (readers, most): (Readers, u64),
) -> Result<Zeroizing<Vec<u8>>, String> {
    let name = path.display();
    let cannot = |error: io::Error| {
        let mend = match error.kind() {
            io::ErrorKind::NotFound => format!("; {make}"),
            io::ErrorKind::PermissionDenied => readers.mend().into(),
            _ => String::new(),
        };
        format!("cannot read {what} {name}: {error}{mend}")
    };
    let file = state::open(path).map_err(cannot)?;
    let metadata = file.metadata().map_err(cannot)?;
    if readers == Readers::Owner {
        check_owner(path, what, metadata.uid())?;
    }
    let mode = metadata.mode() & 0o777;
    if mode & readers.others() != 0 {
        let closed = readers.mode();
        return Err(format!(
            "{what} {name} is accessible to others (mode {mode:04o}); run `chmod {closed} {name}`"
        ));
    }
    let mut bytes = Zeroizing::new(Vec::new());
    file.take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(cannot)?;
    Ok(bytes)
}

/// Refuses a secret whose `owner` is neither root nor the daemon's user.
fn check_owner(path: &Path, what: &str, owner: u32) -> Result<(), String> {
    let user = geteuid().as_raw();
    // Root looks at the files of a daemon that has a directory of its own, and leaves them to it.
    let daemon = match user {
        0 => metadata_of_directory(path).map_or(0, |directory| directory.uid()),
        _ => user,
    };
    if [0, user, daemon].contains(&owner) {
        return Ok(());
    }
    let name = path.display();
    Err(format!(
        "{what} {name} belongs to user {owner}, who can change it; run `chown {daemon} {name}`"
    ))
}

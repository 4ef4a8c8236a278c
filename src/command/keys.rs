//! `bentpipe genkey` and `bentpipe pubkey`: keys as WireGuard handles them, through standard input and output.

use std::fs::{File, Permissions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, anyhow};
use bentpipe_pep::engine::identity::{MAX_KEY_FILE, PrivateKey};

use crate::exit::Failure;

/// Prints a new private key.
pub(crate) fn genkey() -> Result<(), Failure> {
    close_output_to_others().context("cannot set mode 0600 on the file at standard output")?;
    let key = PrivateKey::generate().map_err(|_| anyhow!("the system gives no random numbers"))?;
    super::print(&key.to_base64())
}

/// Prints the public key of the private key on standard input.
pub(crate) fn pubkey() -> Result<(), Failure> {
    let mut text = String::new();
    let read = io::stdin()
        .lock()
        .take(MAX_KEY_FILE)
        .read_to_string(&mut text);
    read.context("cannot read a private key from standard input")?;
    let key: PrivateKey = text
        .parse()
        .map_err(|fault| Failure::Key(format!("standard input: {fault}")))?;
    super::print(&key.public().to_string())
}

/// If standard output is a regular file, takes it from everybody but its owner, before there is a secret in it.
fn close_output_to_others() -> io::Result<()> {
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let metadata = output.metadata()?;
    if metadata.is_file() && metadata.permissions().mode() & 0o077 != 0 {
        output.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(())
}

//! `bentpipe genkey` and `bentpipe pubkey`: keys as WireGuard handles them, through standard input and output.

use std::fs::{File, Permissions};
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, anyhow};
use bentpipe_pep::keys::{MAX_KEY_FILE, PrivateKey};

use super::operator::{key_text, make};
use super::{hint, refuse_lost_output};
use crate::cli::Genkey;
use crate::exit::Failure;

/// Prints a new private key, or makes a file of it.
pub(crate) fn genkey(options: &Genkey) -> Result<(), Failure> {
    let generate =
        || PrivateKey::generate().map_err(|_| anyhow!("the system gives no random numbers"));
    if let Some(path) = &options.out {
        // A key that is lost cannot be had again, so one that is there stays.
        return make(path, &key_text(&generate()?)).map_err(|fault| Failure::Run(anyhow!(fault)));
    }
    refuse_lost_output("the key")?;
    let opened = close_output_to_others().context("cannot set mode 0600 on standard output")?;
    super::print(&generate()?.to_base64())?;
    if let Some(mode) = opened {
        hint(&format!(
            "the file at standard output had mode {mode:04o} and has 0600 now; `bentpipe genkey --out FILE` makes it \
             closed from birth and overwrites none"
        ));
    } else if io::stdout().is_terminal() {
        hint("this is the key; `bentpipe genkey --out FILE` makes a file of a new one");
    }
    Ok(())
}

/// Prints the public key of the private key on standard input.
pub(crate) fn pubkey() -> Result<(), Failure> {
    let mut text = String::new();
    let read = io::stdin()
        .lock()
        .take(MAX_KEY_FILE)
        .read_to_string(&mut text);
    read.map_err(|error| {
        let fault = format!("standard input: cannot read a private key: {error}");
        Failure::Key(format!(
            "{fault}; give the file that `bentpipe genkey` has made"
        ))
    })?;
    let key: PrivateKey = text
        .parse()
        .map_err(|fault| Failure::Key(format!("standard input: {fault}")))?;
    super::print(&key.public().to_string())
}

/// If standard output is a regular file, takes it from everybody but its owner, before there is a secret in it. Returns the
/// mode that it had if that was loose.
fn close_output_to_others() -> io::Result<Option<u32>> {
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let metadata = output.metadata()?;
    let mode = metadata.permissions().mode() & 0o777;
    if !metadata.is_file() || mode & 0o077 == 0 {
        return Ok(None);
    }
    output.set_permissions(Permissions::from_mode(0o600))?;
    Ok(Some(mode))
}

//! `[les.laboratory]`: a key that both ends have beforehand, for experiments. It has no forward secrecy.

use std::path::{Path, PathBuf};

use bentpipe_config::Source;
use serde::Deserialize;
use toml::Spanned;
use zeroize::Zeroizing;

use super::ConfigError;
use crate::keys::{MAX_KEY_FILE, secret_bytes};

/// Bytes that a pre-shared key has at least.
const LEAST: usize = 32;

/// Bytes that a pre-shared key has at most.
const MOST: usize = MAX_KEY_FILE as usize;

/// `[les.laboratory]` as written, at either end.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LaboratoryTable {
    psk_file: Spanned<PathBuf>,
}

impl LaboratoryTable {
    /// File of the pre-shared key; seen to hold one.
    pub(super) fn checked(self, source: &Source) -> Result<PathBuf, ConfigError> {
        let path = source.resolve(self.psk_file.get_ref());
        match read_psk(&path) {
            Ok(_) => Ok(path),
            Err(fault) => Err(source.error(&self.psk_file.span(), fault)),
        }
    }
}

/// Pre-shared key in a file: all of its bytes.
pub(crate) fn read_psk(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let shown = path.display();
    let make = format!("`(umask 077; head -c 32 /dev/urandom > {shown})` makes one");
    let bytes = secret_bytes(path, "pre-shared key file", &make)?;
    match bytes.len() {
        LEAST..=MOST => Ok(bytes),
        _ => Err(format!(
            "{shown} does not hold {LEAST} to {MOST} bytes, as a pre-shared key does; {make}"
        )),
    }
}

//! `[les.laboratory]`: a key that both ends have beforehand, for experiments. It has no forward secrecy.

use std::fs;
use std::path::{Path, PathBuf};

use bentpipe_config::Source;
use serde::Deserialize;
use toml::Spanned;
use zeroize::Zeroizing;

use super::ConfigError;

/// Bytes that a pre-shared key has at least.
const LEAST: usize = 32;

/// Bytes that a pre-shared key has at most.
const MOST: usize = 4096;

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
    let bytes = fs::read(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    let bytes = Zeroizing::new(bytes);
    match bytes.len() {
        LEAST..=MOST => Ok(bytes),
        length => Err(format!(
            "{shown} holds {length} bytes; a pre-shared key has {LEAST} to {MOST}: `head -c 32 /dev/urandom > {shown}`"
        )),
    }
}

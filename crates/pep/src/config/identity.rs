//! `private_key_file` and `allow_classical`: what an end proves to be, and by which key exchange.

use std::ops::Range;
use std::path::PathBuf;

use bentpipe_config::Source;
use toml::Spanned;

use super::ConfigError;
use crate::keys::{self, PrivateKey, PublicKey};

/// Identity of one end of the tunnel, and the key exchange that it allows.
#[derive(Clone, Debug)]
pub struct Identity {
    /// File of its private key; seen to be owner-only and well-formed.
    pub private_key_file: PathBuf,
    /// Key exchange may fall back to X25519 without ML-KEM.
    pub allow_classical: bool,
}

impl Identity {
    /// The identity whose private key is in `file`, and that key.
    pub(super) fn read(
        source: &Source,
        file: &Spanned<PathBuf>,
        allow_classical: bool,
    ) -> Result<(Self, PrivateKey), ConfigError> {
        let private_key_file = source.resolve(file.get_ref());
        let own =
            keys::read(&private_key_file).map_err(|fault| source.error(&file.span(), fault))?;
        let identity = Self {
            private_key_file,
            allow_classical,
        };
        Ok((identity, own))
    }
}

/// Refuses a peer's key that is this end's own: the wrong one of four keys was pasted.
pub(super) fn check_peer_key(
    source: &Source,
    own: &PrivateKey,
    key: &PublicKey,
    span: &Range<usize>,
) -> Result<(), ConfigError> {
    let fault = if key.to_string() == own.to_base64() {
        "`public_key` is the private key of `private_key_file`: replace that key, which is no secret any more, and"
    } else if *key == own.public() {
        "`public_key` is this end's own;"
    } else {
        return Ok(());
    };
    let mend = "set what `bentpipe pubkey` prints for the other end's key";
    Err(source.error(span, format!("{fault} {mend}")))
}

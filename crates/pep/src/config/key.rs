//! Keys as they stand in files: base64 of 32 bytes, as WireGuard writes them.
//!
//! Public keys stand in the configuration itself; the private key stands in a file of its own that nobody but its
//! owner may read.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::str::FromStr;
use std::{fmt, fs};

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer};

use super::value::{self, FromText};

/// An Ed25519 public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PublicKey(pub [u8; 32]);

impl FromStr for PublicKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        decode(text).map(Self)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

/// An Ed25519 private key: the seed of RFC 8032. Its `Debug` form keeps the secret.
pub struct PrivateKey([u8; 32]);

impl PrivateKey {
    /// A new key from the system's random numbers.
    ///
    /// # Errors
    /// If the system has none to give.
    pub fn generate() -> Result<Self, Unspecified> {
        let mut seed = [0; 32];
        aws_lc_rs::rand::fill(&mut seed)?;
        Ok(Self(seed))
    }

    /// The public key that belongs to it.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        let pair = Ed25519KeyPair::from_seed_unchecked(&self.0).expect("any 32 bytes are a seed");
        let public = pair.public_key().as_ref().try_into();
        PublicKey(public.expect("an Ed25519 public key has 32 bytes"))
    }

    /// Its base64 form, as key files hold it: a secret.
    #[must_use]
    pub fn to_base64(&self) -> String {
        STANDARD.encode(self.0)
    }
}

impl FromStr for PrivateKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        decode(text).map(Self)
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(…)")
    }
}

impl FromText for PublicKey {
    const EXPECTED: &'static str = "a public key in base64";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse()
    }
}

impl<'de> Deserialize<'de> for PublicKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        value::text(deserializer)
    }
}

/// The 32 bytes that `text` stands for.
fn decode(text: &str) -> Result<[u8; 32], String> {
    const MEND: &str =
        "a key is 32 bytes in base64, as `bentpipe genkey` and `bentpipe pubkey` print it";
    let bytes = STANDARD
        .decode(text.trim())
        .map_err(|_| format!("bad key: not base64; {MEND}"))?;
    <[u8; 32]>::try_from(bytes).map_err(|bytes| format!("bad key: {} bytes; {MEND}", bytes.len()))
}

/// Refuses a private key file that is missing, readable by others or not a key; the message says which and the mend.
pub(super) fn check_private(path: &Path) -> Result<(), String> {
    let name = path.display();
    let cannot = |error| {
        format!(
            "cannot read private key file {name}: {error}; make one with `bentpipe genkey > {name}`"
        )
    };
    let mode = fs::metadata(path).map_err(cannot)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(format!(
            "private key file {name} is accessible to others (mode {mode:04o}); run `chmod 600 {name}`"
        ));
    }
    let text = fs::read_to_string(path).map_err(cannot)?;
    match decode(&text) {
        Ok(_) => Ok(()),
        Err(_) => Err(format!(
            "private key file {name} holds no key; make one with `bentpipe genkey > {name}`"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8032, section 7.1, test 1.
    #[test]
    fn the_public_key_is_ed25519s() {
        let private: PrivateKey = "nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A="
            .parse()
            .unwrap();
        let public = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
        assert_eq!(private.public().to_string(), public);
        assert_ne!(
            PrivateKey::generate().unwrap().to_base64(),
            private.to_base64()
        );
        assert_eq!(format!("{private:?}"), "PrivateKey(…)");
    }
}

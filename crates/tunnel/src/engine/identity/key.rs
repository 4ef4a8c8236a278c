//! Ed25519 keys and their text: base64 of 32 bytes, as WireGuard writes them.
//!
//! Public keys stand in the configuration itself; the private key stands in a file of its own, which the programs read.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use zeroize::Zeroizing;

/// An Ed25519 public key. Its text form is base64 of the 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey(pub(super) [u8; 32]);

impl PublicKey {
    /// The key of these 32 bytes; `None` for zeros, which are a point for which anybody can sign.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Option<Self> {
        (bytes != [0; 32]).then_some(Self(bytes))
    }

    /// The 32 bytes of RFC 8032.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 32] {
        self.0
    }
}

impl FromStr for PublicKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        decode(text).map(|bytes| Self(*bytes))
    }
}

impl<'de> Deserialize<'de> for PublicKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Base64;

        impl Visitor<'_> for Base64 {
            type Value = PublicKey;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a public key in base64")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<PublicKey, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Base64)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

/// An Ed25519 private key: the seed of RFC 8032, wiped when dropped. Its `Debug` form keeps the secret.
pub struct PrivateKey(Zeroizing<[u8; 32]>);

impl PrivateKey {
    /// A new key from the system's random numbers.
    ///
    /// # Errors
    /// If the system has none to give.
    pub fn generate() -> Result<Self, Unspecified> {
        let mut seed = Zeroizing::new([0; 32]);
        aws_lc_rs::rand::fill(&mut *seed)?;
        Ok(Self(seed))
    }

    /// The public key that belongs to it.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        let public = self.pair().public_key().as_ref().try_into();
        PublicKey(public.expect("an Ed25519 public key has 32 bytes"))
    }

    /// The key of this seed of 32 bytes (RFC 8032).
    #[must_use]
    pub const fn from_seed(seed: Zeroizing<[u8; 32]>) -> Self {
        Self(seed)
    }

    /// The seed of 32 bytes: a secret.
    #[must_use]
    pub fn seed(&self) -> &[u8; 32] {
        &self.0
    }

    /// Base64 form of the key, as key files hold it: a secret.
    #[must_use]
    pub fn to_base64(&self) -> String {
        STANDARD.encode(*self.0)
    }

    pub(super) fn pair(&self) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&*self.0).expect("any 32 bytes are a seed")
    }

    /// A secret for one purpose, which tells nothing about the key or about other purposes' secrets.
    pub(super) fn derive<L: hkdf::KeyType, K>(&self, purpose: &'static [u8], length: L) -> K
    where
        K: for<'a> From<hkdf::Okm<'a, L>>,
    {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"bentpipe derived keys");
        let secret = salt.extract(&*self.0);
        K::from(
            secret
                .expand(&[purpose], length)
                .expect("one hash's length can be derived"),
        )
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

/// The 32 bytes that `text` stands for.
fn decode(text: &str) -> Result<Zeroizing<[u8; 32]>, String> {
    const MEND: &str =
        "a key is 32 bytes in base64, as `bentpipe genkey` and `bentpipe pubkey` print it";
    let bytes = STANDARD
        .decode(text.trim())
        .map_err(|_| format!("bad key: not base64; {MEND}"))?;
    let bytes = Zeroizing::new(bytes);
    let key = <[u8; 32]>::try_from(bytes.as_slice())
        .map_err(|_| format!("bad key: {} bytes; {MEND}", bytes.len()))?;
    // As a public key it is a point for which anybody can sign.
    if key == [0; 32] {
        return Err(format!("bad key: all zeros, a placeholder; {MEND}"));
    }
    Ok(Zeroizing::new(key))
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

    #[test]
    fn what_is_no_key_is_refused_by_name() {
        let fault = |text: &str| text.parse::<PublicKey>().unwrap_err();
        let zeros = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        assert!(fault(zeros).starts_with("bad key: all zeros"));
        assert!(fault("AAAA").starts_with("bad key: 3 bytes"));
        assert!(fault("a key").starts_with("bad key: not base64"));
        assert!(zeros.parse::<PrivateKey>().is_err());
    }
}

//! Key that seals numbered messages: AES-256-GCM, with the number in the nonce.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use zeroize::Zeroizing;

/// Length of a tag, bytes.
pub(crate) const TAG: usize = 16;

/// Length of a key, bytes.
pub(crate) const KEY: usize = 32;

/// Length of an IV, bytes.
pub(crate) const IV: usize = NONCE_LEN;

/// Key of one direction, with the IV that numbers are added to (RFC 8446 §5.3).
pub(crate) struct CountedKey {
    key: LessSafeKey,
    iv: Zeroizing<[u8; NONCE_LEN]>,
}

impl CountedKey {
    /// Key with these [`KEY`] bytes, and these [`IV`] bytes as its IV.
    pub(crate) fn new(key: &[u8], iv: &[u8]) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, key).expect("a key of 32 bytes");
        let mut own = Zeroizing::new([0; NONCE_LEN]);
        own.copy_from_slice(iv);
        Self {
            key: LessSafeKey::new(key),
            iv: own,
        }
    }

    /// Nonce of the message with this number.
    pub(crate) fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = *self.iv;
        let counter = number.to_be_bytes();
        for (byte, counted) in nonce[NONCE_LEN - counter.len()..].iter_mut().zip(counter) {
            *byte ^= counted;
        }
        Nonce::assume_unique_for_key(nonce)
    }

    /// Seals `text` in place. A number seals once.
    pub(crate) fn seal(&self, number: u64, bound: &[u8], text: &mut [u8]) -> [u8; TAG] {
        let sealed =
            self.key
                .seal_in_place_separate_tag(self.nonce(number), Aad::from(bound), text);
        let mut tag = [0; TAG];
        tag.copy_from_slice(sealed.expect("a message is short").as_ref());
        tag
    }

    /// Opens `sealed` into `text`, which is as long. `false`: the tag does not fit, and `text` says nothing.
    pub(crate) fn open(
        &self,
        number: u64,
        bound: &[u8],
        sealed: &[u8],
        tag: &[u8],
        text: &mut [u8],
    ) -> bool {
        let nonce = self.nonce(number);
        self.key
            .open_separate_gather(nonce, Aad::from(bound), sealed, tag, text)
            .is_ok()
    }

    /// IV, in what wipes it.
    #[cfg(test)]
    pub(crate) fn iv(&self) -> &Zeroizing<[u8; NONCE_LEN]> {
        &self.iv
    }
}

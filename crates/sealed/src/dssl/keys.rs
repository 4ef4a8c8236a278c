//! Secrets of one K1 connection, as its handshake leaves them to both ends (`PROTOCOL.md` §21.2).

use std::fmt;

use aws_lc_rs::{digest, hmac};
use zeroize::Zeroizing;

use crate::counted_key::{CountedKey, IV, KEY};
use crate::epoch::expand;

/// Label of the TLS exporter of K2; its context is the hash of the hub's key.
const EXPORT_K2: &[u8] = b"EXPORTER-bentpipe-dssl-k2";

/// Label of the TLS exporter of the session's name.
const EXPORT_SESSION: &[u8] = b"EXPORTER-bentpipe-dssl-id";

/// Label of the TLS exporter of the key of objects.
const EXPORT_OBJECTS: &[u8] = b"EXPORTER-bentpipe-dssl-obj";

/// Length of a hub's proof, bytes.
pub const PROOF: usize = 32;

/// Name of one K1 connection, known to its ends and to the hub.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId([u8; Self::LENGTH]);

impl SessionId {
    /// Length of a name, bytes.
    pub const LENGTH: usize = 16;

    /// Name with these bytes.
    #[must_use]
    pub const fn new(bytes: [u8; Self::LENGTH]) -> Self {
        Self(bytes)
    }

    /// Bytes of the name.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; Self::LENGTH] {
        &self.0
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second, ..] = self.0;
        write!(f, "SessionId({first:02x}{second:02x}…)")
    }
}

/// K2 of one session: opens links, and says nothing about pages and objects.
#[derive(Clone)]
pub struct LinkKey(Zeroizing<[u8; KEY]>);

impl LinkKey {
    /// K2 with these bytes, as they come in KEY.
    #[must_use]
    pub fn new(bytes: Zeroizing<[u8; KEY]>) -> Self {
        Self(bytes)
    }

    /// Bytes of K2, for KEY.
    #[must_use]
    pub fn bytes(&self) -> &[u8; KEY] {
        &self.0
    }

    /// Key of LINKS.
    pub(super) fn links(&self) -> CountedKey {
        counted(&self.0, b"bentpipe dssl links")
    }

    fn of_proof(&self) -> hmac::Key {
        let mut key = Zeroizing::new([0; KEY]);
        expand(&self.0, &[b"bentpipe dssl proof"], &mut *key);
        hmac::Key::new(hmac::HMAC_SHA256, &*key)
    }

    /// Proof towards the terminal that the hub has K2.
    #[must_use]
    pub fn proof(&self, session: SessionId) -> [u8; PROOF] {
        let mut proof = [0; PROOF];
        proof.copy_from_slice(hmac::sign(&self.of_proof(), session.bytes()).as_ref());
        proof
    }

    /// True if `proof` comes from a holder of K2.
    #[must_use]
    pub fn proves(&self, session: SessionId, proof: &[u8]) -> bool {
        hmac::verify(&self.of_proof(), session.bytes(), proof).is_ok()
    }
}

impl fmt::Debug for LinkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkKey(…)")
    }
}

/// Secrets of one session that both ends have.
pub struct Secrets {
    session: SessionId,
    links: LinkKey,
    objects: Zeroizing<[u8; KEY]>,
}

impl Secrets {
    /// Secrets of a K1 connection whose terminal has named `hub`. `exporter` is that of the
    /// connection (RFC 8446 §7.5): label, context, and the bytes to fill.
    ///
    /// # Errors
    /// Faults of `exporter`.
    pub fn export<E>(
        hub: &[u8; 32],
        mut exporter: impl FnMut(&[u8], &[u8], &mut [u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let hub = digest::digest(&digest::SHA256, hub);
        let mut session = [0; SessionId::LENGTH];
        let (mut links, mut objects) = (Zeroizing::new([0; KEY]), Zeroizing::new([0; KEY]));
        exporter(EXPORT_SESSION, &[], &mut session)?;
        exporter(EXPORT_K2, hub.as_ref(), &mut *links)?;
        exporter(EXPORT_OBJECTS, &[], &mut *objects)?;
        Ok(Self {
            session: SessionId(session),
            links: LinkKey(links),
            objects,
        })
    }

    /// Name of the session.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// K2.
    #[must_use]
    pub fn links(&self) -> &LinkKey {
        &self.links
    }

    /// Key of objects.
    pub(super) fn objects(&self) -> CountedKey {
        counted(&self.objects, b"bentpipe dssl objects")
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({:?}, …)", self.session)
    }
}

/// Key and IV that `label` has of a root.
fn counted(root: &[u8; KEY], label: &[u8]) -> CountedKey {
    let mut bytes = Zeroizing::new([0; KEY + IV]);
    expand(root, &[label], &mut *bytes);
    let (key, iv) = bytes.split_at(KEY);
    CountedKey::new(key, iv)
}

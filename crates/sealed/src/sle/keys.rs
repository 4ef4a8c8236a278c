//! Keys of one outer connection (`PROTOCOL.md` §18.1): one key for each direction, and one writer
//! for each key.

use std::fmt;

use zeroize::Zeroizing;

use super::{Opener, Preface, Sealer};
use crate::counted_key::{IV, KEY};
use crate::epoch::{Epoch, expand};

/// Bytes of a direction's part: key and initialisation vector.
const DIRECTION: usize = KEY + IV;

/// Keys of both directions of one outer connection.
pub struct Keys {
    preface: Preface,
    bytes: Zeroizing<[u8; 2 * DIRECTION]>,
}

impl Keys {
    /// Keys of the connection that begins with `preface`, in its epoch.
    pub(super) fn derive(epoch: &Epoch, preface: Preface) -> Self {
        let secret = epoch.derive(b"bentpipe sle conn", &preface.encode());
        let mut bytes = Zeroizing::new([0; 2 * DIRECTION]);
        expand(&secret, &[b"bentpipe sle keys"], &mut *bytes);
        Self { preface, bytes }
    }

    /// Preface that the keys belong to.
    #[must_use]
    pub fn preface(&self) -> Preface {
        self.preface
    }

    /// Client's half: what it seals with, and what it opens the server's records with.
    #[must_use]
    pub fn client(self) -> (Sealer, Opener) {
        let [own, other] = self.directions();
        let sealer = Sealer::new(own.0, own.1, Some(self.preface));
        (sealer, Opener::new(other.0, other.1, None))
    }

    /// Server's half: what it seals with, and what it opens the client's records with.
    #[must_use]
    pub fn server(self) -> (Sealer, Opener) {
        let [other, own] = self.directions();
        let opener = Opener::new(other.0, other.1, Some(self.preface));
        (Sealer::new(own.0, own.1, None), opener)
    }

    /// Key and initialisation vector from client to server, and those from server to client.
    fn directions(&self) -> [(&[u8], &[u8]); 2] {
        let (first, second) = self.bytes.split_at(DIRECTION);
        [first.split_at(KEY), second.split_at(KEY)]
    }

    /// Bytes of both directions' keys.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> &[u8; 2 * DIRECTION] {
        &self.bytes
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({:?}, …)", self.preface)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Exporter;

    fn keys(epoch: u16, id: u32, number: u64) -> Keys {
        let exporter = Exporter::new(Zeroizing::new([7; 32]));
        let epoch = exporter.epoch(epoch, Zeroizing::new([8; 32]));
        let number = Preface {
            epoch: epoch.number(),
            id,
            number,
        };
        Keys::derive(&epoch, number)
    }

    #[test]
    fn each_connection_and_direction_has_its_own() {
        let all = [keys(0, 1, 2), keys(0, 1, 3), keys(0, 2, 2), keys(1, 1, 2)];
        let mut parts: Vec<_> = all.iter().flat_map(Keys::directions).collect();
        parts.sort_unstable();
        parts.dedup_by_key(|part| part.0);
        assert_eq!(parts.len(), 2 * all.len());
        assert_eq!(*keys(0, 1, 2).bytes, *all[0].bytes);
    }

    #[test]
    fn keys_are_wiped_and_not_printed() {
        fn wiped<T: zeroize::ZeroizeOnDrop>(_: &T) {}
        let keys = keys(0, 1, 2);
        wiped(&keys.bytes);
        let expected = "Keys(Preface { epoch: 0, id: 1, number: 2 }, …)";
        assert_eq!(format!("{keys:?}"), expected);
    }
}

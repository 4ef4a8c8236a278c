//! Keys of one outer connection (`PROTOCOL.md` §18.1): one key for each direction, and one writer
//! for each key.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use zeroize::Zeroizing;

use super::{Opener, Preface, Sealer};
use crate::counted_key::{IV, KEY};
use crate::epoch::{Epoch, expand};

/// Bytes of a direction's part: key and initialisation vector.
const DIRECTION: usize = KEY + IV;

/// Length of a server's answer to a preface that asks, bytes.
pub const ANSWER: usize = 16;

/// Keys of both directions of one outer connection.
pub struct Keys {
    preface: Preface,
    /// Secret that all of the connection comes from.
    secret: Zeroizing<[u8; 32]>,
    bytes: Zeroizing<[u8; 2 * DIRECTION]>,
}

impl Keys {
    /// Keys of the connection that begins with `preface`, in its epoch.
    pub(super) fn derive(epoch: &Epoch, preface: Preface) -> Self {
        let secret = epoch.derive(b"bentpipe sle conn", &preface.encode());
        let mut bytes = Zeroizing::new([0; 2 * DIRECTION]);
        expand(&secret, &[b"bentpipe sle keys"], &mut *bytes);
        Self {
            preface,
            secret,
            bytes,
        }
    }

    /// Answer to the preface of a connection that was made to `place`: nobody else can make it, and it is another for
    /// every place. Anybody may have it again by repeating the preface, so it is no record: it has no counter to spend.
    #[must_use]
    pub fn answer(&self, place: SocketAddr) -> [u8; ANSWER] {
        let (address, mut answer) = (place.ip().to_canonical(), [0; ANSWER]);
        let (kind, bytes): (u8, &[u8]) = match &address {
            IpAddr::V4(address) => (4, &address.octets()),
            IpAddr::V6(address) => (6, &address.octets()),
        };
        let port = place.port().to_be_bytes();
        let info = [b"bentpipe sle here", &[kind][..], bytes, &port];
        expand(&self.secret, &info, &mut answer);
        answer
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
        let epoch = exporter.epoch(epoch, &[8; 32]);
        let number = Preface {
            epoch: epoch.number(),
            id,
            number,
            asks: false,
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
        let expected = "Keys(Preface { epoch: 0, id: 1, number: 2, asks: false }, …)";
        assert_eq!(format!("{keys:?}"), expected);
    }
}

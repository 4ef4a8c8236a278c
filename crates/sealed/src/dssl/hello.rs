//! DSSL_HELLO: first bytes of a K1 connection inside of TLS (`PROTOCOL.md` §21.1).

/// ALPN of a K1 connection.
pub const ALPN_K1: &[u8] = b"dssl/1";

/// ALPN of a hub connection.
pub const ALPN_HUB: &[u8] = b"dssl-hub/1";

/// Length of a DSSL_HELLO, bytes.
pub const DSSL_HELLO: usize = 34;

const VERSION: u8 = 1;

/// Bit of `features`: objects are wanted, by the hub with this key.
const OBJECTS: u8 = 1;

/// First words of a terminal to an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DsslHello {
    /// Key of the hub that may have K2; `None`: no objects are wanted.
    pub hub: Option<[u8; 32]>,
}

/// Fault in a DSSL_HELLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DsslHelloError {
    /// The terminal speaks another version.
    #[error("DSSL_HELLO of version {0}; expected {VERSION}")]
    Version(u8),
    /// A bit is set that means nothing.
    #[error("DSSL_HELLO with features {0:#04x}")]
    Features(u8),
    /// A key stands where none is wanted, or none where one is.
    #[error("DSSL_HELLO whose key and features contradict each other")]
    Key,
}

impl DsslHello {
    /// Bytes of the hello.
    #[must_use]
    pub fn encode(&self) -> [u8; DSSL_HELLO] {
        let mut bytes = [0; DSSL_HELLO];
        bytes[0] = VERSION;
        if let Some(hub) = &self.hub {
            bytes[1..33].copy_from_slice(hub);
            bytes[33] = OBJECTS;
        }
        bytes
    }

    /// Reads a hello.
    ///
    /// # Errors
    /// [`DsslHelloError`]: the connection is to be ended.
    pub fn decode(bytes: &[u8; DSSL_HELLO]) -> Result<Self, DsslHelloError> {
        if bytes[0] != VERSION {
            return Err(DsslHelloError::Version(bytes[0]));
        }
        let mut key = [0; 32];
        key.copy_from_slice(&bytes[1..33]);
        match (bytes[33], key == [0; 32]) {
            (0, true) => Ok(Self { hub: None }),
            (OBJECTS, false) => Ok(Self { hub: Some(key) }),
            (0 | OBJECTS, _) => Err(DsslHelloError::Key),
            (features, _) => Err(DsslHelloError::Features(features)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_is_read_as_it_was_written_and_no_other_is() {
        for hub in [None, Some([7; 32])] {
            let hello = DsslHello { hub };
            assert_eq!(DsslHello::decode(&hello.encode()), Ok(hello));
        }
        let with = |at: usize, byte| {
            let mut bytes = DsslHello { hub: Some([7; 32]) }.encode();
            bytes[at] = byte;
            DsslHello::decode(&bytes)
        };
        assert_eq!(with(0, 2), Err(DsslHelloError::Version(2)));
        assert_eq!(with(33, 3), Err(DsslHelloError::Features(3)));
        assert_eq!(with(33, 0), Err(DsslHelloError::Key));
        let mut none = [0; DSSL_HELLO];
        (none[0], none[33]) = (1, 1);
        assert_eq!(DsslHello::decode(&none), Err(DsslHelloError::Key));
    }
}

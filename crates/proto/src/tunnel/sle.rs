//! What both sides agree on for SLE: the tunnel's name, the port, and the random bytes of each epoch (`PROTOCOL.md` §18.1).
//!
//! Keys are made elsewhere; here are values on the control stream.

use std::fmt;

use ipnet::IpNet;
use zeroize::Zeroizing;

use super::DecodeError;
use super::wire::Reader;

/// Random bytes of one epoch, 32 of them, wiped when they are dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct EpochRandom(Zeroizing<[u8; 32]>);

impl EpochRandom {
    /// Random bytes that a client has drawn.
    #[must_use]
    pub fn new(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(bytes)
    }

    /// Bytes, for the secret of the epoch.
    #[must_use]
    pub fn into_bytes(self) -> Zeroizing<[u8; 32]> {
        self.0
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&*self.0);
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self(Zeroizing::new(reader.array()?)))
    }
}

impl fmt::Debug for EpochRandom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EpochRandom(…)")
    }
}

/// Parameter `sle` of HELLO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SleHello {
    /// A client's: random bytes of epoch 0.
    Random(EpochRandom),
    /// A server's.
    Server {
        /// Name of the tunnel, unique at the server.
        id: u32,
        /// TCP port for outer connections; 0: none.
        port: u16,
        /// Prefixes to whose addresses outer connections may go, for the server takes them in on the way; at most 128. In a
        /// parameter of their own.
        prefixes: Vec<IpNet>,
    },
}

/// Length of a server's parameter, bytes.
const OF_SERVER: usize = 6;

impl SleHello {
    pub(super) fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut value = Zeroizing::new(Vec::with_capacity(32));
        match self {
            Self::Random(random) => random.encode(&mut value),
            Self::Server { id, port, .. } => {
                value.extend_from_slice(&id.to_be_bytes());
                value.extend_from_slice(&port.to_be_bytes());
            }
        }
        value
    }

    /// Reads a `value`, which tells by its length whose it is.
    pub(super) fn decode(value: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(value, "HELLO parameter sle");
        let read = match value.len() {
            OF_SERVER => Self::Server {
                id: u32::from_be_bytes(reader.array()?),
                port: u16::from_be_bytes(reader.array()?),
                prefixes: Vec::new(),
            },
            _ => Self::Random(EpochRandom::read(&mut reader)?),
        };
        reader.end()?;
        Ok(read)
    }
}

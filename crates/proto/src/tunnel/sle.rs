//! What both sides agree on for SLE: the tunnel's name, the port, and the random bytes of each epoch (`PROTOCOL.md` §18.1).
//!
//! Keys are made elsewhere; here are values on the control stream.

use std::fmt;

use ipnet::IpNet;
use zeroize::Zeroizing;

use super::DecodeError;
use super::wire::Reader;

/// Length of random bytes.
const RANDOM: usize = 32;

/// Random bytes of one epoch, 32 of them, wiped when they are dropped. They stay in one place: a value that moves leaves its
/// bytes where it was.
#[derive(PartialEq, Eq)]
pub struct EpochRandom(Box<Zeroizing<[u8; RANDOM]>>);

impl EpochRandom {
    /// Random bytes as `draw` fills them in.
    #[must_use]
    pub fn new(draw: impl FnOnce(&mut [u8; RANDOM])) -> Self {
        let mut bytes = Box::new(Zeroizing::new([0; RANDOM]));
        draw(&mut bytes);
        Self(bytes)
    }

    /// Bytes, for the secret of the epoch.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; RANDOM] {
        &self.0
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let bytes = reader.take(RANDOM)?;
        Ok(Self::new(|own| own.copy_from_slice(bytes)))
    }
}

impl Clone for EpochRandom {
    fn clone(&self) -> Self {
        Self::new(|bytes| bytes.copy_from_slice(self.as_bytes()))
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
        let mut value = Zeroizing::new(Vec::with_capacity(RANDOM));
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

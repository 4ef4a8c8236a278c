//! Words of A to one PEP, on the connection between them (`PROTOCOL.md` §20.1).

use bytes::BufMut as _;
use zeroize::Zeroizing;

use super::super::SpiPair;
use super::fields::{Fields, MessageFault, message};
use super::message::Grant;

const GRANT: u8 = 0;
const ENDED: u8 = 1;

/// Longest word, bytes: a Q4 with all selectors, and all of IPv6.
pub const MAX_WORD: usize = 512;

/// Word of A to one PEP.
#[derive(Clone, Debug)]
pub enum Word {
    /// Q4: K2 of an association.
    Grant(Box<Grant>),
    /// The association is over: the PEP erases its K2.
    Ended(SpiPair),
}

impl Word {
    /// Bytes of the word.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut out = message();
        match self {
            Self::Grant(grant) => {
                out.put_u8(GRANT);
                out.put_slice(&grant.encode());
            }
            Self::Ended(spis) => {
                out.put_u8(ENDED);
                out.put_u32(spis.to_b.get());
                out.put_u32(spis.to_a.get());
            }
        }
        out
    }

    /// Reads the word.
    ///
    /// # Errors
    /// [`MessageFault`]: the word is malformed.
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageFault> {
        let mut fields = Fields::new(bytes, "a word to a PEP");
        match fields.byte()? {
            GRANT => Grant::parse(&bytes[1..]).map(|grant| Self::Grant(Box::new(grant))),
            ENDED => {
                let (to_b, to_a) = (fields.spi()?, fields.spi()?);
                fields.end()?;
                Ok(Self::Ended(SpiPair { to_b, to_a }))
            }
            kind => Err(fields.wrong("its kind", kind)),
        }
    }
}

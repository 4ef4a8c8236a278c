//! Fields that messages are made of, read with their bounds and written.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::{Buf as _, BufMut as _};
use ipnet::IpNet;
use zeroize::Zeroizing;

use super::super::Spi;

/// Selectors of one association.
pub const MAX_SELECTORS: usize = 16;
/// PEPs of one association.
pub const MAX_PEPS: usize = 8;

/// Fault in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageFault {
    /// The message ends too early.
    #[error("{0}: truncated")]
    Short(&'static str),
    /// Bytes follow the message.
    #[error("{0}: {1} bytes too many")]
    Long(&'static str, usize),
    /// A field has a value that it cannot have.
    #[error("{0}: {1} cannot be {2}")]
    Value(&'static str, &'static str, u32),
}

/// Reader of one message.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
    message: &'static str,
}

impl<'a> Fields<'a> {
    pub(super) fn new(rest: &'a [u8], message: &'static str) -> Self {
        Self { rest, message }
    }

    fn short(&self) -> MessageFault {
        MessageFault::Short(self.message)
    }

    pub(super) fn byte(&mut self) -> Result<u8, MessageFault> {
        self.rest.try_get_u8().map_err(|_| self.short())
    }

    pub(super) fn word(&mut self) -> Result<u32, MessageFault> {
        self.rest.try_get_u32().map_err(|_| self.short())
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], MessageFault> {
        let (own, rest) = self.rest.split_first_chunk().ok_or(self.short())?;
        self.rest = rest;
        Ok(*own)
    }

    pub(super) fn secret(&mut self) -> Result<Zeroizing<[u8; 32]>, MessageFault> {
        self.array().map(Zeroizing::new)
    }

    pub(super) fn wrong(&self, field: &'static str, value: impl Into<u32>) -> MessageFault {
        MessageFault::Value(self.message, field, value.into())
    }

    pub(super) fn flag(&mut self, field: &'static str) -> Result<bool, MessageFault> {
        match self.byte()? {
            value @ (0 | 1) => Ok(value == 1),
            value => Err(self.wrong(field, value)),
        }
    }

    pub(super) fn spi(&mut self) -> Result<Spi, MessageFault> {
        let number = self.word()?;
        Spi::new(number).ok_or(self.wrong("an SPI", number))
    }

    /// Count of a list that has at most so many entries.
    pub(super) fn length(
        &mut self,
        field: &'static str,
        most: usize,
    ) -> Result<usize, MessageFault> {
        match self.byte()? {
            value if usize::from(value) > most => Err(self.wrong(field, value)),
            value => Ok(usize::from(value)),
        }
    }

    pub(super) fn address(&mut self) -> Result<IpAddr, MessageFault> {
        match self.byte()? {
            4 => Ok(Ipv4Addr::from(self.array::<4>()?).into()),
            6 => Ok(Ipv6Addr::from(self.array::<16>()?).into()),
            kind => Err(self.wrong("the kind of an address", kind)),
        }
    }

    pub(super) fn selectors(&mut self) -> Result<Vec<IpNet>, MessageFault> {
        let count = self.length("the number of selectors", MAX_SELECTORS)?;
        let one = |_| {
            let (address, length) = (self.address()?, self.byte()?);
            let prefix = IpNet::new(address, length).ok();
            let exact = prefix.filter(|prefix| prefix.network() == address);
            exact.ok_or(self.wrong("the length of a prefix", length))
        };
        (0..count).map(one).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn end(&self) -> Result<(), MessageFault> {
        match self.rest.len() {
            0 => Ok(()),
            more => Err(MessageFault::Long(self.message, more)),
        }
    }
}

/// Message that may hold secrets: all of it is wiped.
pub(super) fn message() -> Zeroizing<Vec<u8>> {
    // No message is longer: a vector that grew would leave its old bytes behind.
    Zeroizing::new(Vec::with_capacity(1024))
}

pub(in crate::les) fn put_address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => {
            out.put_u8(4);
            out.put_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            out.put_u8(6);
            out.put_slice(&address.octets());
        }
    }
}

pub(super) fn put_selectors(selectors: &[IpNet], out: &mut Vec<u8>) {
    out.put_u8(selectors.len() as u8);
    for prefix in selectors {
        put_address(prefix.network(), out);
        out.put_u8(prefix.prefix_len());
    }
}

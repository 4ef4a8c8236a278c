//! Datagrams in a byte stream, for networks that let nothing but TLS over TCP pass (`PROTOCOL.md` §17.2).
//!
//! ```text
//!  each side first:  0 4  "bpt1"          then, for each datagram:  0 2  length, 1..1472 (big-endian)   2 n  datagram
//! ```

use bytes::{Buf, BytesMut};
use thiserror::Error;

/// Bytes with which each side begins: name and version of the format.
pub const PREFACE: [u8; 4] = *b"bpt1";

/// Longest datagram, in bytes: what Ethernet leaves of 1500 after IPv4 and UDP.
pub const MAX_DATAGRAM: usize = 1472;

/// Bytes that a datagram takes in the stream beside its own.
pub const FRAMING: usize = 2;

/// Fault of a stream that does not carry datagrams; the connection is of no use any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum StreamFault {
    /// The stream begins with other bytes than [`PREFACE`].
    #[error("the peer does not speak this protocol: its first bytes are {0:02x?}, not \"bpt1\"")]
    Preface([u8; 4]),
    /// A length that no datagram has.
    #[error("a datagram of {0} bytes; 1 to {MAX_DATAGRAM} are allowed")]
    Length(u16),
}

/// Appends a datagram to what is to be sent. One that no receiver takes, empty or above [`MAX_DATAGRAM`] bytes, is left out,
/// as a network drops what is too large for it; false then.
pub fn frame(datagram: &[u8], to: &mut Vec<u8>) -> bool {
    let length = u16::try_from(datagram.len()).unwrap_or(u16::MAX);
    let fits = (1..=MAX_DATAGRAM).contains(&datagram.len());
    if fits {
        to.extend_from_slice(&length.to_be_bytes());
        to.extend_from_slice(datagram);
    }
    fits
}

/// Reader of the datagrams of a stream, however that is cut.
#[derive(Debug, Default)]
pub struct Deframer {
    /// Bytes that are not a whole datagram yet.
    rest: BytesMut,
    /// The preface was read.
    begun: bool,
}

impl Deframer {
    /// Takes the next bytes of the stream. Whoever calls reads all datagrams before the next bytes, so that less than one of
    /// them is kept.
    pub fn push(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
    }

    /// The next whole datagram, if it is there.
    ///
    /// # Errors
    /// [`StreamFault`]: nothing after it can be read.
    pub fn read(&mut self) -> Result<Option<BytesMut>, StreamFault> {
        if !self.begun {
            let Some(first) = self.rest.first_chunk::<4>() else {
                return Ok(None);
            };
            if *first != PREFACE {
                return Err(StreamFault::Preface(*first));
            }
            self.rest.advance(PREFACE.len());
            self.begun = true;
        }
        let Some(length) = self.rest.first_chunk::<FRAMING>() else {
            return Ok(None);
        };
        let length = u16::from_be_bytes(*length);
        let size = usize::from(length);
        if !(1..=MAX_DATAGRAM).contains(&size) {
            return Err(StreamFault::Length(length));
        }
        if self.rest.len() < FRAMING + size {
            return Ok(None);
        }
        self.rest.advance(FRAMING);
        Ok(Some(self.rest.split_to(size)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(datagrams: &[&[u8]]) -> Vec<u8> {
        let mut bytes = PREFACE.to_vec();
        datagrams
            .iter()
            .for_each(|datagram| assert!(frame(datagram, &mut bytes)));
        bytes
    }

    /// Datagrams read from `bytes`, which come in pieces of `size`.
    fn read(bytes: &[u8], size: usize) -> Result<Vec<Vec<u8>>, StreamFault> {
        let mut deframer = Deframer::default();
        let mut datagrams = Vec::new();
        for piece in bytes.chunks(size) {
            deframer.push(piece);
            while let Some(datagram) = deframer.read()? {
                datagrams.push(datagram.to_vec());
            }
        }
        Ok(datagrams)
    }

    #[test]
    fn datagrams_come_out_whole_however_the_stream_is_cut() {
        let sent: [&[u8]; 4] = [&[7; 1200], &[1], &[9; MAX_DATAGRAM], &[3; 44]];
        let bytes = stream(&sent);
        for size in [1, 2, 3, 5, 100, 1201, 4000] {
            assert_eq!(
                read(&bytes, size).expect("all is well"),
                sent,
                "pieces of {size}"
            );
        }
        let cut = &bytes[..bytes.len() - 1];
        assert_eq!(
            read(cut, 64).expect("no fault"),
            sent[..3],
            "the last one is not whole"
        );
    }

    /// The vector of `PROTOCOL.md` §17.
    #[test]
    fn the_form_is_the_protocols() {
        let bytes = stream(&[&[0x40, 1, 2], &[0x7f]]);
        assert_eq!(bytes, *b"bpt1\x00\x03\x40\x01\x02\x00\x01\x7f");
    }

    #[test]
    fn a_stream_of_something_else_is_refused() {
        assert_eq!(
            read(b"GET / HTTP/1.1\r\n\r\n", 3),
            Err(StreamFault::Preface(*b"GET "))
        );
        let faulty = |length: u16| [&PREFACE[..], &length.to_be_bytes()].concat();
        assert_eq!(read(&faulty(0), 6), Err(StreamFault::Length(0)));
        assert_eq!(read(&faulty(1473), 6), Err(StreamFault::Length(1473)));
        assert_eq!(read(&faulty(1472), 6), Ok(Vec::new()));
    }

    #[test]
    fn what_no_receiver_takes_is_not_sent() {
        let mut bytes = Vec::new();
        assert!(!frame(&[], &mut bytes));
        assert!(!frame(&[0; MAX_DATAGRAM + 1], &mut bytes));
        assert!(bytes.is_empty());
    }
}

//! The head of datagrams between an application and its relay (RFC 1928 §7), both ways.

use std::net::SocketAddr;

use thiserror::Error;

use super::{address, put_address};
use crate::tunnel::Destination;

/// Two reserved bytes, and the number of a fragment.
const FRONT: usize = 3;

/// Longest head of a datagram, in bytes: to a name of 255.
pub const MAX_DATAGRAM_HEAD: usize = FRONT + 1 + 1 + 255 + 2;

/// Reason why a datagram is not relayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BadDatagram {
    /// A part of one; putting them together is optional, and no application needs it.
    #[error("a fragment")]
    Fragment,
    /// The datagram has no head, or not one of an address or a name with a port.
    #[error("malformed")]
    Malformed,
}

/// Goal that an application wants for a datagram, and the byte at which the content begins.
///
/// # Errors
/// [`BadDatagram`]: what cannot be relayed.
pub fn decode_datagram(datagram: &[u8]) -> Result<(Destination, usize), BadDatagram> {
    match datagram.get(FRONT - 1) {
        Some(0) => {}
        Some(_) => return Err(BadDatagram::Fragment),
        None => return Err(BadDatagram::Malformed),
    }
    match address(datagram, FRONT) {
        // Nobody is at port 0.
        Ok(Some((destination, at))) if destination.port != 0 => Ok((destination, at)),
        Ok(_) | Err(_) => Err(BadDatagram::Malformed),
    }
}

/// Head of a datagram from `source` on its way to the application.
#[must_use]
pub fn datagram_head(source: SocketAddr) -> Vec<u8> {
    let mut out = vec![0; FRONT];
    put_address(source, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(datagram: &[u8]) -> Result<(String, &[u8]), BadDatagram> {
        let (destination, at) = decode_datagram(datagram)?;
        Ok((destination.to_string(), &datagram[at..]))
    }

    #[test]
    fn addresses_and_names_are_understood() {
        let v4 = b"\0\0\0\x01\x0a\x00\x00\x01\x00\x35query";
        assert_eq!(read(v4), Ok(("10.0.0.1:53".into(), b"query".as_slice())));
        let named = b"\0\0\0\x03\x0bexample.com\x01\xbb";
        assert_eq!(read(named), Ok(("example.com:443".into(), b"".as_slice())));
        let long = [b"\0\0\0\x03\xff".as_slice(), &[b'a'; 255], b"\0\x35"].concat();
        assert_eq!(long.len(), MAX_DATAGRAM_HEAD);
    }

    #[test]
    fn what_is_said_of_a_source_is_read_as_it_was_written() {
        for source in ["192.0.2.1:53", "[2001:db8::1]:4500"] {
            let datagram = [datagram_head(source.parse().unwrap()), b"answer".to_vec()].concat();
            assert_eq!(read(&datagram), Ok((source.into(), b"answer".as_slice())));
        }
    }

    #[test]
    fn fragments_and_half_heads_are_refused() {
        let whole = b"\0\0\0\x01\x0a\x00\x00\x01\x00\x35";
        for end in 0..whole.len() {
            assert_eq!(decode_datagram(&whole[..end]), Err(BadDatagram::Malformed));
        }
        let mut part = whole.to_vec();
        part[2] = 1;
        assert_eq!(decode_datagram(&part), Err(BadDatagram::Fragment));
        for bad in [
            b"\0\0\0\x01\x0a\x00\x00\x01\x00\x00".as_slice(),
            b"\0\0\0\x09\x0a\x00\x00\x01\x00\x35",
            b"\0\0\0\x03\x02\xff\xfe\x00\x35",
        ] {
            assert_eq!(decode_datagram(bad), Err(BadDatagram::Malformed), "{bad:?}");
        }
    }
}

//! SOCKS5 (RFC 1928): no authentication, CONNECT, UDP ASSOCIATE, host names.
//!
//! The front end reads until a message decodes, answers, reads on. BIND is refused with the code the RFC has for it. What
//! the datagrams of an association begin with is in `datagram.rs`; whose they are is decided in `associate.rs`.

mod asking;
mod datagram;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

use crate::tunnel::{Destination, Host, ReplyCode};

pub use asking::{GREETING, decode_reply, encode_connect};
pub use datagram::{BadDatagram, MAX_DATAGRAM_HEAD, datagram_head, decode_datagram};

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NONE_ACCEPTABLE: u8 = 0xff;
const CONNECT: u8 = 1;
const ASSOCIATE: u8 = 3;

/// Longest message that a client can send, in bytes: a request with a name of 255.
pub const MAX_MESSAGE: usize = 262;

/// Request of an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// A connection.
    Connect(Destination),
    /// A relay for its datagrams.
    Associate {
        /// The port that these will come from; `None`: the application does not know yet. The address that stands beside it
        /// is not worth reading: applications behind translators do not know theirs.
        port: Option<u16>,
    },
}

/// Reason why a client is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Socks5Error {
    /// Not SOCKS5: the first byte of a message.
    #[error("version {0} instead of SOCKS5")]
    Version(u8),
    /// The client insists on authentication.
    #[error("no method without authentication offered")]
    Method,
    /// BIND or unknown.
    #[error("command {0} is neither CONNECT nor UDP ASSOCIATE")]
    Command(u8),
    /// An unknown address type.
    #[error("unknown address type {0}")]
    AddressType(u8),
    /// A name that no resolver takes.
    #[error("bad host name")]
    Name,
}

impl Socks5Error {
    /// Reply that the client gets before it is disconnected.
    #[must_use]
    pub fn reply(self) -> Vec<u8> {
        match self {
            Self::Version(_) => Vec::new(),
            Self::Method => vec![VERSION, NONE_ACCEPTABLE],
            Self::Command(_) => encode_reply(0x07, None),
            Self::AddressType(_) => encode_reply(0x08, None),
            Self::Name => encode_reply(0x04, None),
        }
    }
}

/// Reads the greeting and says how many bytes it took. `None`: more bytes are needed.
///
/// # Errors
/// [`Socks5Error`]: another protocol, or only methods with authentication.
pub fn decode_greeting(buf: &[u8]) -> Result<Option<usize>, Socks5Error> {
    check_version(buf)?;
    let Some(&count) = buf.get(1) else {
        return Ok(None);
    };
    let Some(methods) = buf.get(2..2 + usize::from(count)) else {
        return Ok(None);
    };
    if methods.contains(&NO_AUTHENTICATION) {
        Ok(Some(2 + methods.len()))
    } else {
        Err(Socks5Error::Method)
    }
}

/// The answer to a good greeting.
pub const GREETING_REPLY: [u8; 2] = [VERSION, NO_AUTHENTICATION];

/// Reads the request and says how many bytes it took. `None`: more bytes are needed, never more than
/// [`MAX_MESSAGE`] in all.
///
/// # Errors
/// [`Socks5Error`]: whatever is neither a CONNECT nor a UDP ASSOCIATE with an address or a name.
pub fn decode_request(buf: &[u8]) -> Result<Option<(Request, usize)>, Socks5Error> {
    check_version(buf)?;
    let (Some(&command), Some(_)) = (buf.get(1), buf.get(3)) else {
        return Ok(None);
    };
    if !matches!(command, CONNECT | ASSOCIATE) {
        return Err(Socks5Error::Command(command));
    }
    let Some((destination, end)) = address(buf, 3)? else {
        return Ok(None);
    };
    let request = match command {
        CONNECT => Request::Connect(destination),
        _ => Request::Associate {
            port: (destination.port != 0).then_some(destination.port),
        },
    };
    Ok(Some((request, end)))
}

/// Reads address type, address and port from `at` on, and says where they end. `None`: more bytes are needed.
fn address(buf: &[u8], at: usize) -> Result<Option<(Destination, usize)>, Socks5Error> {
    let Some(&kind) = buf.get(at) else {
        return Ok(None);
    };
    let start = at + 1;
    let (host, end) = match kind {
        1 => (buf.get(start..start + 4).map(ip::<4>), start + 4),
        4 => (buf.get(start..start + 16).map(ip::<16>), start + 16),
        3 => {
            let Some(&length) = buf.get(start) else {
                return Ok(None);
            };
            let end = start + 1 + usize::from(length);
            (buf.get(start + 1..end).map(name).transpose()?, end)
        }
        other => return Err(Socks5Error::AddressType(other)),
    };
    let (Some(host), Some(&[high, low])) = (host, buf.get(end..end + 2)) else {
        return Ok(None);
    };
    let port = u16::from_be_bytes([high, low]);
    Ok(Some((Destination { host, port }, end + 2)))
}

/// The answer to a request, once the server's reply is known (or is taken for granted).
#[must_use]
pub fn reply(code: ReplyCode, bound: Option<SocketAddr>) -> Vec<u8> {
    let code = match code {
        ReplyCode::Ok => 0x00,
        ReplyCode::Denied => 0x02,
        ReplyCode::NetworkUnreachable => 0x03,
        ReplyCode::HostUnreachable | ReplyCode::NameNotFound => 0x04,
        ReplyCode::Refused => 0x05,
        // "TTL expired": what implementations use for a timeout.
        ReplyCode::TimedOut => 0x06,
        ReplyCode::FamilyUnsupported => 0x08,
        ReplyCode::LimitReached | ReplyCode::Internal | ReplyCode::Draining => 0x01,
    };
    encode_reply(code, bound)
}

/// The answer to UDP ASSOCIATE where datagrams do not cross.
#[must_use]
pub fn not_associated() -> Vec<u8> {
    Socks5Error::Command(ASSOCIATE).reply()
}

fn encode_reply(code: u8, bound: Option<SocketAddr>) -> Vec<u8> {
    let mut out = vec![VERSION, code, 0];
    put_address(bound.unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into()), &mut out);
    out
}

/// Writes address type, address and port.
fn put_address(address: SocketAddr, out: &mut Vec<u8>) {
    match address.ip() {
        IpAddr::V4(address) => {
            out.push(1);
            out.extend(address.octets());
        }
        IpAddr::V6(address) => {
            out.push(4);
            out.extend(address.octets());
        }
    }
    out.extend(address.port().to_be_bytes());
}

fn check_version(buf: &[u8]) -> Result<(), Socks5Error> {
    match buf.first() {
        Some(&VERSION) | None => Ok(()),
        Some(&other) => Err(Socks5Error::Version(other)),
    }
}

fn name(octets: &[u8]) -> Result<Host, Socks5Error> {
    let text = std::str::from_utf8(octets).map_err(|_| Socks5Error::Name)?;
    // Clients without a resolver of their own send addresses as names.
    text.parse().map_err(|_| Socks5Error::Name)
}

fn ip<const N: usize>(octets: &[u8]) -> Host {
    let mut bytes = [0; 16];
    bytes[..N].copy_from_slice(octets);
    Host::Ip(if N == 4 {
        Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()
    } else {
        Ipv6Addr::from(bytes).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(bytes: &[u8]) -> String {
        let (request, used) = decode_request(bytes).unwrap().unwrap();
        assert_eq!(used, bytes.len());
        match request {
            Request::Connect(destination) => destination.to_string(),
            Request::Associate { port } => format!("from {port:?}"),
        }
    }

    #[test]
    fn an_association_is_for_a_port_or_for_any() {
        let any = b"\x05\x03\x00\x01\0\0\0\0\0\0";
        assert_eq!(request(any), "from None");
        let one = b"\x05\x03\x00\x01\x0a\x00\x00\x01\x13\x88";
        assert_eq!(request(one), "from Some(5000)");
        assert_eq!(not_associated()[..2], [5, 7]);
    }

    #[test]
    fn addresses_and_names_are_understood() {
        assert_eq!(
            request(b"\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x50"),
            "10.0.0.1:80"
        );
        assert_eq!(
            request(b"\x05\x01\x00\x03\x0bexample.com\x01\xbb"),
            "example.com:443"
        );
        assert_eq!(
            request(b"\x05\x01\x00\x03\x09192.0.2.1\x01\xbb"),
            "192.0.2.1:443"
        );
        let v6 = [
            b"\x05\x01\x00\x04".as_slice(),
            &Ipv6Addr::LOCALHOST.octets(),
            b"\x00\x07",
        ];
        assert_eq!(request(&v6.concat()), "[::1]:7");
    }

    #[test]
    fn every_part_of_a_message_is_waited_for() {
        let whole = b"\x05\x01\x00\x03\x0bexample.com\x01\xbb";
        for end in 0..whole.len() {
            assert_eq!(decode_request(&whole[..end]), Ok(None), "{end}");
        }
        assert_eq!(decode_greeting(b"\x05\x02\x02"), Ok(None));
        assert_eq!(decode_greeting(b"\x05\x02\x02\x00rest"), Ok(Some(4)));
    }

    #[test]
    fn what_cannot_be_served_is_refused_in_kind() {
        assert_eq!(decode_greeting(b"\x04\x01"), Err(Socks5Error::Version(4)));
        assert_eq!(decode_greeting(b"\x05\x01\x02"), Err(Socks5Error::Method));
        assert_eq!(Socks5Error::Method.reply(), b"\x05\xff");
        assert_eq!(
            decode_request(b"\x05\x02\x00\x01"),
            Err(Socks5Error::Command(2))
        );
        assert_eq!(Socks5Error::Command(2).reply()[1], 7);
        assert_eq!(
            decode_request(b"\x05\x01\x00\x09"),
            Err(Socks5Error::AddressType(9))
        );
        assert_eq!(
            decode_request(b"\x05\x01\x00\x03\x02\xff\xfe\x00\x50"),
            Err(Socks5Error::Name)
        );
        assert_eq!(
            reply(ReplyCode::Refused, None),
            b"\x05\x05\x00\x01\0\0\0\0\0\0"
        );
    }
}

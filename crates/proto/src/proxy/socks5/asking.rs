//! The application's half of SOCKS5: greeting, request, and what the proxy answers.

use super::{
    CONNECT, NO_AUTHENTICATION, Socks5Error, VERSION, address, check_version, put_address,
};
use crate::tunnel::{Destination, Host};

/// The greeting of an application without credentials.
pub const GREETING: [u8; 3] = [VERSION, 1, NO_AUTHENTICATION];

/// The request for a connection to `destination`.
#[must_use]
pub fn encode_connect(destination: &Destination) -> Vec<u8> {
    let mut out = vec![VERSION, CONNECT, 0];
    match &destination.host {
        Host::Ip(address) => put_address((*address, destination.port).into(), &mut out),
        Host::Name(name) => {
            let name = name.as_str().as_bytes();
            // Names have 253 bytes at most.
            out.extend([3, u8::try_from(name.len()).unwrap_or(u8::MAX)]);
            out.extend_from_slice(name);
            out.extend(destination.port.to_be_bytes());
        }
    }
    out
}

/// Reads the answer to a request: its code, 0 if the connection is there, and how many bytes it took. `None`: more bytes are
/// needed, never more than [`super::MAX_MESSAGE`] in all.
///
/// # Errors
/// [`Socks5Error`]: whatever is no answer.
pub fn decode_reply(buf: &[u8]) -> Result<Option<(u8, usize)>, Socks5Error> {
    check_version(buf)?;
    let Some((_, end)) = address(buf, 3)? else {
        return Ok(None);
    };
    Ok(buf.get(1).map(|code| (*code, end)))
}

#[cfg(test)]
mod tests {
    use super::super::{GREETING_REPLY, Request, decode_greeting, decode_request, reply};
    use super::*;
    use crate::tunnel::ReplyCode;

    #[test]
    fn the_half_of_a_proxy_understands_it() {
        assert_eq!(decode_greeting(&GREETING), Ok(Some(3)));
        assert_eq!(GREETING_REPLY, [5, 0]);
        for host in ["example.com", "192.0.2.1", "2001:db8::1"] {
            let destination = Destination {
                host: host.parse().unwrap(),
                port: 80,
            };
            let bytes = encode_connect(&destination);
            let (request, used) = decode_request(&bytes).unwrap().unwrap();
            assert_eq!(used, bytes.len());
            assert_eq!(request, Request::Connect(destination));
        }
    }

    #[test]
    fn an_answer_is_waited_for_to_its_end() {
        let bound = Some("[2001:db8::1]:80".parse().unwrap());
        for (code, wanted) in [(ReplyCode::Ok, 0), (ReplyCode::Refused, 5)] {
            let whole = reply(code, bound);
            for end in 0..whole.len() {
                assert_eq!(decode_reply(&whole[..end]), Ok(None), "{end}");
            }
            assert_eq!(decode_reply(&whole), Ok(Some((wanted, whole.len()))));
        }
        assert_eq!(decode_reply(b"HTTP"), Err(Socks5Error::Version(b'H')));
    }
}

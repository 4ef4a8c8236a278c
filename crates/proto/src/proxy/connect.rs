//! What the HTTP proxy answers itself: to CONNECT (RFC 9110 §9.3.6), and to requests that it turns away.

use thiserror::Error;

use crate::tunnel::ReplyCode;

/// Longest request head that is read, in bytes.
pub const MAX_HEAD: usize = 16 * 1024;

/// Reason why a request is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ConnectError {
    /// Not an HTTP request, or one that leaves open where it ends.
    #[error("not an HTTP/1 request, or one whose end is unclear")]
    Malformed,
    /// Neither CONNECT nor an address that begins with `http://`: meant for a web server, not for a proxy.
    #[error("this is a proxy: it serves CONNECT, and addresses that begin with http://")]
    Form,
    /// The target names no host and port.
    #[error("the target names no host, or more than host and port")]
    Target,
    /// The head exceeds [`MAX_HEAD`].
    #[error("request head too long")]
    TooLong,
}

impl ConnectError {
    /// The answer to the client.
    #[must_use]
    pub fn reply(self) -> Vec<u8> {
        match self {
            Self::Malformed | Self::Form | Self::Target => answer("400 Bad Request", self),
            Self::TooLong => answer("431 Request Header Fields Too Large", self),
        }
    }
}

/// The answer once the server's reply is known (or is taken for granted).
#[must_use]
pub fn reply(code: ReplyCode) -> Vec<u8> {
    let (status, text) = match code {
        ReplyCode::Ok => return b"HTTP/1.1 200 Connection established\r\n\r\n".to_vec(),
        ReplyCode::Denied => ("403 Forbidden", "this destination is not allowed"),
        ReplyCode::TimedOut => ("504 Gateway Timeout", "the destination did not answer"),
        ReplyCode::Refused => ("502 Bad Gateway", "the destination refused the connection"),
        ReplyCode::NetworkUnreachable | ReplyCode::HostUnreachable => {
            ("502 Bad Gateway", "the destination is unreachable")
        }
        ReplyCode::NameNotFound => ("502 Bad Gateway", "the name has no address"),
        ReplyCode::FamilyUnsupported => ("502 Bad Gateway", "address family not available"),
        ReplyCode::LimitReached | ReplyCode::Draining => ("503 Service Unavailable", "busy"),
        ReplyCode::Internal => ("502 Bad Gateway", "the connection failed"),
    };
    answer(status, text)
}

fn answer(status: &str, text: impl std::fmt::Display) -> Vec<u8> {
    let body = format!("bentpipe: {text}\n");
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::super::forward::{Asked, decode};
    use super::*;

    fn target(head: &str) -> Result<Option<String>, ConnectError> {
        let decoded = decode(head.as_bytes())?;
        Ok(decoded.map(|(asked, _)| match asked {
            Asked::Connect(destination) => destination.to_string(),
            Asked::Forward(request) => panic!("{request:?}"),
        }))
    }

    #[test]
    fn targets_are_understood() {
        for name in ["example.com:443", "192.0.2.1:80", "[2001:db8::1]:443"] {
            let head = format!("CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n\r\n");
            assert_eq!(target(&head), Ok(Some(name.into())));
        }
    }

    #[test]
    fn bytes_after_the_head_are_left_alone() {
        let head = b"CONNECT a:1 HTTP/1.1\r\n\r\n";
        let (_, used) = decode(&[head.as_slice(), b"\x16\x03"].concat())
            .unwrap()
            .unwrap();
        assert_eq!(used, head.len());
        for end in 0..head.len() {
            assert_eq!(decode(&head[..end]), Ok(None));
        }
    }

    #[test]
    fn anything_else_gets_an_answer_that_names_the_mend() {
        let get = "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n";
        assert_eq!(target(get), Err(ConnectError::Form));
        let text = String::from_utf8(ConnectError::Form.reply()).unwrap();
        assert!(
            text.starts_with("HTTP/1.1 400") && text.contains("this is a proxy"),
            "{text}"
        );
        for bad in [
            "example.com",
            "a:b",
            ":80",
            "[::1:80",
            "a:70000",
            "2001:db8::1:443",
        ] {
            let head = format!("CONNECT {bad} HTTP/1.1\r\n\r\n");
            assert_eq!(target(&head), Err(ConnectError::Target), "{bad}");
        }
        assert_eq!(target("\x16\x03\x01 \r\n"), Err(ConnectError::Malformed));
        let long = format!(
            "CONNECT a:1 HTTP/1.1\r\nA: {}\r\n\r\n",
            "x".repeat(MAX_HEAD)
        );
        assert_eq!(target(&long), Err(ConnectError::TooLong));
        assert_eq!(target(&long[..MAX_HEAD]), Err(ConnectError::TooLong));
    }
}

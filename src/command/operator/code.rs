//! The code by which a client joins: `bentpipe://NAME@HOST:PORT/SERVER/ONCE`, or `bentpipe://NAME@HOST:PORT+TLS/SERVER/ONCE` of a
//! server that takes TLS connections, at TCP port TLS of that host.
//!
//! SERVER is the server's public key, ONCE the private half of the one-time key that the server lists for the client, both in base64
//! for URLs. No character of it means anything to a shell but the brackets of an IPv6 address.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bentpipe_pep::config::ServerAddress;
use bentpipe_pep::keys::{PrivateKey, PublicKey};
use zeroize::Zeroizing;

/// First word of every code.
const SCHEME: &str = "bentpipe://";

/// Longest name of a client, in characters.
const LONGEST_NAME: usize = 63;

/// What a client needs to know to join.
pub(super) struct Code {
    pub(super) name: String,
    pub(super) server: ServerAddress,
    /// TCP port at which the server takes TLS connections, if it does.
    pub(super) tls_port: Option<u16>,
    pub(super) server_key: PublicKey,
    pub(super) once: PrivateKey,
}

/// Whether `name` may stand in a code: it needs no escaping anywhere.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(plain) {
        return Err(format!(
            "`{}` is no name for a client; use up to {LONGEST_NAME} letters, digits, dots, dashes and underscores",
            name.escape_debug()
        ));
    }
    Ok(())
}

impl Code {
    /// Address at which the server takes TLS connections, if it does.
    pub(super) fn tls(&self) -> Option<ServerAddress> {
        let port = self.tls_port?;
        Some(match &self.server {
            ServerAddress::Ip(address) => ServerAddress::Ip((address.ip(), port).into()),
            ServerAddress::Name { host, .. } => ServerAddress::Name {
                host: host.clone(),
                port,
            },
        })
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let encode = |bytes: &[u8; 32]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let tls = self.tls_port.map(|port| format!("+{port}"));
        write!(
            f,
            "{SCHEME}{}@{}{}/{}/{}",
            self.name,
            self.server,
            tls.unwrap_or_default(),
            encode(&self.server_key.to_bytes()),
            encode(self.once.seed())
        )
    }
}

impl FromStr for Code {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let whole =
            "is it whole? `bentpipe server add` prints it as one line that begins with bentpipe://";
        let rest = text
            .trim()
            .strip_prefix(SCHEME)
            .ok_or_else(|| format!("this is no code to join by; {whole}"))?;
        let mut parts = rest.split('/');
        let (Some(place), Some(server_key), Some(once), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(format!(
                "the code lacks a part, or has one too many; {whole}"
            ));
        };
        let (name, server) = place
            .split_once('@')
            .ok_or_else(|| format!("the code names no client; {whole}"))?;
        check_name(name)?;
        let (server, tls_port) = match server.split_once('+') {
            Some((server, port)) => {
                let port = port.parse().ok().filter(|port| *port != 0);
                let port = port.ok_or_else(|| format!("the code has a bad TLS port; {whole}"))?;
                (server, Some(port))
            }
            None => (server, None),
        };
        let server = server
            .parse()
            .map_err(|fault| format!("the code names no server: {fault}; {whole}"))?;
        let key = |text: &str| {
            let bytes = Zeroizing::new(BASE64_URL_SAFE_NO_PAD.decode(text).ok()?);
            <[u8; 32]>::try_from(&bytes[..]).ok().map(Zeroizing::new)
        };
        let server_key = key(server_key).and_then(|bytes| PublicKey::from_bytes(*bytes));
        let (Some(server_key), Some(once)) = (server_key, key(once)) else {
            return Err(format!("a key in the code is not 32 bytes long; {whole}"));
        };
        Ok(Self {
            name: name.to_owned(),
            server,
            tls_port,
            server_key,
            once: PrivateKey::from_seed(once),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_says_what_went_into_it() {
        for (server, tls_port) in [
            ("192.0.2.1:4433", None),
            ("192.0.2.1:4433", Some(443)),
            ("[2001:db8::1]:443", Some(443)),
            ("gateway.example.com:4433", Some(8443)),
        ] {
            let once = PrivateKey::generate().expect("a key");
            let code = Code {
                name: "ship-7".to_owned(),
                server: server.parse().expect("an address"),
                tls_port,
                server_key: PrivateKey::generate().expect("a key").public(),
                once: PrivateKey::from_seed(Zeroizing::new(*once.seed())),
            };
            let text = code.to_string();
            let read: Code = text.parse().expect("a code");
            assert_eq!(
                (&read.name, read.server.to_string()),
                (&code.name, server.to_owned())
            );
            assert_eq!(
                read.tls().map(|tls| tls.to_string()),
                code.tls().map(|tls| tls.to_string())
            );
            assert_eq!(read.tls_port, tls_port);
            assert_eq!(read.server_key, code.server_key);
            assert_eq!(read.once.public(), once.public());
            assert_eq!(read.to_string(), text);
        }
    }

    #[test]
    fn half_a_code_is_refused() {
        let once = PrivateKey::generate().expect("a key");
        let text = Code {
            name: "a".to_owned(),
            server: "192.0.2.1:4433".parse().expect("an address"),
            tls_port: Some(443),
            server_key: once.public(),
            once,
        }
        .to_string();
        for length in 0..text.len() {
            assert!(text[..length].parse::<Code>().is_err(), "{length}");
        }
        assert!(format!("{text}/more").parse::<Code>().is_err());
        assert!(text.replace("//a@", "//a b@").parse::<Code>().is_err());
        assert!(text.replace("+443", "+0").parse::<Code>().is_err());
        assert!(text.replace("+443", "+").parse::<Code>().is_err());
    }
}

//! ClientHello of a connection to port 443: whether a client may answer in the place of the host that it names.

use rustls::server::{Acceptor, ClientHello};
use rustls::{CipherSuite, NamedGroup, SignatureScheme};

/// Bytes in which a ClientHello has to be; those of browsers have 2,000.
pub(super) const MAX_HELLO: usize = 16 * 1024;

/// First byte of a TLS record that holds a handshake.
const HANDSHAKE: u8 = 22;

/// Cipher suites of TLS 1.3, and of TLS 1.2 with an ECDSA certificate, one of which a browser has to have.
const SUITES: [CipherSuite; 6] = [
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS13_AES_256_GCM_SHA384,
    CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
];

/// Key exchanges, one of which a browser has to have.
const GROUPS: [NamedGroup; 4] = [
    NamedGroup::X25519MLKEM768,
    NamedGroup::X25519,
    NamedGroup::secp256r1,
    NamedGroup::secp384r1,
];

/// What a connection has said so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// The beginning of a ClientHello.
    Part,
    /// Something else, or a ClientHello that only its host can answer.
    Other,
    /// A ClientHello for this host, in lower case.
    Host(String),
}

/// Reader of a ClientHello.
pub(super) struct HelloReader {
    acceptor: Acceptor,
    length: usize,
}

impl HelloReader {
    pub(super) fn new() -> Self {
        Self {
            acceptor: Acceptor::default(),
            length: 0,
        }
    }

    /// Reads what has come behind the bytes before; not to be called again once more than a part has been heard.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Heard {
        if self.length == 0 && bytes.first().is_some_and(|first| *first != HANDSHAKE) {
            return Heard::Other;
        }
        self.length += bytes.len();
        while !bytes.is_empty() {
            if self.acceptor.read_tls(&mut bytes).is_err() {
                return Heard::Other;
            }
            match self.acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => return judge(&accepted.client_hello()),
                Err(_) => return Heard::Other,
            }
        }
        match self.length {
            0..MAX_HELLO => Heard::Part,
            _ => Heard::Other,
        }
    }
}

/// A browser that speaks HTTP/1.1 in TLS, as all do beside HTTP/2, and takes ECDSA certificates of P-256 can be answered. Encrypted ClientHello is no
/// hindrance: browsers send one that means nothing (RFC 9849 §6.2), and one that means something names another host outside.
fn judge(hello: &ClientHello<'_>) -> Heard {
    let suits = hello.cipher_suites().iter().any(|it| SUITES.contains(it))
        && hello
            .named_groups()
            .is_some_and(|groups| groups.iter().any(|it| GROUPS.contains(it)))
        && hello
            .signature_schemes()
            .contains(&SignatureScheme::ECDSA_NISTP256_SHA256)
        && hello
            .alpn()
            .is_none_or(|mut protocols| protocols.any(|it| it == b"http/1.1"));
    match hello.server_name() {
        Some(name) if suits => Heard::Host(name.to_ascii_lowercase()),
        Some(_) | None => Heard::Other,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rand_core::{Rng as _, SeedableRng as _};
    use rand_pcg::Pcg32;
    use rustls::crypto::aws_lc_rs::default_provider;
    use rustls::pki_types::ServerName;
    use rustls::version::{TLS12, TLS13};
    use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};

    use super::*;

    fn hello(
        name: &str,
        version: &'static SupportedProtocolVersion,
        protocols: &[&str],
    ) -> Vec<u8> {
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut browser = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        browser.write_tls(&mut bytes).unwrap();
        bytes
    }

    fn heard(bytes: &[u8], size: usize) -> Heard {
        let mut reader = HelloReader::new();
        let pieces = bytes.chunks(size).map(|piece| reader.read(piece));
        pieces
            .into_iter()
            .find(|heard| *heard != Heard::Part)
            .unwrap_or(Heard::Part)
    }

    #[test]
    fn browsers_that_can_be_answered_are_told_by_their_host() {
        let whole = hello("A.example.com", &TLS13, &["h2", "http/1.1"]);
        for size in [1, 7, 100, whole.len()] {
            assert_eq!(heard(&whole, size), Heard::Host("a.example.com".into()));
        }
        assert_eq!(heard(&whole[..whole.len() - 1], 100), Heard::Part);
        // No browser, but an application that would lose what it wants of HTTP/2.
        let grpc = hello("a.example", &TLS13, &["h2"]);
        assert_eq!(heard(&grpc, 500), Heard::Other);
        for silent in [&TLS13, &TLS12].map(|version| hello("a.example", version, &[])) {
            assert_eq!(heard(&silent, 500), Heard::Host("a.example".into()));
        }
        for other in [
            hello("a.example", &TLS13, &["imap"]),
            hello("192.0.2.1", &TLS13, &[]),
            b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(),
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        ] {
            assert_eq!(heard(&other, 64), Heard::Other);
        }
    }

    #[test]
    fn whatever_is_said_ends_within_its_bound() {
        let (mut generator, valid) = (Pcg32::seed_from_u64(1), hello("a.example", &TLS13, &[]));
        for case in 0..2000 {
            let mut bytes = valid.clone();
            match case % 3 {
                0 => {
                    for _ in 0..1 + generator.next_u32() % 8 {
                        let at = generator.next_u32() as usize % bytes.len();
                        bytes[at] = generator.next_u32().to_le_bytes()[0];
                    }
                }
                1 => generator.fill_bytes(&mut bytes),
                // Records that hold a handshake without an end.
                _ => {
                    bytes = [22, 3, 1, 0x3f, 0xff, 1, 0x0f, 0xff, 0xff].to_vec();
                    bytes.resize(2 * MAX_HELLO, 0);
                }
            }
            let size = 1 + generator.next_u32() as usize % 4000;
            let heard = heard(&bytes, size);
            assert!(bytes.len() < MAX_HELLO || heard != Heard::Part, "{case}");
        }
    }
}

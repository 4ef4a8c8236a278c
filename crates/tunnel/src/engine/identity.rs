//! Who may talk to whom: keys, and TLS that accepts nothing but them.
//!
//! The one place where certificate verification is ours, because rustls takes raw public keys (RFC 7250) only
//! through a verifier of the application. What holds for every handshake:
//!
//! - TLS 1.3 with ALPN [`ALPN`]; no session tickets, no resumption, no 0-RTT: each handshake shows both keys anew.
//! - Both sides prove an Ed25519 key. The client accepts exactly the configured key, the server the keys for which
//!   its callback says yes at that moment.
//! - X25519MLKEM768 is the only key exchange, unless the configuration allows X25519 beside it.
//!
//! The verifier here decides *which* key; that the peer holds its private half is checked by rustls and webpki.
//!
//! A TLS 1.3 client is done before the server has seen its key. A client that the server does not know hence sees
//! its connection established for half a round trip, and only then the refusal ([`is_unknown_client`]). The server
//! has no connection, and takes no data, before the client's key is checked.

mod key;
mod key_exchange;
mod les;
mod outer;
mod verifier;

use std::cell::Cell;
use std::error;
use std::sync::Arc;

use aws_lc_rs::{hkdf, hmac};
use bentpipe_proto::tunnel::ALPN;
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::crypto::{ClientConfig, HandshakeTokenKey, HmacKey, ServerConfig};
use quinn_proto::{Connection, ConnectionError, TransportErrorCode};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, ResolvesClientCert, Resumption};
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{AlertDescription, Error, OtherError};

pub use key::{PrivateKey, PublicKey};
pub use les::{les_client_crypto, les_server_crypto};
pub use outer::unverified_client;
use verifier::Verifier;

/// Bytes before the 32 bytes of an Ed25519 key in its SubjectPublicKeyInfo (RFC 8410, section 4). DER leaves
/// no other way to write it, so comparing bytes is parsing.
const SPKI_PREFIX: [u8; 12] = *b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";

/// Asked during every handshake whether the peer that shows this key is welcome.
pub type Accepts = Arc<dyn Fn(&PublicKey) -> bool + Send + Sync>;

/// TLS of a client that shows `key` and talks to `server` alone. `key_log` receives TLS secrets.
///
/// # Errors
/// Only if the TLS library refuses its own defaults.
pub fn client_crypto(
    key: &PrivateKey,
    server: PublicKey,
    allow_classical: bool,
    key_log: Option<Arc<dyn rustls::KeyLog>>,
) -> Result<Arc<dyn ClientConfig>, Error> {
    let verifier = Verifier::noting(Arc::new(move |key| *key == server));
    client(key, (ALPN, verifier), allow_classical, key_log)
}

/// TLS of a client that speaks the protocol of this ALPN with whom the verifier accepts.
fn client(
    key: &PrivateKey,
    (alpn, verifier): (&[u8], Verifier),
    allow_classical: bool,
    key_log: Option<Arc<dyn rustls::KeyLog>>,
) -> Result<Arc<dyn ClientConfig>, Error> {
    let builder = rustls::ClientConfig::builder_with_provider(cryptography(allow_classical))
        .with_protocol_versions(&[&TLS13])?;
    #[expect(
        clippy::disallowed_methods,
        reason = "rustls has no other way to take a raw public key"
    )]
    let builder = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let resolver = AlwaysResolvesClientRawPublicKeys::new(certified(key)?);
    let mut config = builder.with_client_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![alpn.to_vec()];
    config.resumption = Resumption::disabled();
    // The server is its key; a name would only mark our handshakes for an observer.
    config.enable_sni = false;
    if let Some(key_log) = key_log {
        config.key_log = key_log;
    }
    let config = QuicClientConfig::try_from(config).map_err(no_initial_suite)?;
    Ok(Arc::new(key_exchange::Recording(Arc::new(config))))
}

/// TLS of a server that shows `key` and lets in whom `is_client` knows. `key_log` receives TLS secrets.
///
/// # Errors
/// Only if the TLS library refuses its own defaults.
pub fn server_crypto(
    key: &PrivateKey,
    is_client: Accepts,
    allow_classical: bool,
    key_log: Option<Arc<dyn rustls::KeyLog>>,
) -> Result<Arc<dyn ServerConfig>, Error> {
    server(
        key,
        (ALPN, Verifier::noting(is_client)),
        allow_classical,
        key_log,
    )
}

/// TLS of a server that speaks the protocol of this ALPN with whom the verifier accepts.
fn server(
    key: &PrivateKey,
    (alpn, verifier): (&[u8], Verifier),
    allow_classical: bool,
    key_log: Option<Arc<dyn rustls::KeyLog>>,
) -> Result<Arc<dyn ServerConfig>, Error> {
    let mut config = rustls::ServerConfig::builder_with_provider(cryptography(allow_classical))
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified(
            key,
        )?)));
    config.alpn_protocols = vec![alpn.to_vec()];
    // A resumed session would not ask `is_client` again.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.max_early_data_size = 0;
    if let Some(key_log) = key_log {
        config.key_log = key_log;
    }
    let config = QuicServerConfig::try_from(config).map_err(no_initial_suite)?;
    Ok(Arc::new(key_exchange::Recording(Arc::new(config))))
}

/// `key` as it is shown to a server that has a certificate.
///
/// # Errors
/// Only if the TLS library refuses its own defaults.
pub fn shown(key: &PrivateKey) -> Result<Arc<dyn ResolvesClientCert>, Error> {
    Ok(Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified(
        key,
    )?)))
}

/// Verifier of a server that has a certificate, and lets in the raw keys for which `accepts` says yes.
#[must_use]
pub fn shown_verifier(accepts: Accepts) -> Arc<dyn ClientCertVerifier> {
    Arc::new(Verifier::quiet(accepts))
}

/// Raw key that a peer has shown in place of a certificate.
#[must_use]
pub fn shown_key(certificates: Option<&[CertificateDer<'_>]>) -> Option<PublicKey> {
    from_spki(certificates?.first()?)
}

/// The algorithms of both sides.
fn cryptography(allow_classical: bool) -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        kx_groups: key_exchange::groups(allow_classical),
        ..provider::default_provider()
    })
}

fn no_initial_suite(error: impl error::Error + Send + Sync + 'static) -> Error {
    Error::Other(OtherError(Arc::new(error)))
}

/// The key that the peer of `connection` has proved to hold; `None` until it has.
#[must_use]
pub fn peer_key(connection: &Connection) -> Option<PublicKey> {
    let identity = connection.crypto_session().peer_identity()?;
    let chain = identity.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    from_spki(chain.first()?)
}

/// The name of the key exchange that protects `connection`; `None` before it has taken place.
#[must_use]
pub fn key_exchange(connection: &Connection) -> Option<&'static str> {
    let group = connection.crypto_session().handshake_data()?;
    group
        .downcast::<key_exchange::KeyExchange>()
        .ok()?
        .0
        .as_str()
}

/// At a client: whether the connection ended because the server does not know this client's key.
#[must_use]
pub fn is_unknown_client(reason: &ConnectionError) -> bool {
    matches!(reason, ConnectionError::ConnectionClosed(close) if close.error_code == not_accepted())
}

/// At a client: whether the connection ended because the server showed another key than the configured one.
#[must_use]
pub fn is_wrong_server(reason: &ConnectionError) -> bool {
    matches!(reason, ConnectionError::TransportError(error) if error.code == not_accepted())
}

/// Code by which QUIC says that a [`Verifier`] does not accept a key; nothing else in our handshakes says so.
fn not_accepted() -> TransportErrorCode {
    TransportErrorCode::crypto(AlertDescription::AccessDenied.into())
}

/// Signs stateless resets. The same after a restart, so that peers believe a restarted server that it has forgotten
/// them.
#[must_use]
pub fn reset_key(key: &PrivateKey) -> Arc<dyn HmacKey> {
    Arc::new(key.derive::<_, hmac::Key>(b"stateless reset", hmac::HMAC_SHA256))
}

/// Seals address-validation tokens.
#[must_use]
pub fn token_key(key: &PrivateKey) -> Arc<dyn HandshakeTokenKey> {
    Arc::new(key.derive::<_, hkdf::Prk>(b"address validation token", hkdf::HKDF_SHA256))
}

thread_local! {
    /// The last key that a [`Verifier`] of this thread has not accepted. TLS has no other way to tell whose handshake
    /// that was: the engine asks after each datagram.
    static REFUSED: Cell<Option<PublicKey>> = const { Cell::new(None) };
}

/// The key that the datagram handled last on this thread has shown and that was not accepted, if it has.
pub(super) fn take_refused() -> Option<PublicKey> {
    REFUSED.take()
}

/// The key in a raw-public-key "certificate"; `None` for anything else, an X.509 certificate included.
fn from_spki(spki: &[u8]) -> Option<PublicKey> {
    let key = spki.strip_prefix(&SPKI_PREFIX)?;
    key.try_into().ok().map(PublicKey)
}

/// `key` as TLS shows it: the "certificate" is its SubjectPublicKeyInfo.
fn certified(key: &PrivateKey) -> Result<Arc<CertifiedKey>, Error> {
    let failed = |_| Error::General("the key cannot be encoded".into());
    let pkcs8 = key.pair().to_pkcs8v1().map_err(failed)?;
    let signer = provider::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8.as_ref()))?;
    let spki = [&SPKI_PREFIX[..], &key.public().0].concat();
    Ok(Arc::new(CertifiedKey::new(vec![spki.into()], signer)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::pki_types::{ServerName, UnixTime};

    use super::*;

    /// A terminal whose clock starts in 1970 connects (`docs/decisions/raw-keys.md`), and one whose clock is centuries ahead.
    #[test]
    fn keys_are_believed_at_any_time() {
        let key = PrivateKey::generate().unwrap();
        let certified = certified(&key).unwrap();
        let name = ServerName::try_from("bentpipe.invalid").unwrap();
        for own in [true, false] {
            let expected = if own {
                key.public()
            } else {
                PrivateKey::generate().unwrap().public()
            };
            let verifier = Verifier::quiet(Arc::new(move |shown| *shown == expected));
            for at in [Duration::ZERO, Duration::from_secs(1 << 34)] {
                let now = UnixTime::since_unix_epoch(at);
                let end = &certified.cert[0];
                let server = verifier.verify_server_cert(end, &[], &name, &[], now);
                let client = verifier.verify_client_cert(end, &[], now);
                assert_eq!((server.is_ok(), client.is_ok()), (own, own), "{at:?}");
            }
        }
    }

    #[test]
    fn one_encoding_is_a_key_and_nothing_else() {
        let key = PrivateKey::generate().unwrap();
        let certified = certified(&key).unwrap();
        let encoded = certified.cert[0].as_ref();
        assert_eq!(certified.key.public_key().unwrap().as_ref(), encoded);
        assert_eq!(from_spki(encoded), Some(key.public()));
        for length in 0..encoded.len() {
            assert_eq!(from_spki(&encoded[..length]), None);
        }
        assert_eq!(from_spki(&[encoded, &[0]].concat()), None);
        for bit in 0..encoded.len() * 8 {
            let mut other = encoded.to_vec();
            other[bit / 8] ^= 1 << (bit % 8);
            let found = from_spki(&other);
            assert_eq!(found.is_some(), bit / 8 >= SPKI_PREFIX.len());
            assert_ne!(found, Some(key.public()));
        }
    }
}

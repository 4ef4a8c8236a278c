//! Who may talk to whom: keys, and TLS that accepts nothing but them.
//!
//! The one place where certificate verification is ours, because rustls takes raw public keys (RFC 7250) only
//! through verifiers of the application. What holds for every handshake:
//!
//! - TLS 1.3 with ALPN [`ALPN`]; no session tickets, no resumption, no 0-RTT: each handshake shows both keys anew.
//! - Both sides prove an Ed25519 key. The client accepts exactly the configured key, the server the keys for which
//!   its callback says yes at that moment.
//! - X25519MLKEM768 is the only key exchange, unless the configuration allows X25519 beside it.
//!
//! The verifiers here decide *which* key; that the peer holds its private half is checked by rustls and webpki.
//!
//! A TLS 1.3 client is done before the server has seen its key. A client that the server does not know hence sees
//! its connection established for half a round trip, and only then the refusal ([`is_unknown_client`]). The server
//! has no connection, and takes no data, before the client's key is checked.

mod key_exchange;

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::{error, fmt, slice};

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use aws_lc_rs::{hkdf, hmac};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bentpipe_proto::tunnel::ALPN;
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::crypto::{ClientConfig, HandshakeTokenKey, HmacKey, ServerConfig};
use quinn_proto::{Connection, ConnectionError, TransportErrorCode};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs as provider,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    AlertDescription, CertificateError, DigitallySignedStruct, DistinguishedName, Error,
    OtherError, PeerIncompatible, SignatureScheme,
};
use zeroize::{Zeroize, Zeroizing};

/// What stands before the 32 bytes of an Ed25519 key in its SubjectPublicKeyInfo (RFC 8410, section 4). DER leaves
/// no other way to write it, so comparing bytes is parsing.
const SPKI_PREFIX: [u8; 12] = *b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";

/// More than any key file holds; stops a wrong file from being read whole.
const MAX_KEY_FILE: u64 = 4096;

/// An Ed25519 public key. Its text form is base64 of the 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// The key in a raw-public-key "certificate"; `None` for anything else, an X.509 certificate included.
    fn from_spki(spki: &[u8]) -> Option<Self> {
        let key = spki.strip_prefix(&SPKI_PREFIX)?;
        key.try_into().ok().map(Self)
    }
}

impl FromStr for PublicKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        decode(text).map(|bytes| Self(*bytes))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

/// An Ed25519 private key: the seed of RFC 8032, wiped when dropped. Its `Debug` form keeps the secret.
pub struct PrivateKey(Zeroizing<[u8; 32]>);

impl PrivateKey {
    /// A new key from the system's random numbers.
    ///
    /// # Errors
    /// If the system has none to give.
    pub fn generate() -> Result<Self, Unspecified> {
        let mut seed = Zeroizing::new([0; 32]);
        aws_lc_rs::rand::fill(&mut *seed)?;
        Ok(Self(seed))
    }

    /// The key in the file at `path`, which nobody but its owner may be able to read.
    ///
    /// # Errors
    /// The file is missing, accessible to others or holds no key; the message says which, and the mend.
    pub fn read(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let cannot = |error| {
            format!(
                "cannot read private key file {name}: {error}; make one with `bentpipe genkey > {name}`"
            )
        };
        let file = File::open(path).map_err(cannot)?;
        let mode = file.metadata().map_err(cannot)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(format!(
                "private key file {name} is accessible to others (mode {mode:04o}); run `chmod 600 {name}`"
            ));
        }
        let mut text = Zeroizing::new(String::new());
        file.take(MAX_KEY_FILE)
            .read_to_string(&mut text)
            .map_err(cannot)?;
        text.parse().map_err(|_| {
            format!(
                "private key file {name} holds no key; make one with `bentpipe genkey > {name}`"
            )
        })
    }

    /// The public key that belongs to it.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        let public = self.pair().public_key().as_ref().try_into();
        PublicKey(public.expect("an Ed25519 public key has 32 bytes"))
    }

    /// Its base64 form, as key files hold it: a secret.
    #[must_use]
    pub fn to_base64(&self) -> String {
        STANDARD.encode(*self.0)
    }

    fn pair(&self) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&*self.0).expect("any 32 bytes are a seed")
    }

    /// The key as TLS shows it: no certificate, only the SubjectPublicKeyInfo.
    fn certified(&self) -> Result<Arc<CertifiedKey>, Error> {
        let failed = |Unspecified| Error::General("the key cannot be encoded".into());
        let mut pkcs8 =
            PrivatePkcs8KeyDer::from(self.pair().to_pkcs8v1().map_err(failed)?.as_ref().to_vec());
        let signer = provider::sign::any_eddsa_type(&pkcs8);
        pkcs8.zeroize();
        let spki = [&SPKI_PREFIX[..], &self.public().0].concat();
        Ok(Arc::new(CertifiedKey::new(
            vec![CertificateDer::from(spki)],
            signer?,
        )))
    }

    /// A secret for one purpose, which tells nothing about the key or about other purposes' secrets.
    fn derive<L: hkdf::KeyType, K>(&self, purpose: &'static [u8], length: L) -> K
    where
        K: for<'a> From<hkdf::Okm<'a, L>>,
    {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"bentpipe derived keys");
        let secret = salt.extract(&*self.0);
        K::from(
            secret
                .expand(&[purpose], length)
                .expect("one hash's length can be derived"),
        )
    }
}

impl FromStr for PrivateKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        decode(text).map(Self)
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(…)")
    }
}

/// The 32 bytes that `text` stands for.
fn decode(text: &str) -> Result<Zeroizing<[u8; 32]>, String> {
    const MEND: &str =
        "a key is 32 bytes in base64, as `bentpipe genkey` and `bentpipe pubkey` print it";
    let bytes = STANDARD
        .decode(text.trim())
        .map_err(|_| format!("bad key: not base64; {MEND}"))?;
    let bytes = Zeroizing::new(bytes);
    let key = <[u8; 32]>::try_from(bytes.as_slice())
        .map_err(|_| format!("bad key: {} bytes; {MEND}", bytes.len()))?;
    // As a public key it is a point for which anybody can sign.
    if key == [0; 32] {
        return Err(format!("bad key: all zeros, a placeholder; {MEND}"));
    }
    Ok(Zeroizing::new(key))
}

/// Asked during every handshake whether the client with this key may come in.
pub type IsClient = Arc<dyn Fn(&PublicKey) -> bool + Send + Sync>;

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
    let builder = rustls::ClientConfig::builder_with_provider(cryptography(allow_classical))
        .with_protocol_versions(&[&TLS13])?;
    #[expect(
        clippy::disallowed_methods,
        reason = "rustls has no other way to take a raw public key"
    )]
    let builder = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(OnlyServer(server)));
    let mut config = builder.with_client_cert_resolver(Arc::new(
        AlwaysResolvesClientRawPublicKeys::new(key.certified()?),
    ));
    config.alpn_protocols = vec![ALPN.to_vec()];
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
    is_client: IsClient,
    allow_classical: bool,
    key_log: Option<Arc<dyn rustls::KeyLog>>,
) -> Result<Arc<dyn ServerConfig>, Error> {
    let mut config = rustls::ServerConfig::builder_with_provider(cryptography(allow_classical))
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(Arc::new(KnownClients(is_client)))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(
            key.certified()?,
        )));
    config.alpn_protocols = vec![ALPN.to_vec()];
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
    PublicKey::from_spki(chain.first()?)
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

/// Whether the connection ended because the server does not know this client's key.
#[must_use]
pub fn is_unknown_client(reason: &ConnectionError) -> bool {
    // Of all verdicts of the server's verifier, only "unknown" is told with this alert.
    let unknown = TransportErrorCode::crypto(u8::from(AlertDescription::AccessDenied));
    matches!(reason, ConnectionError::ConnectionClosed(close) if close.error_code == unknown)
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

/// Says which key a server showed, and which it should have.
#[derive(Debug, thiserror::Error)]
#[error("the server holds the key {found}, not {wanted}; check `public_key` in `[server]`")]
struct WrongServer {
    found: PublicKey,
    wanted: PublicKey,
}

/// The client's verdict on a server.
#[derive(Debug)]
struct OnlyServer(PublicKey);

impl ServerCertVerifier for OnlyServer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = sole_key(end_entity, intermediates)?;
        if found != self.0 {
            let wrong = WrongServer {
                found,
                wanted: self.0,
            };
            return Err(CertificateError::Other(OtherError(Arc::new(wrong))).into());
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_signature(message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// The server's verdict on a client.
struct KnownClients(IsClient);

impl fmt::Debug for KnownClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KnownClients")
    }
}

impl ClientCertVerifier for KnownClients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let key = sole_key(end_entity, intermediates)?;
        if !(self.0)(&key) {
            tracing::debug!(%key, "a client with an unknown key was refused");
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_signature(message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// The key of a peer whose "certificate chain" is one raw Ed25519 key, and nothing else.
fn sole_key(
    end_entity: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
) -> Result<PublicKey, Error> {
    PublicKey::from_spki(end_entity)
        .filter(|_| intermediates.is_empty())
        .ok_or_else(|| CertificateError::BadEncoding.into())
}

/// Whether the holder of `key` signed this handshake.
fn verify_signature(
    message: &[u8],
    key: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let all = provider::default_provider().signature_verification_algorithms;
    let ed25519 = all
        .mapping
        .iter()
        .find(|(scheme, _)| *scheme == SignatureScheme::ED25519);
    let ed25519 = ed25519.expect("aws-lc-rs knows Ed25519");
    let only = WebPkiSupportedAlgorithms {
        all: ed25519.1,
        mapping: slice::from_ref(ed25519),
    };
    let key = SubjectPublicKeyInfoDer::from(key.as_ref());
    verify_tls13_signature_with_raw_key(message, &key, signature, &only)
}

//! Peers that break one rule each, made of rustls without our verifiers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_lc_rs::signature::Ed25519KeyPair;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bentpipe_proto::tunnel::ALPN;
use bentpipe_tunnel::engine::identity::PrivateKey;
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::crypto::{ClientConfig, ServerConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, ResolvesClientCert, Resumption,
};
use rustls::client::{Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::crypto::aws_lc_rs::{default_provider, sign};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime, alg_id};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, public_key_to_spki};
use rustls::version::TLS13;
use rustls::{DigitallySignedStruct, DistinguishedName, Error, NamedGroup, SignatureScheme};

/// What a peer shows: by default nothing at all.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// The "certificate chain" and the key that signs.
    pub(crate) certified: Option<Arc<CertifiedKey>>,
    /// Whether the peer calls it a raw public key.
    pub(crate) raw: bool,
}

impl Shown {
    /// The raw public key of `key`, signed for by `signer`.
    pub(crate) fn raw_key(key: &PrivateKey, signer: &PrivateKey) -> Self {
        Self::raw(vec![spki(key)], signer)
    }

    /// Any entries in the place of a raw public key, signed for by `signer`.
    pub(crate) fn raw(entries: Vec<CertificateDer<'static>>, signer: &PrivateKey) -> Self {
        let seed = STANDARD.decode(signer.to_base64()).unwrap();
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).unwrap();
        let signer = signing_key(pair.to_pkcs8v1().unwrap().as_ref());
        Self {
            certified: Some(Arc::new(CertifiedKey::new(entries, signer))),
            raw: true,
        }
    }

    /// A self-signed X.509 certificate; `raw` says what the peer calls it.
    pub(crate) fn x509(raw: bool) -> Self {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let params = rcgen::CertificateParams::new(vec!["bentpipe".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let signer = signing_key(&key.serialize_der());
        let chain = vec![certificate.der().clone()];
        Self {
            certified: Some(Arc::new(CertifiedKey::new(chain, signer))),
            raw,
        }
    }
}

fn signing_key(pkcs8: &[u8]) -> Arc<dyn rustls::sign::SigningKey> {
    sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8)).unwrap()
}

/// The raw public key of `key`, as rustls itself encodes it.
pub(crate) fn spki(key: &PrivateKey) -> CertificateDer<'static> {
    let public = STANDARD.decode(key.public().to_string()).unwrap();
    public_key_to_spki(&alg_id::ED25519, public)
        .as_ref()
        .to_vec()
        .into()
}

impl ResolvesClientCert for Shown {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.certified.clone()
    }

    fn only_raw_public_keys(&self) -> bool {
        self.raw
    }

    fn has_certs(&self) -> bool {
        self.certified.is_some()
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.certified.clone()
    }

    fn only_raw_public_keys(&self) -> bool {
        self.raw
    }
}

/// A verifier that accepts whatever it is shown, in the form it wants, and counts.
#[derive(Debug, Default)]
pub(crate) struct Gullible {
    /// Whether it wants a raw public key.
    pub(crate) raw: bool,
    /// How often it was asked.
    pub(crate) asked: AtomicUsize,
}

impl Gullible {
    /// Accepts every raw public key.
    pub(crate) fn raw() -> Arc<Self> {
        Arc::new(Self {
            raw: true,
            ..Self::default()
        })
    }

    fn signature() -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
}

impl ServerCertVerifier for Gullible {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Self::signature()
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Self::signature()
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.raw
    }
}

impl ClientCertVerifier for Gullible {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Self::signature()
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Self::signature()
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.raw
    }
}

/// Remembers session tickets like rustls' own store, and counts them.
#[derive(Debug)]
pub(crate) struct Tickets {
    store: ClientSessionMemoryCache,
    /// How many came.
    pub(crate) count: AtomicUsize,
}

impl Tickets {
    /// None yet.
    pub(crate) fn new() -> Arc<Self> {
        let store = ClientSessionMemoryCache::new(8);
        Arc::new(Self {
            store,
            count: AtomicUsize::new(0),
        })
    }
}

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, server: ServerName<'static>, group: NamedGroup) {
        self.store.set_kx_hint(server, group);
    }

    fn kx_hint(&self, server: &ServerName<'_>) -> Option<NamedGroup> {
        self.store.kx_hint(server)
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, server: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.store.insert_tls13_ticket(server, ticket);
    }

    fn take_tls13_ticket(&self, server: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.store.take_tls13_ticket(server)
    }
}

/// A list of key exchanges.
pub(crate) type Groups = [&'static dyn SupportedKxGroup];

fn provider(groups: &Groups) -> Arc<CryptoProvider> {
    let kx_groups = groups.to_vec();
    Arc::new(CryptoProvider {
        kx_groups,
        ..default_provider()
    })
}

/// A client that shows `shown` and believes `verifier`.
pub(crate) fn client(
    shown: Shown,
    verifier: Arc<Gullible>,
    groups: &Groups,
    tickets: &Arc<Tickets>,
) -> Arc<dyn ClientConfig> {
    let builder = rustls::ClientConfig::builder_with_provider(provider(groups))
        .with_protocol_versions(&[&TLS13])
        .unwrap();
    #[expect(
        clippy::disallowed_methods,
        reason = "a peer that is meant to be wrong"
    )]
    let builder = builder
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = builder.with_client_cert_resolver(Arc::new(shown));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::store(tickets.clone());
    config.enable_early_data = true;
    Arc::new(QuicClientConfig::try_from(config).unwrap())
}

/// A server that shows `shown` and believes `verifier`; it offers resumption and 0-RTT.
pub(crate) fn server(
    shown: Shown,
    verifier: Arc<Gullible>,
    groups: &Groups,
) -> Arc<dyn ServerConfig> {
    let mut config = rustls::ServerConfig::builder_with_provider(provider(groups))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(shown));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.max_early_data_size = u32::MAX;
    Arc::new(QuicServerConfig::try_from(config).unwrap())
}

//! TLS around the tunnel, where a firewall lets nothing else pass: whatever certificate the server shows is taken.
//!
//! This TLS hides that QUIC is inside, and nothing more. Both ends prove their keys to each other inside, as over UDP.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{ClientConfig, DigitallySignedStruct, Error, PeerIncompatible, SignatureScheme};

/// TLS 1.3 with the algorithms of `provider`, for a connection that carries QUIC: nobody looks who the server says it is.
///
/// # Errors
/// Only if the TLS library refuses its own defaults.
pub fn unverified_client(provider: Arc<CryptoProvider>) -> Result<ClientConfig, Error> {
    let anybody = Anybody {
        schemes: provider
            .signature_verification_algorithms
            .supported_schemes(),
    };
    let builder =
        ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13])?;
    #[expect(
        clippy::disallowed_methods,
        reason = "the outer TLS proves nothing: QUIC inside proves both ends"
    )]
    let builder = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(anybody));
    let mut config = builder.with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Verifier that takes every certificate.
#[derive(Debug)]
struct Anybody {
    /// Signatures that a server may offer: as many as any program of this library takes.
    schemes: Vec<SignatureScheme>,
}

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

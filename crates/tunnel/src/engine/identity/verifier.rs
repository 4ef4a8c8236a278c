//! The verifier of raw keys in place of certificates, of clients and servers alike.

use std::{fmt, slice};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, aws_lc_rs as provider, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible,
    SignatureScheme,
};

use super::{Accepts, REFUSED, from_spki};

/// The one certificate verifier, of clients and servers alike: accepts the raw keys for which the function says yes.
pub(super) struct Verifier {
    accepts: Accepts,
    /// A key that is not accepted is kept for the engine.
    notes: bool,
}

impl Verifier {
    /// Verifier of the engine's connections.
    pub(super) fn noting(accepts: Accepts) -> Self {
        Self {
            accepts,
            notes: true,
        }
    }

    /// Verifier of other connections.
    pub(super) fn quiet(accepts: Accepts) -> Self {
        Self {
            accepts,
            notes: false,
        }
    }

    fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
    ) -> Result<(), Error> {
        let key = from_spki(end_entity).filter(|_| intermediates.is_empty());
        let key = key.ok_or(CertificateError::BadEncoding)?;
        if !(self.accepts)(&key) {
            tracing::debug!(%key, "the peer's key is not among those accepted");
            if self.notes {
                REFUSED.set(Some(key));
            }
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        Ok(())
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier")
    }
}

/// The methods that rustls asks of both kinds of verifiers, alike in each: TLS 1.3 and Ed25519 alone, by raw keys.
macro_rules! proofs_of_raw_keys {
    () => {
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
    };
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify(end_entity, intermediates)?;
        Ok(ServerCertVerified::assertion())
    }

    proofs_of_raw_keys!();
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verify(end_entity, intermediates)?;
        Ok(ClientCertVerified::assertion())
    }

    proofs_of_raw_keys!();
}

/// Checks that the holder of `key` signed this handshake.
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

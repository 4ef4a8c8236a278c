//! Certificate that the server shows to whoever connects by TLS: the operator's, or one made for this run.
//!
//! Clients do not look at it: they know their server by its key, inside. It is there for firewalls, which let nothing pass that
//! does not look like TLS, and for the browsers of a `fallback` that has the same name.

use std::io;
use std::sync::Arc;

use rustls::ServerConfig as TlsConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::NoServerSessionStorage;

use crate::certified::CertifiedFiles;
use crate::config::TlsListening;
use crate::process::RunError;
use crate::tls::key_exchange;

/// TLS 1.3 with the certificate of `listening`.
///
/// # Errors
/// A file cannot be read, or its key does not belong to its certificate.
pub(super) fn config(listening: &TlsListening) -> Result<Arc<TlsConfig>, RunError> {
    let builder = TlsConfig::builder_with_provider(key_exchange())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?
        .with_no_client_auth();
    let mut config = match &listening.certificate {
        Some((certificate, key)) => CertifiedFiles::read(certificate, key)?.certify(builder)?,
        None => {
            let (chain, key) = make()?;
            let config = builder.with_single_cert(chain, key);
            config.map_err(io::Error::other)?
        }
    };
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// A self-signed certificate of P-256, as web servers without a name have.
fn make() -> Result<Identity, RunError> {
    let made = rcgen::generate_simple_self_signed(Vec::new()).map_err(io::Error::other)?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    Ok((vec![made.cert.into()], key.into()))
}

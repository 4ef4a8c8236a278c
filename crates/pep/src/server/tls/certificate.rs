//! Certificate that the server shows to whoever connects by TLS: the operator's, or one made for this run.
//!
//! Clients do not look at it: they know their server by its key, inside. It is there for firewalls, which let nothing pass that
//! does not look like TLS, and for the browsers of a `fallback` that has the same name.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig as TlsConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::NoServerSessionStorage;

use crate::config::{Placed, TlsListening};
use crate::process::RunError;
use crate::tls::key_exchange;

/// TLS 1.3 with the certificate of `listening`.
///
/// # Errors
/// A file cannot be read, or its key does not belong to its certificate.
pub(super) fn config(listening: &TlsListening) -> Result<Arc<TlsConfig>, RunError> {
    let (chain, key) = match &listening.certificate {
        Some((certificate, key)) => read(certificate, key)?,
        None => make()?,
    };
    let builder = TlsConfig::builder_with_provider(key_exchange())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?;
    let config = builder.with_no_client_auth().with_single_cert(chain, key);
    let mut config = config.map_err(|error| match &listening.certificate {
        Some((certificate, _)) => fault(certificate, error),
        None => RunError::Io(io::Error::other(error)),
    })?;
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn read(certificate: &Placed<PathBuf>, key: &Placed<PathBuf>) -> Result<Identity, RunError> {
    let chain = CertificateDer::pem_file_iter(certificate.as_path())
        .and_then(|certificates| certificates.collect::<Result<Vec<_>, _>>())
        .map_err(|error| fault(certificate, error))?;
    let key = PrivateKeyDer::from_pem_file(key.as_path()).map_err(|error| fault(key, error))?;
    Ok((chain, key))
}

fn fault(file: &Placed<PathBuf>, error: impl std::fmt::Display) -> RunError {
    let path: &Path = file.as_path();
    RunError::key(format!(
        "{}: cannot use {}: {error}",
        file.place,
        path.display()
    ))
}

/// A self-signed certificate of P-256, as web servers without a name have.
fn make() -> Result<Identity, RunError> {
    let made = rcgen::generate_simple_self_signed(Vec::new()).map_err(io::Error::other)?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    Ok((vec![made.cert.into()], key.into()))
}

//! Trust in web servers' certificates: the system's authorities, and those of the configuration's file.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bentpipe_tunnel::engine::identity;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore};

use crate::config::{Placed, WebRoots};
use crate::keys::{self, PrivateKey};
use crate::process::RunError;
use crate::tls::key_exchange;

/// TLS 1.3 and 1.2 for HTTP/1.1, with web servers that an authority of the system or of `roots` has signed.
///
/// # Errors
/// The file of `roots` holds no certificate, or there is no authority at all.
pub(crate) fn trust(roots: &WebRoots) -> Result<Arc<ClientConfig>, RunError> {
    let store = authorities(roots)?;
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(io::Error::other)?;
    let mut config = builder.with_root_certificates(store).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Clients of one server are to have nothing in common for an origin but its address.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// TLS 1.3 with origins of DSSL that an authority of the system or of `roots` has signed, on which `key` is shown (`PROTOCOL.md`
/// §21.1) and one of `protocols` spoken.
///
/// # Errors
/// As [`trust`].
pub(crate) fn trust_shown(
    roots: &WebRoots,
    key: &PrivateKey,
    protocols: &[&[u8]],
) -> Result<Arc<ClientConfig>, RunError> {
    let store = authorities(roots)?;
    let builder = ClientConfig::builder_with_provider(key_exchange())
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?;
    let shown = identity::shown(key).map_err(io::Error::other)?;
    let mut config = builder
        .with_root_certificates(store)
        .with_client_cert_resolver(shown);
    config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// Authorities of the system and of `roots`.
fn authorities(roots: &WebRoots) -> Result<RootCertStore, RunError> {
    let mut store = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    for error in &system.errors {
        tracing::warn!("an authority of the system is not believed: {error}");
    }
    // Some that systems carry are older than what can be read of them today.
    let _ = store.add_parsable_certificates(system.certs);
    if let Some(file) = &roots.file {
        add(file, &mut store)?;
    }
    if store.is_empty() {
        return Err(RunError::key(
            "there is no certificate authority on this system, by which web servers over TLS are believed; install its `ca-certificates`, \
             or name a file of them as `roots`",
        ));
    }
    Ok(store)
}

/// Adds the authorities in `file`, in PEM, to `store`.
///
/// # Errors
/// The file cannot be read, or holds none.
pub(crate) fn add(file: &Placed<PathBuf>, store: &mut RootCertStore) -> Result<(), RunError> {
    for certificate in certificates(file, "name a file with certificates of authorities")? {
        store
            .add(certificate)
            .map_err(|error| unusable(file, error))?;
    }
    Ok(())
}

/// Certificates in `file`, in PEM; at least one. What should be there instead is said by `mend`.
pub(crate) fn certificates(
    file: &Placed<PathBuf>,
    mend: &str,
) -> Result<Vec<CertificateDer<'static>>, RunError> {
    let bytes = keys::pem_certificates(file).map_err(|error| unusable(file, error))?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(unusable(
            file,
            format!("it holds no certificate in PEM; {mend}"),
        )),
        Err(error) => Err(unusable(
            file,
            format!("it is not whole PEM ({error}); {mend}"),
        )),
    }
}

/// Error about a file that TLS cannot use, at the line that names it.
pub(crate) fn unusable(file: &Placed<PathBuf>, error: impl std::fmt::Display) -> RunError {
    let fault = match file.as_os_str().is_empty() {
        true => "the path of this file is empty; name a file".to_owned(),
        false => format!("cannot use {}: {error}", file.display()),
    };
    file.place.error(fault).into()
}

//! Certificates of the operator's files, as TLS shows them.

use std::path::PathBuf;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WantsServerCert;
use rustls::{ConfigBuilder, ServerConfig};

use crate::config::Placed;
use crate::process::RunError;

/// Certificate chain and private key out of the operator's files.
pub(crate) struct CertifiedFiles {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    certificate: Placed<PathBuf>,
}

impl CertifiedFiles {
    /// Reads both files, in PEM.
    ///
    /// # Errors
    /// One cannot be read.
    pub(crate) fn read(
        certificate: &Placed<PathBuf>,
        key: &Placed<PathBuf>,
    ) -> Result<Self, RunError> {
        let chain = CertificateDer::pem_file_iter(certificate.as_path())
            .and_then(|certificates| certificates.collect::<Result<Vec<_>, _>>())
            .map_err(|error| unusable(certificate, error))?;
        let own = PrivateKeyDer::from_pem_file(key.as_path());
        Ok(Self {
            chain,
            key: own.map_err(|error| unusable(key, error))?,
            certificate: certificate.clone(),
        })
    }

    /// TLS that shows the certificate.
    ///
    /// # Errors
    /// The key does not belong to the certificate.
    pub(crate) fn certify(
        &self,
        builder: ConfigBuilder<ServerConfig, WantsServerCert>,
    ) -> Result<ServerConfig, RunError> {
        let config = builder.with_single_cert(self.chain.clone(), self.key.clone_key());
        config.map_err(|error| unusable(&self.certificate, error))
    }

    /// Chain and key.
    pub(crate) fn into_parts(self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        (self.chain, self.key)
    }
}

/// A file that TLS cannot use.
pub(crate) fn unusable(file: &Placed<PathBuf>, error: impl std::fmt::Display) -> RunError {
    let path = file.display();
    RunError::key(format!("{}: cannot use {path}: {error}", file.place))
}

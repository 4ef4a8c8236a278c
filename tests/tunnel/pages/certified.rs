//! An authority, and the certificate that it has given an origin.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use bentpipe_tunnel::engine::identity::{self, PrivateKey};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::speech::NAME;

/// Certificates of the origin, and files of them.
pub(super) struct Certified {
    directory: tempfile::TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
    key: KeyPair,
    certificate: rcgen::Certificate,
}

impl Certified {
    pub(super) fn new() -> Result<Self> {
        Self::with(CertificateParams::new(vec![NAME.to_owned()])?)
    }

    /// A certificate that was good in the year 2020 alone.
    pub(super) fn expired() -> Result<Self> {
        let mut params = CertificateParams::new(vec![NAME.to_owned()])?;
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        Self::with(params)
    }

    fn with(site: CertificateParams) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let certificate = site.signed_by(&key, &authority)?;
        let directory = tempfile::tempdir()?;
        fs::write(directory.path().join("roots.pem"), authority.pem())?;
        fs::write(directory.path().join("site.pem"), certificate.pem())?;
        let file = directory.path().join("site.key");
        fs::write(&file, key.serialize_pem())?;
        fs::set_permissions(&file, Permissions::from_mode(0o600))?;
        Ok(Self {
            directory,
            authority,
            key,
            certificate,
        })
    }

    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(super) fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    /// A browser's trust in the origin's own authority alone.
    pub(super) fn trust(&self) -> Result<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().clone())?;
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13, &TLS12])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Trust in the origin's own authority, of a peer that shows `key` and speaks `protocol`.
    pub(super) fn trust_shown(
        &self,
        key: &PrivateKey,
        protocol: &[u8],
    ) -> Result<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().clone())?;
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13])?
            .with_root_certificates(roots)
            .with_client_cert_resolver(identity::shown(key)?);
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Arc::new(config))
    }

    /// An origin with the certificate, which takes any hub's key.
    pub(super) fn of_hubs(&self, protocol: &[u8]) -> Result<Arc<ServerConfig>> {
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(self.key.serialize_der());
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(identity::shown_verifier(Arc::new(|_| true)))
            .with_single_cert(vec![self.certificate.der().clone()], key.into())?;
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Arc::new(config))
    }

    /// An ordinary web server with the certificate.
    pub(super) fn ordinary(&self) -> Result<Arc<ServerConfig>> {
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(self.key.serialize_der());
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13])?
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.der().clone()], key.into())?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

//! Certificates of the emulated web: a certificate authority that is made for one run and trusted by nobody else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use aws_lc_rs::digest;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, PublicKeyData as _,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::fetch::connect;
use super::hosts::Hosts;
use super::http3::HTTP3;
use super::web::HTTPS_PORT;

/// Encryption of a page's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum Tls {
    /// Connections are in clear.
    #[serde(rename = "none")]
    None,
    /// TLS 1.2.
    #[serde(rename = "1.2")]
    V12,
    /// TLS 1.3.
    #[default]
    #[serde(rename = "1.3")]
    V13,
}

impl Tls {
    /// Encryption of that name, `none`, `1.2` or `1.3`; none if there is no such.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let all = [("none", Self::None), ("1.2", Self::V12), ("1.3", Self::V13)];
        let found = all.into_iter().find(|(known, _)| *known == name);
        found.map(|(_, tls)| tls)
    }

    /// Round trips of a handshake.
    pub(crate) fn round_trips(self) -> u32 {
        match self {
            Self::None => 0,
            Self::V12 => 2,
            Self::V13 => 1,
        }
    }
}

/// Protocol of the fetchers that are not told otherwise.
const HTTP1: &[u8] = b"http/1.1";
/// Protocol that browsers take if they may.
pub(super) const HTTP2: &[u8] = b"h2";

/// The authority, and what servers and clients derive from it.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    server: KeyPair,
    provider: Arc<CryptoProvider>,
    /// Certificate of another authority that clients trust, in PEM.
    beside: Option<String>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

/// Times of `count` handshakes with `hosts` by turns, as `tls` makes them, each from `connect` until it is done at this end.
///
/// # Errors
/// A connection failed, or a host's certificate is refused.
pub async fn handshakes(
    hosts: &Hosts,
    tls: Arc<ClientConfig>,
    count: u32,
) -> Result<Vec<Duration>> {
    let tls = TlsConnector::from(tls);
    let hosts: Vec<_> = hosts.iter().collect();
    let mut times = Vec::new();
    for (name, address) in hosts.iter().cycle().take(count as usize) {
        times.push(handshake((*address, HTTPS_PORT).into(), name, &tls).await?);
    }
    Ok(times)
}

async fn handshake(address: SocketAddr, name: &str, tls: &TlsConnector) -> Result<Duration> {
    let start = Instant::now();
    let server = ServerName::try_from(name.to_owned())?;
    let done = secure(tls, &server, address).await;
    done.with_context(|| name.to_owned())?;
    Ok(start.elapsed())
}

/// A new connection to `address`, with TLS done with the host `name`.
pub(super) async fn secure(
    tls: &TlsConnector,
    name: &ServerName<'static>,
    address: SocketAddr,
) -> Result<TlsStream<TcpStream>> {
    let stream = connect(address).await?;
    tls.connect(name.clone(), stream).await.context("TLS")
}

impl Authority {
    /// A new authority with a key of its own.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn new() -> Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "bentpipe test authority");
        let key = KeyPair::generate().context("cannot make a key")?;
        Ok(Self {
            issuer: CertifiedIssuer::self_signed(params, key)
                .context("cannot make the test authority")?,
            server: KeyPair::generate().context("cannot make a key")?,
            provider: Arc::new(rustls::crypto::aws_lc_rs::default_provider()),
            beside: None,
        })
    }

    /// Certificate of the authority, for tools that want a file (`curl --cacert`).
    #[must_use]
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Has clients trust the authority with this certificate, in PEM, as well.
    pub fn trust_beside(&mut self, pem: &str) {
        self.beside = Some(pem.to_owned());
    }

    /// Certificate, in PEM, of the other authority that clients trust; `None` if there is none.
    pub(super) fn trusted_beside(&self) -> Option<&str> {
        self.beside.as_deref()
    }

    /// SHA-256 of the servers' public key (SubjectPublicKeyInfo): what a browser can be told to trust.
    #[must_use]
    pub fn server_key_sha256(&self) -> Vec<u8> {
        let key = self.server.subject_public_key_info();
        digest::digest(&digest::SHA256, &key).as_ref().to_vec()
    }

    /// A server for all of `names`, of HTTP/2 and of HTTP/1.1, over TLS 1.3 and 1.2.
    ///
    /// # Errors
    /// A name is no DNS name.
    pub fn server_config<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<Arc<ServerConfig>> {
        let certificate = self.certificate(names)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.server.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)?;
        config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
        Ok(Arc::new(config))
    }

    /// Certificate for all of `names`, and its key, in PEM, for who stands before the web server.
    ///
    /// # Errors
    /// A name is no DNS name.
    pub fn site<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<[String; 2]> {
        Ok([self.certificate(names)?.pem(), self.server.serialize_pem()])
    }

    fn certificate<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<rcgen::Certificate> {
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        CertificateParams::new(names)
            .and_then(|params| params.signed_by(&self.server, &self.issuer))
            .context("cannot make the web server's certificate")
    }

    /// A client of HTTP/1.1 that trusts this authority, and the one beside it, and remembers no earlier session.
    ///
    /// # Errors
    /// The authority's own certificate is refused, which would be a defect.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>> {
        self.client_of(&rustls::version::TLS13, HTTP1)
    }

    /// [`Self::client_config`] of HTTP/2, over TLS 1.3.
    ///
    /// # Errors
    /// As there.
    pub fn http2_client_config(&self) -> Result<Arc<ClientConfig>> {
        self.client_of(&rustls::version::TLS13, HTTP2)
    }

    /// [`Self::client_config`] of HTTP/3, over TLS 1.3.
    ///
    /// # Errors
    /// As there.
    pub fn http3_client_config(&self) -> Result<Arc<ClientConfig>> {
        self.client_of(&rustls::version::TLS13, HTTP3)
    }

    /// [`Self::client_config`] of TLS 1.2, whose full handshake takes two round trips (RFC 5246 §7.3).
    ///
    /// # Errors
    /// As there.
    pub fn tls12_client_config(&self) -> Result<Arc<ClientConfig>> {
        self.client_of(&rustls::version::TLS12, HTTP1)
    }

    fn client_of(
        &self,
        version: &'static SupportedProtocolVersion,
        alpn: &[u8],
    ) -> Result<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone())?;
        if let Some(pem) = self.trusted_beside() {
            roots.add(CertificateDer::from_pem_slice(pem.as_bytes())?)?;
        }
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[version])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![alpn.to_vec()];
        Ok(Arc::new(config))
    }
}

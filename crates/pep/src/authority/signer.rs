//! A CA with its key: certificates for the hosts that a client answers for.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData as _,
};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::NoServerSessionStorage;
use rustls::version::{TLS12, TLS13};

use super::{Authority, Files, issuing};
use crate::config::TrustedName;
use crate::keys;

/// Authority that can sign.
pub(crate) struct Signer {
    authority: Authority,
    issuer: Issuer<'static, KeyPair>,
}

impl Signer {
    /// Reads the CA in `files` and its key; `None` if there is no CA.
    ///
    /// # Errors
    /// One of them cannot be read, others may read the key, or it is another CA's.
    pub(crate) fn read(files: &Files) -> Result<Option<Self>, String> {
        let Some(authority) = Authority::read(files)? else {
            return Ok(None);
        };
        let make = "make a CA with `bentpipe ca remove`, then `bentpipe ca init`";
        let path = files.key();
        let fault = |why: &str| format!("{} {why}; {make}", path.display());
        let text = keys::secret(&path, "key file", make)?;
        let key = KeyPair::from_pem(&text).map_err(|_| fault("holds no key"))?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&authority.certificate)
            .map_err(|_| fault("has no certificate beside it"))?;
        if parsed.public_key().raw != key.subject_public_key_info() {
            return Err(fault("is the key of another CA"));
        }
        let issuer = Issuer::new(issuing(authority.subject()), key);
        Ok(Some(Self { authority, issuer }))
    }

    /// Certificate of the CA.
    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// TLS 1.3 and 1.2 for HTTP/2 and HTTP/1.1 as the host `name`, with a certificate and a key of its own.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub(crate) fn answer_as(&self, name: &TrustedName) -> io::Result<Arc<ServerConfig>> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let parameters = leaf(name, &self.authority)?;
        let certificate = parameters.signed_by(&key, &self.issuer);
        let certificate = certificate.map_err(io::Error::other)?;
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(io::Error::other)?;
        let mut config = builder
            .with_no_client_auth()
            .with_single_cert(vec![certificate.into()], key.into())
            .map_err(io::Error::other)?;
        config.alpn_protocols = [&b"h2"[..], b"http/1.1"].map(<[u8]>::to_vec).to_vec();
        // A CA that is gone answers nobody, and the way to a LAN host is short.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.max_early_data_size = 0;
        Ok(Arc::new(config))
    }
}

/// Certificate of `name` that is valid as long as its CA. Its dates are no business of this machine's clock, which may be wrong
/// while that of the browser is right; and Apple's systems take the CA's two years (825 days at most).
pub(super) fn leaf(name: &TrustedName, authority: &Authority) -> io::Result<CertificateParams> {
    let names = vec![name.to_string()];
    let mut parameters = CertificateParams::new(names).map_err(io::Error::other)?;
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    // Longer names do not fit (RFC 5280 appendix A.1), and nobody reads this one.
    let common: String = name.as_str().chars().take(64).collect();
    parameters
        .distinguished_name
        .push(DnType::CommonName, common);
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    parameters.not_before = epoch + Duration::from_secs(authority.not_before);
    parameters.not_after = epoch + Duration::from_secs(authority.not_after);
    parameters.is_ca = IsCa::ExplicitNoCa;
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    // Two CAs may have been made on one day, with one name.
    parameters.use_authority_key_identifier_extension = true;
    Ok(parameters)
}

//! Facts about an origin for the doctor: its addresses, its certificate and key, and the web server behind it.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::extensions::GeneralName;

use super::super::handshake;
use super::server::{listens, tcp};
use crate::certified::CertifiedFiles;
use crate::config::OriginConfig;
use crate::doctor::facts::{CertificateFacts, OriginFacts};
use crate::process;
use crate::status::StatusReport;

pub(super) fn origin(config: &OriginConfig, running: Option<&StatusReport>) -> OriginFacts {
    OriginFacts {
        listen: listens(&config.listen, running, tcp),
        certificate: usable(config).and_then(|()| certificate(&config.certificate)),
        upstream: (config.upstream, handshake::connect(config.upstream)),
        hubs: config.hubs.len(),
    }
}

/// Says whether TLS takes certificate and key, which belong together.
fn usable(config: &OriginConfig) -> Result<(), String> {
    let read = CertifiedFiles::read(&config.certificate, &config.key);
    let files = read.map_err(|fault| fault.to_string())?;
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth();
    let certified = files.certify(builder);
    certified.map(drop).map_err(|fault| fault.to_string())
}

/// Names and life of the first certificate of a file.
fn certificate(file: &Path) -> Result<CertificateFacts, String> {
    let fault = |text: String| format!("{}: {text}", file.display());
    let first = CertificateDer::from_pem_file(file).map_err(|error| fault(error.to_string()))?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&first)
        .map_err(|error| fault(format!("no certificate that can be read: {error}")))?;
    let alternatives = parsed.subject_alternative_name().ok().flatten();
    let names = alternatives
        .into_iter()
        .flat_map(|it| &it.value.general_names);
    let names = names.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    });
    let validity = parsed.validity();
    let now = i64::try_from(process::since_1970().as_secs()).unwrap_or(i64::MAX);
    let day = |at: i64| {
        let at = jiff::Timestamp::from_second(at).unwrap_or_default();
        at.to_zoned(jiff::tz::TimeZone::UTC).date().to_string()
    };
    Ok(CertificateFacts {
        file: file.to_owned(),
        names: names.collect(),
        begins: day(validity.not_before.timestamp()),
        expires: day(validity.not_after.timestamp()),
        seconds_to_begin: validity.not_before.timestamp().saturating_sub(now),
        seconds_left: validity.not_after.timestamp().saturating_sub(now),
    })
}

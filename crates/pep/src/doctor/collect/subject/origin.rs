//! Facts about an origin for the doctor: its addresses, its certificate and key, and the web server behind it.

use super::super::handshake;
use super::server::listens;
use crate::certified::CertifiedFiles;
use crate::config::OriginConfig;
use crate::doctor::facts::{CertificateFacts, ListenProtocol, OriginFacts};
use crate::process::{self, RunError};
use crate::status::StatusReport;

pub(super) fn origin(config: &OriginConfig, running: Option<&StatusReport>) -> OriginFacts {
    OriginFacts {
        listen: listens(&config.listen, running, ListenProtocol::Tcp),
        certificate: certificate(config).map_err(|fault| fault.to_string()),
        upstream: (config.upstream, handshake::connect(config.upstream)),
        hubs: config.hubs.len(),
    }
}

/// Names and life of the site's certificate, if TLS takes it and its key.
fn certificate(config: &OriginConfig) -> Result<CertificateFacts, RunError> {
    let files = CertifiedFiles::checked(&config.certificate, &config.key)?;
    let validity = files.validity()?;
    let [seconds_to_begin, seconds_left] = validity.spans(process::since_1970().as_secs());
    Ok(CertificateFacts {
        file: config.certificate.to_path_buf(),
        names: files.names()?,
        begins: validity.begins(),
        expires: validity.expires(),
        seconds_to_begin,
        seconds_left,
    })
}

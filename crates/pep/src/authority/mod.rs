//! Local certificate authority of a client: for named hosts alone, and for web servers alone.
//!
//! ```text
//! bentpipe ca init ──► make ──► DIR/ca.key, DIR/ca.pem ──► browsers of the LAN, by hand
//!                                     ├──► Authority: what `bentpipe ca show` tells
//!                                     └──► Signer ──► certificate of a host ──► client/web
//! ```
//!
//! A host's certificate is valid as long as the CA, whatever the clock of this machine shows: a router without a battery begins years
//! behind, and the browsers behind it know better.
//!
//! Whoever has the key can show these browsers certificates for the names in the CA, and for no other: the constraint stands in
//! the certificate, and browsers hold to it (RFC 5280 §4.2.1.10).

mod signer;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose, NameConstraints,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::extensions::GeneralName;
use x509_parser::time::ASN1Time;

use crate::config::{MAX_NAMES, TrustedName};
use crate::process::{clock, date, since_1970};
use crate::state;
pub(crate) use signer::Signer;

/// Time for which a CA is valid: nobody has to install a new one each year, and one that is forgotten in a browser ends by itself.
const LIFE: Duration = Duration::from_hours(2 * 365 * 24);

/// Time by which the clocks of a LAN may differ.
const SKEW: Duration = Duration::from_hours(24);

/// Time before the end of a CA from which on it is spoken of: another one has to be installed in every browser by hand.
const SOON: Duration = Duration::from_hours(30 * 24);

/// Longest certificate of a CA that is read, bytes: [`MAX_NAMES`] of the longest names.
const MAX_PEM: u64 = 64 * 1024;

/// Beginning of the name of every CA that is made here, before its date.
const SUBJECT: &str = "bentpipe local CA";

/// Directory of the CA in the state directory.
const DIRECTORY: &str = "ca";

/// Certificate and key of a CA, in PEM.
pub struct Made {
    /// Certificate, to be installed in browsers.
    pub certificate: String,
    /// Private key of P-256 in PKCS #8, to be kept.
    pub key: String,
}

/// Makes a CA for web servers with `names` and those below them, which is valid from a day ago on for two years.
///
/// # Errors
/// There are no names, or more than [`MAX_NAMES`]; or the system gives no random numbers.
pub fn make(names: &[TrustedName]) -> Result<Made, String> {
    if names.is_empty() || names.len() > MAX_NAMES {
        return Err(format!(
            "a CA is for 1 to {MAX_NAMES} names, and these are {}",
            names.len()
        ));
    }
    let now = clock().map_err(|error| format!("cannot make a CA: {error}"))?;
    let fault = |error: rcgen::Error| format!("cannot make a CA: {error}");
    let key = KeyPair::generate().map_err(fault)?;
    let certificate = parameters(names, now).self_signed(&key).map_err(fault)?;
    Ok(Made {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

fn parameters(names: &[TrustedName], now: Duration) -> CertificateParams {
    let mut parameters = issuing(&format!("{SUBJECT} {}", date(now.as_secs())));
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    // Certificates have no fractions of seconds.
    parameters.not_before = epoch + Duration::from_secs(now.saturating_sub(SKEW).as_secs());
    parameters.not_after = epoch + Duration::from_secs((now + LIFE).as_secs());
    // Signs certificates of servers, and no further CA.
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let permitted = names.iter().map(TrustedName::to_string);
    // A constraint holds for names of its own kind alone: addresses need one that leaves none over.
    let addresses = [
        CidrSubnet::from_addr_prefix(Ipv4Addr::UNSPECIFIED.into(), 0),
        CidrSubnet::from_addr_prefix(Ipv6Addr::UNSPECIFIED.into(), 0),
    ];
    parameters.name_constraints = Some(NameConstraints {
        permitted_subtrees: permitted.map(GeneralSubtree::DnsName).collect(),
        excluded_subtrees: addresses.map(GeneralSubtree::IpAddress).into(),
    });
    parameters
}

/// Parameters of the CA called `subject` that certificates signed by it repeat.
fn issuing(subject: &str) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    parameters
        .distinguished_name
        .push(DnType::CommonName, subject);
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    parameters
}

/// Certificate of a CA, as it stands in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    certificate: CertificateDer<'static>,
    subject: String,
    names: Vec<TrustedName>,
    /// First moment of its life, seconds since 1970.
    not_before: u64,
    /// Last moment of its life, seconds since 1970.
    not_after: u64,
}

impl Authority {
    /// Reads the certificate of a CA in `files`; `None` if there is none.
    ///
    /// # Errors
    /// The file cannot be read, or holds no certificate of a CA that [`make`] could have made.
    pub fn read(files: &Files) -> Result<Option<Self>, String> {
        let path = files.certificate();
        let name = path.display();
        let bytes = match state::read(&path, MAX_PEM) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("cannot read {name}: {error}")),
        };
        let parsed = Self::parse(&bytes);
        parsed.map(Some).ok_or_else(|| {
            format!("{name} holds no CA for named hosts; delete it, then make one with `bentpipe ca init`")
        })
    }

    fn parse(pem: &[u8]) -> Option<Self> {
        let certificate = CertificateDer::from_pem_slice(pem).ok()?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate).ok()?;
        let permitted = parsed.name_constraints().ok()??.value;
        let name = |base: &GeneralName<'_>| match base {
            GeneralName::DNSName(name) => name.parse::<TrustedName>().ok(),
            _ => None,
        };
        let permitted = permitted.permitted_subtrees.as_ref()?;
        let names: Option<Vec<_>> = permitted.iter().map(|one| name(&one.base)).collect();
        let validity = parsed.validity();
        let seconds = |time: ASN1Time| u64::try_from(time.timestamp()).ok();
        let subject = parsed.subject().iter_common_name().next()?.as_str().ok()?;
        Some(Self {
            subject: subject.to_owned(),
            names: names.filter(|names| !names.is_empty())?,
            not_before: seconds(validity.not_before)?,
            not_after: seconds(validity.not_after)?,
            certificate: certificate.clone(),
        })
    }

    /// Name by which browsers list the CA.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// True if the CA is one that [`make`] has made, by its name.
    #[must_use]
    pub fn is_of_bentpipe(&self) -> bool {
        self.subject.starts_with(SUBJECT)
    }

    /// Names that the CA is for; names below them are, too.
    #[must_use]
    pub fn names(&self) -> &[TrustedName] {
        &self.names
    }

    /// True if certificates of the host `name` are believed.
    #[must_use]
    pub fn is_for(&self, name: &TrustedName) -> bool {
        let below = |one: &TrustedName| {
            let rest = name.as_str().strip_suffix(one.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        self.names.iter().any(below)
    }

    /// Last day of the CA's life, in UTC, as `2028-11-26`.
    #[must_use]
    pub fn expires(&self) -> String {
        date(self.not_after)
    }

    /// Part of its life that the CA is in, by this machine's clock.
    #[must_use]
    pub fn present_phase(&self) -> ValidityPhase {
        self.phase(since_1970())
    }

    /// Part of its life that the CA is in at `now`, since 1970.
    pub(crate) fn phase(&self, now: Duration) -> ValidityPhase {
        match self.not_after.checked_sub(now.as_secs()) {
            _ if now.as_secs() < self.not_before => ValidityPhase::NotYet,
            None => ValidityPhase::Over,
            Some(left) if left < SOON.as_secs() => ValidityPhase::Ending,
            Some(_) => ValidityPhase::Good,
        }
    }

    /// SHA-256 of the certificate in upper-case hexadecimal with colons, as browsers show it.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let bytes = digest(&SHA256, &self.certificate);
        let pairs: Vec<_> = bytes.as_ref().iter().map(|b| format!("{b:02X}")).collect();
        pairs.join(":")
    }
}

/// Part of a CA's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValidityPhase {
    /// Time before it was made: the clock is wrong.
    NotYet,
    /// Time in which it is valid.
    Good,
    /// Last part of that, in which another one is to be made.
    Ending,
    /// Time after it.
    Over,
}

impl ValidityPhase {
    /// True if browsers with the same clock believe the CA.
    pub(crate) fn is_valid(self) -> bool {
        match self {
            Self::Good | Self::Ending => true,
            Self::NotYet | Self::Over => false,
        }
    }
}

/// Files of a CA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    directory: PathBuf,
}

impl Files {
    /// Files of the CA in `directory`.
    #[must_use]
    pub fn within(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
        }
    }

    /// Files of the CA of a client whose state is in `state_dir`.
    #[must_use]
    pub fn of_state(state_dir: &Path) -> Self {
        Self::within(&state_dir.join(DIRECTORY))
    }

    /// Directory of both files.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// File of the certificate, in PEM.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.directory.join("ca.pem")
    }

    /// File of the private key, in PEM.
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.directory.join("ca.key")
    }
}

#[cfg(test)]
mod tests;

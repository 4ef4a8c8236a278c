//! Certificates of the operator's files, as TLS shows them, and for how long they are good.

use std::path::PathBuf;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WantsServerCert;
use rustls::{ConfigBuilder, RootCertStore, ServerConfig};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

use crate::config::{AnyFile, ClientFile, Placed, ServerFile};
use crate::keys;
use crate::process::{self, RunError, date};
use crate::tls::key_exchange;
use crate::trust::{self, certificates, unusable};

/// Seconds of a day.
const DAY: u64 = 24 * 60 * 60;

/// Seconds before its end from which on a certificate is spoken of; whoever renews by themselves has done so weeks before.
pub(crate) const SOON: u64 = 14 * DAY;

/// Certificate chain and private key out of the operator's files.
pub(crate) struct CertifiedFiles {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    certificate: Placed<PathBuf>,
    key_file: Placed<PathBuf>,
}

impl CertifiedFiles {
    /// Reads both files, in PEM, and has TLS look whether they belong together.
    ///
    /// # Errors
    /// [`RunError`] names the file that cannot be used, and the mend.
    pub(crate) fn checked(
        certificate: &Placed<PathBuf>,
        key: &Placed<PathBuf>,
    ) -> Result<Self, RunError> {
        let files = Self::read(certificate, key)?;
        let builder = ServerConfig::builder_with_provider(key_exchange())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(std::io::Error::other)?;
        files.certify(builder.with_no_client_auth())?;
        Ok(files)
    }

    /// Reads both files, in PEM.
    ///
    /// # Errors
    /// One cannot be read, or there is no certificate in it.
    pub(crate) fn read(
        certificate: &Placed<PathBuf>,
        key: &Placed<PathBuf>,
    ) -> Result<Self, RunError> {
        let chain = certificates(certificate, "name the file with the site's chain")?;
        let text = keys::pem_key(key).map_err(|fault| key.place.error(fault))?;
        let own = PrivateKeyDer::from_pem_slice(&text).map_err(|_| {
            let fault = "it holds no private key in PEM; name the file with the certificate's key";
            unusable(key, fault)
        })?;
        Ok(Self {
            chain,
            key: own,
            certificate: certificate.clone(),
            key_file: key.clone(),
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
        config.map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                let certificate = self.certificate.display();
                let fault = format!(
                    "it is not the key of {certificate}; name the two that were issued together"
                );
                unusable(&self.key_file, fault)
            }
            error => unusable(&self.certificate, error),
        })
    }

    /// Time for which the site's own certificate, the first of the chain, is good.
    ///
    /// # Errors
    /// The certificate cannot be read.
    pub(crate) fn validity(&self) -> Result<Validity, RunError> {
        let parsed = self.own()?;
        let seconds =
            |time: x509_parser::time::ASN1Time| u64::try_from(time.timestamp()).unwrap_or_default();
        let validity = parsed.validity();
        Ok(Validity {
            file: self.certificate.to_path_buf(),
            from: seconds(validity.not_before),
            until: seconds(validity.not_after),
        })
    }

    /// Host names that the site's own certificate is for, as it has them.
    ///
    /// # Errors
    /// The certificate cannot be read.
    pub(crate) fn names(&self) -> Result<Vec<String>, RunError> {
        let parsed = self.own()?;
        let alternatives = parsed.subject_alternative_name().ok().flatten();
        let names = alternatives
            .into_iter()
            .flat_map(|it| &it.value.general_names);
        let names = names.filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        });
        Ok(names.collect())
    }

    /// The site's own certificate, the first of the chain.
    fn own(&self) -> Result<X509Certificate<'_>, RunError> {
        let parsed = x509_parser::parse_x509_certificate(&self.chain[0]);
        let (_, parsed) = parsed.map_err(|error| unusable(&self.certificate, error))?;
        Ok(parsed)
    }
}

/// Time for which a certificate is good.
#[derive(Clone, Debug)]
pub(crate) struct Validity {
    file: PathBuf,
    /// First moment, seconds since 1970.
    from: u64,
    /// Last moment, seconds since 1970.
    until: u64,
}

impl Validity {
    /// First day, in UTC, as `2028-11-26`.
    pub(crate) fn begins(&self) -> String {
        date(self.from)
    }

    /// Seconds from `now`, seconds since 1970, until the certificate is good, and until it is no more; negative once that is over.
    pub(crate) fn spans(&self, now: u64) -> [i64; 2] {
        let signed = |time| i64::try_from(time).unwrap_or(i64::MAX);
        [self.from, self.until].map(|time| signed(time) - signed(now))
    }

    /// Last day, in UTC, as `2028-11-26`.
    pub(crate) fn expires(&self) -> String {
        date(self.until)
    }

    /// Seconds from `now`, seconds since 1970, to the end.
    pub(crate) fn left(&self, now: u64) -> u64 {
        self.until.saturating_sub(now)
    }

    /// Reason why nobody believes the certificate at `now`, seconds since 1970.
    pub(crate) fn fault(&self, now: u64) -> Option<String> {
        let file = self.file.display();
        if now > self.until {
            let on = date(self.until);
            return Some(format!(
                "the certificate {file} expired on {on}: browsers and clients refuse it; renew it, then send SIGHUP"
            ));
        }
        (now < self.from).then(|| {
            let from = date(self.from);
            format!(
                "the certificate {file} is not good before {from}: browsers and clients refuse it; set the clock, or renew it, then send SIGHUP"
            )
        })
    }

    /// Text about a certificate that is good at `now`, seconds since 1970, and will not be for long.
    pub(crate) fn warning(&self, now: u64) -> Option<String> {
        let left = self.until.checked_sub(now)?;
        (now >= self.from && left < SOON).then(|| {
            let (file, on, days) = (self.file.display(), date(self.until), left / DAY);
            format!(
                "the certificate {file} expires on {on}, in {days} days; renew it, then send SIGHUP"
            )
        })
    }
}

/// Reads certificate, key and authorities that `file` names, as the daemon will; text about a certificate that is not good now, or not
/// for long.
///
/// # Errors
/// [`RunError`] names the file that cannot be used, and the mend.
pub fn check_certificate(file: &AnyFile) -> Result<Option<String>, RunError> {
    check_roots(file)?;
    let (certificate, key) = match file {
        AnyFile::Origin(origin) => (&origin.certificate, &origin.key),
        AnyFile::Server(server) => {
            let ServerFile::Tunnel(server) = &**server else {
                return Ok(None);
            };
            let tls = server.listening.tls.as_ref();
            match tls.and_then(|tls| tls.certificate.as_ref()) {
                Some((certificate, key)) => (certificate, key),
                None => return Ok(None),
            }
        }
        AnyFile::Client(_) | AnyFile::Pep(_) => return Ok(None),
    };
    let files = CertifiedFiles::checked(certificate, key)?;
    let (validity, now) = (files.validity()?, process::since_1970().as_secs());
    Ok(validity.fault(now).or_else(|| validity.warning(now)))
}

/// Reads the authorities that `file` names for web servers or origins.
fn check_roots(file: &AnyFile) -> Result<(), RunError> {
    let roots = match file {
        AnyFile::Client(ClientFile::Tunnel(client)) => Some(&client.front.dssl.roots),
        AnyFile::Server(server) => match &**server {
            ServerFile::Tunnel(server) => server.web.tls.as_ref().or(server.web.hub.as_ref()),
            ServerFile::Plain(_) => None,
        },
        AnyFile::Client(ClientFile::Plain(_)) | AnyFile::Pep(_) | AnyFile::Origin(_) => None,
    };
    match roots.and_then(|roots| roots.file.as_ref()) {
        Some(file) => trust::add(file, &mut RootCertStore::empty()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use bentpipe_config::Source;
    use toml::Spanned;

    use super::*;

    #[test]
    fn a_certificate_is_spoken_of_before_it_ends_and_from_then_on() {
        let validity = Validity {
            file: "site.pem".into(),
            from: 100 * DAY,
            until: 200 * DAY,
        };
        let told = |now| (validity.fault(now), validity.warning(now));
        assert!(matches!(told(100 * DAY), (None, None)));
        assert!(matches!(told(200 * DAY - SOON), (None, None)));
        let (fault, warning) = told(200 * DAY - SOON + 1);
        let warning = warning.expect("a warning");
        assert!(
            fault.is_none() && warning.contains("in 13 days"),
            "{warning}"
        );
        assert!(matches!(told(200 * DAY), (None, Some(_))));
        let (fault, warning) = told(200 * DAY + 1);
        let fault = fault.expect("a fault");
        assert!(
            fault.contains("expired on 1970-07-20") && warning.is_none(),
            "{fault}"
        );
        let (fault, warning) = told(100 * DAY - 1);
        let fault = fault.expect("a fault");
        assert!(
            fault.contains("not good before 1970-04-11") && warning.is_none(),
            "{fault}"
        );
    }

    /// A file of this content and mode, as the second line of `m.toml` names it.
    fn named(directory: &Path, name: &str, text: &str, mode: u32) -> Placed<PathBuf> {
        let path = directory.join(name);
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("a file of ours");
        Source::new(Path::new("m.toml"), "\n\n").placed(Spanned::new(1..1, path))
    }

    #[test]
    fn a_key_that_others_may_read_or_write_is_refused_at_its_line() {
        let directory = tempfile::tempdir().expect("a directory");
        let made = rcgen::generate_simple_self_signed(vec!["a.example".into()]).expect("made");
        let chain = named(directory.path(), "site.pem", &made.cert.pem(), 0o644);
        let text = made.signing_key.serialize_pem();
        for (mode, taken) in [
            (0o600, true),
            (0o640, true),
            (0o644, false),
            (0o604, false),
            (0o660, false),
        ] {
            let key = named(directory.path(), "site.key", &text, mode);
            let fault = CertifiedFiles::checked(&chain, &key).err();
            let fault = fault.map(|fault| fault.to_string());
            let said = format!("is accessible to others (mode {mode:04o}); run `chmod 640");
            let refused = |fault: &String| fault.starts_with("m.toml:2: ") && fault.contains(&said);
            assert_eq!(fault.is_none(), taken, "{mode:o}: {fault:?}");
            assert!(fault.as_ref().is_none_or(refused), "{fault:?}");
        }
    }

    #[test]
    fn files_that_cannot_be_used_are_named_on_one_line() {
        let directory = tempfile::tempdir().expect("a directory");
        let odd = named(directory.path(), "a\u{1b}[31m.pem", "nothing\n", 0o644);
        let fault = trust::add(&odd, &mut RootCertStore::empty()).expect_err("no certificate");
        let fault = fault.to_string();
        assert!(fault.starts_with("m.toml:2: cannot use "), "{fault}");
        assert!(fault.contains("holds no certificate"), "{fault}");
        assert!(!fault.contains(char::is_control), "{fault}");
        let none = odd.implied(PathBuf::new());
        let fault = trust::add(&none, &mut RootCertStore::empty()).expect_err("no path");
        let said = "m.toml:2: the path of this file is empty; name a file";
        assert_eq!(fault.to_string(), said);
    }

    #[test]
    fn a_check_reads_the_authorities_that_a_file_names() {
        let directory = tempfile::tempdir().expect("a directory");
        let key = "AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=\n";
        named(directory.path(), "own.key", key, 0o600);
        let peer = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";
        let server = "private_key_file = \"own.key\"\nlisten = \":1\"\n[web]\nhub = true\nroots = \"none.pem\"\n";
        let client = format!(
            "private_key_file = \"own.key\"\n[server]\naddress = \"10.0.0.1:1\"\npublic_key = \"{peer}\"\n\
             [http]\nlisten = \":1\"\n[dssl]\norigins = [\"a.example\"]\nroots = \"none.pem\"\n"
        )
        .replace("\":1\"", "\"127.0.0.1:1\"");
        for (text, line) in [(server, 5), (&*client, 9)] {
            let path = directory.path().join("m.toml");
            fs::write(&path, text).expect("a file");
            let file = crate::config::load(&path, None).expect("a good file");
            let fault = check_certificate(&file).expect_err("no authorities");
            let said = format!("m.toml:{line}: cannot use ");
            assert!(fault.to_string().contains(&said), "{fault}");
        }
    }
}

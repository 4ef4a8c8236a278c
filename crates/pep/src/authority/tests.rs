//! Files of a CA, its names, and certificates that clients accept of it.

use std::fs;
use std::sync::Arc;

use rcgen::Issuer;
use rustls::RootCertStore;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{ServerName, UnixTime};

use super::*;

fn names(names: &[&str]) -> Vec<TrustedName> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

#[test]
fn a_ca_is_read_back_as_it_was_made() {
    let directory = tempfile::tempdir().unwrap();
    let files = Files::of_state(directory.path());
    assert_eq!(Authority::read(&files), Ok(None));
    fs::create_dir(files.directory()).unwrap();
    let listed = names(&["a.example.com", "b.example.com"]);
    let made = make(&listed).unwrap();
    fs::write(files.certificate(), &made.certificate).unwrap();
    let read = Authority::read(&files).unwrap().unwrap();
    assert_eq!(read.names(), listed);
    assert!(read.subject().starts_with("bentpipe local CA 2"));
    assert_eq!(read.present_phase(), ValidityPhase::Good);
    let life = Duration::from_secs(read.not_after).saturating_sub(since_1970());
    assert!(life <= LIFE && life > LIFE - SKEW, "{life:?}");
    assert_eq!(read.fingerprint().len(), 32 * 3 - 1);
    let over = Authority {
        not_before: 0,
        not_after: 1,
        ..read
    };
    assert_eq!(over.present_phase(), ValidityPhase::Over);
    assert_eq!(over.expires(), "1970-01-01");
}

#[test]
fn what_is_no_such_ca_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let files = Files::within(directory.path());
    let other = rcgen::generate_simple_self_signed(vec!["a.example".into()]).unwrap();
    let other = other.cert.pem();
    for text in ["", "no certificate", other.as_str()] {
        fs::write(files.certificate(), text).unwrap();
        let fault = Authority::read(&files).unwrap_err();
        assert!(fault.contains("bentpipe ca init"), "{fault}");
    }
    assert!(make(&[]).is_err());
    assert!(make(&vec![names(&["a.example"]).remove(0); MAX_NAMES + 1]).is_err());
}

/// A browser's verdict about a certificate for `name` that the CA of `a.example.com` has signed.
fn verdict(name: &str, parameters: CertificateParams) -> Result<(), rustls::Error> {
    verdict_at(since_1970(), name, |_| parameters)
}

/// Verdict at `now`, since 1970, about what `leaf` makes of the CA.
fn verdict_at(
    now: Duration,
    name: &str,
    leaf: impl FnOnce(&Authority) -> CertificateParams,
) -> Result<(), rustls::Error> {
    let made = make(&names(&["a.example.com"])).unwrap();
    let ca = Authority::parse(made.certificate.as_bytes()).unwrap();
    let parameters = leaf(&ca);
    let issuer = Issuer::new(issuing(ca.subject()), KeyPair::from_pem(&made.key).unwrap());
    let key = KeyPair::generate().unwrap();
    let leaf = parameters.signed_by(&key, &issuer).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(ca.certificate).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let browser =
        rustls::client::WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let now = UnixTime::since_unix_epoch(now);
    browser
        .verify_server_cert(leaf.der(), &[], &name, &[], now)
        .map(drop)
}

#[test]
fn browsers_believe_the_ca_for_its_names_alone() {
    let leaf = |name: &str| CertificateParams::new([name.to_owned()]).unwrap();
    assert_eq!(verdict("a.example.com", leaf("a.example.com")), Ok(()));
    for other in ["example.com", "b.example.com", "a.example.org"] {
        assert!(verdict(other, leaf(other)).is_err(), "{other}");
    }
    for address in ["192.0.2.1", "2001:db8::1"] {
        assert!(verdict(address, leaf(address)).is_err(), "{address}");
    }
}

/// The clock of the client, which signs, has no say in that: browsers judge by theirs.
#[test]
fn a_certificate_of_a_host_is_valid_as_long_as_its_ca() {
    const DAY: Duration = Duration::from_hours(24);
    let host = &names(&["a.example.com"])[0];
    let made = since_1970();
    let good = |now| verdict_at(now, host.as_str(), |ca| signer::leaf(host, ca).unwrap());
    for now in [made, made + DAY * 60, made + DAY * 729] {
        assert_eq!(good(now), Ok(()), "{now:?}");
    }
    assert!(good(made - DAY * 2).is_err(), "before it was made");
    assert!(good(made + DAY * 731).is_err(), "it has ended");
}

//! Pages over TLS: whose certificate a browser is shown, and what it is told of an origin that nobody believes.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_lab::workload::Authority;
use bentpipe_testbed::peer::read_to_the_end;
use bentpipe_testbed::site::{Site, SiteConfig};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore};

use super::browser::{Browser, HTML, get};
use super::cases::{Case, Trust, as_it_is, figure, on_site, prepare};
use super::speech::{NAME, Over};
use crate::BENTPIPE;
use bentpipe_testbed::privileged;
use std::io::Write as _;

/// Time within which a client notices another CA.
const NOTICES: Duration = Duration::from_secs(15);

/// Makes the local CA of a site's client, and waits until the client has read it; gives a browser's trust in that CA alone.
pub(super) fn trust_local(site: &Site) -> Result<Arc<ClientConfig>> {
    let directory = site.client_home().join("state").join("ca");
    ca(site, &["init", "--name", NAME])?;
    let pem = fs::read(directory.join("ca.pem"))?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&pem)?)?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let deadline = Instant::now() + NOTICES;
    while !site.logs().contains("answers for listed hosts") {
        ensure!(Instant::now() < deadline, "the client does not see its CA");
        thread::sleep(Duration::from_millis(100));
    }
    Ok(Arc::new(config))
}

fn ca(site: &Site, arguments: &[&str]) -> Result<()> {
    let directory = site.client_home().join("state").join("ca");
    let mut command = Command::new(BENTPIPE);
    command
        .arg("ca")
        .args(arguments)
        .arg("--dir")
        .arg(directory);
    let output = command.output()?;
    let fault = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments:?}: {fault}");
    Ok(())
}

/// A browser that trusts the origin's own authority alone, as all do that the CA was not installed in.
pub(super) fn stranger(browser: &Browser, authority: &Authority) -> Result<Browser> {
    let tls = Some(authority.client_config()?);
    Ok(Browser {
        tls,
        ..browser.clone()
    })
}

/// Loads a page with the host `name` as a browser to which nothing was done.
fn load_untouched(browser: &Browser, name: &str) -> Result<()> {
    let mut stream = browser.connect_to(name)?;
    ensure!(stream.certificate().is_some(), "no certificate");
    stream.write_all(get("/o/1", "Connection: close\r\n").as_bytes())?;
    let (bytes, end) = read_to_the_end(&mut stream);
    end.with_context(|| format!("{name}: {} bytes", bytes.len()))?;
    ensure!(bytes.starts_with(b"HTTP/1.1 200 "), "{name}: no page");
    Ok(())
}

#[test]
fn a_host_that_is_not_listed_is_not_touched_and_none_is_without_a_ca() {
    if !privileged("hosts that are not listed") {
        return;
    }
    let trust = Trust::new();
    let config = trust.config(Over::Trusted);
    let Case {
        site,
        origin: _origin,
        browser,
    } = prepare(&trust, Over::Trusted, config, Duration::ZERO).expect("a site");
    let stranger = stranger(&browser, &trust.authority).expect("a browser");
    let cases = || -> Result<()> {
        load_untouched(&stranger, "other.example")?;
        let distrusted = stranger.connect_to(NAME);
        ensure!(
            distrusted.is_err(),
            "a browser took a CA that it does not trust"
        );
        load_untouched(&browser, NAME)?;
        let met = figure(&site, "trusted_total")?;
        ensure!(met == 1, "{met} connections answered");
        ca(&site, &["remove"])?;
        let deadline = Instant::now() + NOTICES;
        while load_untouched(&stranger, NAME).is_err() {
            ensure!(Instant::now() < deadline, "the client does not miss its CA");
            thread::sleep(Duration::from_millis(200));
        }
        ensure!(browser.connect_to(NAME).is_err(), "the CA is gone");
        Ok(())
    };
    let result = cases();
    assert!(result.is_ok(), "{:#}\n{}", result.unwrap_err(), site.logs());
}

#[test]
fn a_server_without_trusted_pages_has_none_touched() {
    if !privileged("a server without trusted pages") {
        return;
    }
    let trust = Trust::new();
    let config = SiteConfig {
        server_tables: "[web]\nprefetch = true\n".into(),
        ..trust.config(Over::Trusted)
    };
    let Case {
        site,
        origin: _origin,
        browser,
    } = prepare(&trust, Over::Trusted, config, Duration::ZERO).expect("a site");
    let stranger = stranger(&browser, &trust.authority).expect("a browser");
    let result = load_untouched(&stranger, NAME);
    assert!(result.is_ok(), "{:#}\n{}", result.unwrap_err(), site.logs());
}

#[test]
fn an_origin_that_nobody_believes_is_answered_with_a_page_that_says_so() {
    on_site(
        "an origin that nobody believes",
        Over::Trusted,
        |config| {
            // The system's authorities alone, which have not signed this origin.
            let kept = config
                .server_tables
                .lines()
                .filter(|line| !line.contains("roots"));
            config.server_tables = kept.map(|line| format!("{line}\n")).collect();
        },
        Duration::ZERO,
        |site, origin, browser| {
            let post =
                format!("POST /o/1 HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 5\r\n\r\nhello");
            for words in [get("/page/x-3", HTML), post] {
                let (bytes, in_order) = browser.hear(words.as_bytes())?;
                let text = String::from_utf8_lossy(&bytes);
                ensure!(text.starts_with("HTTP/1.1 502 "), "{text}");
                ensure!(text.contains("invalid peer certificate"), "{text}");
                ensure!(in_order, "a page that is cut off");
            }
            ensure!(origin.asked().is_empty(), "{:?}", origin.asked());
            ensure!(site.logs().contains("is not trusted"), "nothing in the log");
            Ok(())
        },
    );
}

#[test]
fn an_end_without_close_notify_is_handed_on_as_that() {
    on_site(
        "an end without close_notify",
        Over::Trusted,
        as_it_is,
        Duration::ZERO,
        |_, _, browser| {
            let whole = b"HTTP/1.1 200 OK\r\n\r\nuntil the end";
            let post =
                format!("POST /cut HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 5\r\n\r\nhello");
            for words in [get("/cut", ""), post] {
                let mut stream = browser.connect()?;
                stream.write_all(words.as_bytes())?;
                let (bytes, end) = read_to_the_end(&mut stream);
                ensure!(bytes == whole, "{:?}", String::from_utf8_lossy(&bytes));
                let kind = end.err().map(|error| error.kind());
                ensure!(kind == Some(std::io::ErrorKind::UnexpectedEof), "{kind:?}");
            }
            Ok(())
        },
    );
}

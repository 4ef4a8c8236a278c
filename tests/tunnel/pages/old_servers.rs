//! Web servers of old: of HTTP/1.0, whose answers end with their connection, and of TLS 1.2 alone.

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use bentpipe_testbed::{installed, privileged};

use super::S;
use super::browser::{Browser, HTML, get};
use super::cases::{BOTH, as_it_is, figure, on_site};
use super::nginx::objects;
use super::origin::answer;
use super::real::{OBJECT_FIELDS, Pair, Real, page_fields};
use super::sealed::{AS_IT_SHOULD_BE, Sealed};

#[test]
fn pages_of_http_1_0_cross_as_they_are_with_their_objects_ahead() {
    for over in BOTH {
        on_site(
            "pages of HTTP/1.0",
            over,
            as_it_is,
            Duration::ZERO,
            |site, origin, browser| {
                load_old_page(browser)?;
                super::expect_once(origin, &["/old-page", "/old", "/o/old"])?;
                let used = figure(site, "used_total")?;
                ensure!(used == 2, "{used} objects used");
                Ok(())
            },
        );
    }
    if privileged("pages of HTTP/1.0 behind an origin") {
        // A session ends with its connection, and that with the page: objects do not come ahead for certain.
        Sealed::start(&AS_IT_SHOULD_BE)
            .expect("a site")
            .run(|it| load_old_page(&it.browser));
    }
}

/// Loads a page that ends with its connection, an object that does, and one behind which the browser ends it.
fn load_old_page(browser: &Browser) -> Result<()> {
    for (target, fields) in [("/old-page", HTML), ("/old", ""), ("/o/old", "")] {
        let close = match target {
            "/o/old" => "Connection: close\r\n",
            _ => "",
        };
        let head = get(target, &format!("{fields}{close}"));
        let (bytes, in_order) = browser.hear(head.as_bytes())?;
        ensure!(
            in_order && bytes == answer(&head),
            "{target}: {} bytes, in order: {in_order}",
            bytes.len()
        );
        // All that is promised has come.
        thread::sleep(2 * S);
    }
    Ok(())
}

#[test]
fn a_named_host_of_tls_1_2_alone_has_its_objects_ahead() {
    let name = "a host of TLS 1.2 alone";
    if !privileged(name) || !installed(name, "nginx") || !installed(name, "zstd") {
        return;
    }
    let real = Real::start(Pair::Trusted, "TLSv1.2").expect("a site");
    let result = load_page(&real);
    let logs = real.site.site().logs();
    assert!(result.is_ok(), "{:#}\n{logs}", result.unwrap_err());
}

fn load_page(real: &Real) -> Result<()> {
    let mut stream = real.browser.connect()?;
    real.expect_same(&mut stream, "/plain.html", &page_fields())?;
    for target in objects("plain") {
        real.expect_same(&mut stream, &target, OBJECT_FIELDS)?;
        real.expect_count(&target, 1)?;
    }
    let used = figure(real.site.site(), "used_total")?;
    ensure!(used == 4, "{used} objects used");
    Ok(())
}

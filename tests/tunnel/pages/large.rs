//! Pages whose objects are together more than may come ahead: what fits comes, and the rest is asked for.

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use bentpipe_testbed::peer::payload;
use bentpipe_testbed::privileged;

use super::browser::{Browser, HTML, exchange, get};
use super::cases::{BOTH, as_it_is, on_site};
use super::origin::Origin;
use super::sealed::{AS_IT_SHOULD_BE, Sealed};

/// Loads a page of six objects of 3 MiB, of which five fit into 16 MiB.
fn load(browser: &Browser, origin: &Origin) -> Result<()> {
    let targets: Vec<_> = (0..6).map(|number| format!("/three/{number}")).collect();
    let names: Vec<_> = targets.iter().map(|it| it[1..].replace('/', "+")).collect();
    let mut stream = browser.connect()?;
    exchange(
        &mut stream,
        &get(&format!("/names/{}", names.join(",")), HTML),
    )?;
    // All that is promised comes, and nobody loses patience with it.
    thread::sleep(Duration::from_secs(15));
    for target in &targets {
        let body = exchange(&mut stream, &get(target, ""))?;
        ensure!(body == payload(3 << 20), "{target}: another object");
    }
    let asked: usize = targets.iter().map(|target| origin.count(target)).sum();
    ensure!(asked == 7, "{asked} requests: six ahead, and one again");
    Ok(())
}

#[test]
fn of_a_page_with_too_much_ahead_what_fits_comes() {
    for over in BOTH {
        on_site(
            "six large objects",
            over,
            as_it_is,
            Duration::ZERO,
            |_, origin, browser| load(browser, origin),
        );
    }
}

#[test]
fn of_a_sealed_page_with_too_much_ahead_what_fits_comes() {
    if !privileged("six large objects behind an origin") {
        return;
    }
    Sealed::start(&AS_IT_SHOULD_BE)
        .expect("a site")
        .run(|it| load(&it.browser, &it.web));
}

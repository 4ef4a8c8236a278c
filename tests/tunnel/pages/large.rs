//! Pages whose objects are together more than may come ahead: what fits comes, and the rest is asked for.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bentpipe_testbed::peer::payload;
use bentpipe_testbed::privileged;
use bentpipe_testbed::site::Site;

use super::browser::{Browser, HTML, exchange, get};
use super::cases::{BOTH, as_it_is, figure, on_site};
use super::origin::Origin;
use super::sealed::{AS_IT_SHOULD_BE, Sealed};

/// Loads a page of six objects of 3 MiB, of which five fit into 16 MiB.
fn load(site: &Site, origin: &Origin, browser: &Browser) -> Result<()> {
    let targets: Vec<_> = (0..6).map(|number| format!("/three/{number}")).collect();
    let names: Vec<_> = targets.iter().map(|it| it[1..].replace('/', "+")).collect();
    let mut stream = browser.connect()?;
    exchange(
        &mut stream,
        &get(&format!("/names/{}", names.join(",")), HTML),
    )?;
    // All that is promised comes, and nobody loses patience with it.
    let deadline = Instant::now() + Duration::from_secs(40);
    while figure(site, "bytes_held")? < 5 * (3 << 20) {
        ensure!(Instant::now() < deadline, "less has come ahead than fits");
        thread::sleep(Duration::from_millis(200));
    }
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
            |site, origin, browser| load(site, origin, browser),
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
        .run(|it| load(&it.site, &it.web, &it.browser));
}

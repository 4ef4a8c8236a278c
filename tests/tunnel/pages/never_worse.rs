//! Pages whose objects an origin gives late, or refuses: none takes longer with the pair than without.

use std::io::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_testbed::peer::read_exactly;
use bentpipe_testbed::privileged;
use bentpipe_testbed::site::{Site, SiteConfig};

use super::browser::{Browser, HTML, get};
use super::cases::{Trust, figure, prepare};
use super::origin::answer;
use super::sealed::{AS_IT_SHOULD_BE, Case, Sealed};
use super::speech::{Over, Speech};
use super::trusted::stranger;
use super::{T, TRIES};
use crate::{BENTPIPE, alone};

/// Objects of a page.
const OBJECTS: usize = 12;

/// Time that a page may take with the pair, to the time without; what is above 1 is the machine's.
const MOST: f64 = 1.05;

fn expect_answer(stream: &mut Speech, head: &str) -> Result<()> {
    let expected = answer(head);
    stream.write_all(head.as_bytes())?;
    ensure!(read_exactly(stream, expected.len())? == expected, "{head}");
    Ok(())
}

/// Loads a page of objects of a `kind` by six connections.
fn load(browser: &Browser, kind: &str, number: usize) -> Result<Duration> {
    let began = Instant::now();
    let names: Vec<_> = (0..OBJECTS)
        .map(|i| format!("{kind}+{number}-{i}"))
        .collect();
    let mut first = browser.connect()?;
    expect_answer(
        &mut first,
        &get(&format!("/names/{}", names.join(",")), HTML),
    )?;
    let mut first = Some(first);
    thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..6)
            .map(|one| {
                let (names, own) = (&names, first.take());
                scope.spawn(move || -> Result<()> {
                    let mut stream = own.map_or_else(|| browser.connect(), Ok)?;
                    for name in names.iter().skip(one).step_by(6) {
                        let target = format!("/{}", name.replace('+', "/"));
                        expect_answer(&mut stream, &get(&target, "User-Agent: test\r\n"))?;
                    }
                    Ok(())
                })
            })
            .collect();
        let mut joined = workers.into_iter();
        joined.try_for_each(|worker| worker.join().expect("no panic"))
    })?;
    Ok(began.elapsed())
}

/// Ways to have a page's objects ahead.
#[derive(Clone, Copy, Debug)]
enum Pair {
    Clear,
    Trusted,
    Sealed,
}

/// Runs `case` on a site with the pair, or without, and shows the logs if it fails.
fn on_site(
    (pair, helps): (Pair, bool),
    case: impl FnOnce(&Site, &Browser) -> Result<()>,
) -> Result<()> {
    let over = match pair {
        Pair::Clear => Over::Clear,
        Pair::Trusted => Over::Trusted,
        Pair::Sealed => {
            let with = Case {
                hub: helps,
                ..AS_IT_SHOULD_BE
            };
            let it = Sealed::start(&with)?;
            let mut browser = it.browser.clone();
            if !helps {
                browser.tls = Some(it.certified.trust()?);
            }
            it.run(|it| case(&it.site, &browser));
            return Ok(());
        }
    };
    let trust = Trust::new();
    let mut config = trust.config(over);
    match (over, helps) {
        (_, true) => {}
        (Over::Clear, false) => config.client_tables = SiteConfig::new(BENTPIPE).client_tables,
        // Connections over TLS are not touched then.
        (Over::Trusted, false) => config.server_tables.clear(),
    }
    let it = prepare(&trust, over, config, T)?;
    let browser = match (over, helps) {
        (Over::Trusted, false) => stranger(&it.browser, &trust.authority)?,
        _ => it.browser.clone(),
    };
    case(&it.site, &browser).with_context(|| it.site.logs())
}

/// Times of the pages of each kind, with the pair or without, some of each.
fn times(pair: Pair, helps: bool) -> Result<Vec<(&'static str, Duration)>> {
    let mut times = Vec::new();
    on_site((pair, helps), |site, browser| {
        load(browser, "o", 1000)?;
        for kind in ["late", "refused"] {
            for number in 0..TRIES {
                times.push((kind, load(browser, kind, number)?));
            }
        }
        let promised = figure(site, "promised_total")?;
        ensure!((promised > 0) == helps, "{promised} objects promised");
        Ok(())
    })?;
    Ok(times)
}

#[test]
fn no_page_takes_longer_with_the_pair_than_without() -> Result<()> {
    if !privileged("pages that are hard to help") {
        return Ok(());
    }
    let _alone = alone();
    let least = |times: &[(&str, Duration)], kind: &str| {
        let of_kind = times.iter().filter(|(name, _)| *name == kind);
        let seconds = of_kind.map(|(_, took)| took.as_secs_f64());
        seconds.reduce(f64::min).context("a page")
    };
    for pair in [Pair::Clear, Pair::Trusted, Pair::Sealed] {
        let (with, without) = (times(pair, true)?, times(pair, false)?);
        for kind in ["late", "refused"] {
            let (with, without) = (least(&with, kind)?, least(&without, kind)?);
            println!("{pair:?}, {kind}: {with:.2} s with the pair, {without:.2} s without");
            ensure!(
                with <= without * MOST,
                "{pair:?}, {kind}: {with:.2} s instead of {without:.2} s"
            );
        }
    }
    Ok(())
}

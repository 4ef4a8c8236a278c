//! Pages whose objects an origin gives late, or refuses: none takes longer with the pair than without.

use std::io::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bentpipe_testbed::peer::read_exactly;
use bentpipe_testbed::site::SiteConfig;

use super::browser::{Browser, HTML, get};
use super::cases::{as_it_is, figure, on_site};
use super::origin::answer;
use super::speech::{Over, Speech};
use super::{T, TRIES};
use crate::BENTPIPE;

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

/// Times of the pages of each kind, with the pair or without, some of each.
fn times(pair: bool) -> Vec<(&'static str, Duration)> {
    let mut times = Vec::new();
    let without = |config: &mut SiteConfig| {
        let plain = SiteConfig::new(BENTPIPE);
        config.client_tables = plain.client_tables;
    };
    let change = if pair { as_it_is } else { without };
    on_site(
        "pages that are hard to help",
        Over::Clear,
        change,
        T,
        |site, _, browser| {
            load(browser, "o", 1000)?;
            for kind in ["late", "refused"] {
                for number in 0..TRIES {
                    times.push((kind, load(browser, kind, number)?));
                }
            }
            let requests = figure(site, "requests_total")?;
            ensure!((requests > 0) == pair, "{requests} requests by streams");
            Ok(())
        },
    );
    times
}

#[test]
fn no_page_takes_longer_with_the_pair_than_without() {
    let (with, without) = (times(true), times(false));
    let least = |times: &[(&str, Duration)], kind: &str| {
        let of_kind = times.iter().filter(|(name, _)| *name == kind);
        of_kind.map(|(_, took)| took.as_secs_f64()).reduce(f64::min)
    };
    for kind in ["late", "refused"] {
        // Without privileges nothing was loaded.
        let (Some(with), Some(without)) = (least(&with, kind), least(&without, kind)) else {
            return;
        };
        println!("{kind}: {with:.2} s with the pair, {without:.2} s without");
        assert!(
            with <= without * MOST,
            "{kind}: {with:.2} s instead of {without:.2} s"
        );
    }
}

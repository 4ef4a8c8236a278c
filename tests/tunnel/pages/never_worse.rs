//! Pages that are hard to help, as those whose objects an origin gives late, or refuses, or a browser has already: none takes longer with the
//! pair than without.

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

/// Kind of the time after which a page's style sheet is there that stands behind large images; it may be later with the pair.
const SEEN: &str = "behind, seen";

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
    let names: Vec<_> = (0..OBJECTS)
        .map(|i| format!("{kind}+{number}-{i}"))
        .collect();
    let began = Instant::now();
    let first = open_page(browser, &names)?;
    ask_for(browser, &names, first)?;
    Ok(began.elapsed())
}

/// Loads the page of these objects alone.
fn open_page(browser: &Browser, names: &[String]) -> Result<Speech> {
    let mut first = browser.connect()?;
    let head = get(&format!("/names/{}", names.join(",")), HTML);
    expect_answer(&mut first, &head)?;
    Ok(first)
}

/// Asks for these objects by six connections, of which `first` is one.
fn ask_for(browser: &Browser, names: &[String], first: Speech) -> Result<()> {
    let mut first = Some(first);
    thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..6)
            .map(|one| {
                let own = first.take();
                scope.spawn(move || -> Result<()> {
                    let mut stream = own.map_or_else(|| browser.connect(), Ok)?;
                    for name in names.iter().skip(one).step_by(6) {
                        ask(&mut stream, name)?;
                    }
                    Ok(())
                })
            })
            .collect();
        let mut joined = workers.into_iter();
        joined.try_for_each(|worker| worker.join().expect("no panic"))
    })
}

fn ask(stream: &mut Speech, name: &str) -> Result<()> {
    let target = format!("/{}", name.replace('+', "/"));
    expect_answer(stream, &get(&target, "User-Agent: test\r\n"))
}

/// Loads a page behind one of 15 MiB of objects that the browser has, and so does not ask for.
fn load_behind_cached(browser: &Browser, number: usize) -> Result<Duration> {
    let cached: Vec<_> = (0..5).map(|i| format!("three+{number}-{i}")).collect();
    let first = open_page(browser, &cached)?;
    let took = browser.load(&format!("next-{number}-7"), 7)?;
    drop(first);
    Ok(took)
}

/// Loads a page of six large images and a style sheet behind them, which the browser wants first; times of that, and of all.
fn load_style_behind(browser: &Browser, number: usize) -> Result<[Duration; 2]> {
    let mut names: Vec<_> = (0..6).map(|i| format!("two+{number}-{i}")).collect();
    let style = format!("o+style-{number}");
    names.push(style.clone());
    let began = Instant::now();
    let mut first = open_page(browser, &names)?;
    names.pop();
    thread::scope(|scope| {
        let names = &names;
        let others = scope.spawn(move || ask_for(browser, names, browser.connect()?));
        ask(&mut first, &style)?;
        let seen = began.elapsed();
        others.join().expect("no panic")?;
        Ok([seen, began.elapsed()])
    })
}

/// Ways to have a page's objects ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
        // Pages over TLS that is ended here are fetched as those in clear are.
        for number in (0..2).filter(|_| pair != Pair::Trusted) {
            let [seen, whole] = load_style_behind(browser, number)?;
            times.extend([(SEEN, seen), ("behind", whole)]);
            times.push(("cached", load_behind_cached(browser, number)?));
            if helps {
                // What comes for nobody has come.
                thread::sleep(Duration::from_secs(7));
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
        seconds.reduce(f64::min)
    };
    for pair in [Pair::Clear, Pair::Trusted, Pair::Sealed] {
        let (with, without) = (times(pair, true)?, times(pair, false)?);
        for kind in ["late", "refused", SEEN, "behind", "cached"] {
            let (Some(with), Some(without)) = (least(&with, kind), least(&without, kind)) else {
                continue;
            };
            println!("{pair:?}, {kind}: {with:.2} s with the pair, {without:.2} s without");
            ensure!(
                kind == SEEN || with <= without * MOST,
                "{pair:?}, {kind}: {with:.2} s instead of {without:.2} s"
            );
        }
    }
    Ok(())
}

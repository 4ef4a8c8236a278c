//! Pages that are hard to help, as those whose objects an origin gives late, or refuses, or a browser has already: none takes longer with the
//! pair than without.

use std::io::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bentpipe_testbed::peer::read_exactly;
use bentpipe_testbed::privileged;
use bentpipe_testbed::site::{Site, SiteConfig};

use super::T;
use super::browser::{Browser, HTML, get};
use super::cases::{Trust, figure, prepare};
use super::origin::answer;
use super::sealed::{AS_IT_SHOULD_BE, Case, Sealed};
use super::speech::{Over, Speech};
use super::trusted::stranger;
use crate::{BENTPIPE, alone};

/// Tries of which one has to be no longer with the pair.
const TRIES: usize = 3;

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
fn load_behind_cached(browser: &Browser, number: usize) -> Result<[Duration; 1]> {
    if number > 0 {
        // What has come for nobody at the try before is to be over.
        thread::sleep(Duration::from_secs(7));
    }
    let cached: Vec<_> = (0..5).map(|i| format!("three+{number}-{i}")).collect();
    let first = open_page(browser, &cached)?;
    let took = browser.load(&format!("next-{number}-7"), 7)?;
    drop(first);
    Ok([took])
}

/// Loads a page of six large images and a style sheet behind them, which the browser wants first; times until that is there, and all.
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

/// Browsers of one site with the pair and of one without.
type Both<'a> = [&'a Browser; 2];

/// Does the same in both browsers at one time, so that what the machine adds is added to both.
fn side_by_side<T: Send>(
    [with, without]: Both<'_>,
    case: impl Fn(&Browser) -> Result<T> + Sync,
) -> Result<[T; 2]> {
    thread::scope(|scope| {
        let other = scope.spawn(|| case(without));
        let own = case(with)?;
        Ok([own, other.join().expect("no panic")?])
    })
}

/// Loads pages in both browsers until none of `kinds`, which `case` times, takes longer with the pair: at the third try none does.
fn expect_no_longer<const N: usize>(
    pair: Pair,
    kinds: [&str; N],
    both: Both<'_>,
    case: impl Fn(&Browser, usize) -> Result<[Duration; N]> + Sync,
) -> Result<()> {
    let mut least = [[f64::INFINITY; N]; 2];
    let is_longer = |least: &[[f64; N]; 2], kind: usize| least[0][kind] > least[1][kind] * MOST;
    for number in 0..TRIES {
        let times = side_by_side(both, |browser| case(browser, number))?;
        println!("{pair:?}, {kinds:?}: {times:.2?} with the pair and without");
        for (least, times) in least.iter_mut().zip(times) {
            for (least, took) in least.iter_mut().zip(times) {
                *least = least.min(took.as_secs_f64());
            }
        }
        if (0..N).all(|kind| !is_longer(&least, kind)) {
            return Ok(());
        }
    }
    let longer = (0..N).find(|kind| is_longer(&least, *kind)).unwrap_or(0);
    let [with, without] = least.map(|side| side[longer]);
    bail!(
        "{pair:?}, {}: {with:.2} s instead of {without:.2} s",
        kinds[longer]
    );
}

/// Compares pages of each kind on a site with the pair and one without.
fn compare(pair: Pair) -> Result<()> {
    on_site((pair, true), |site, with| {
        on_site((pair, false), |other, without| {
            let both = [with, without];
            side_by_side(both, |browser| load(browser, "o", 1000))?;
            for kind in ["late", "refused"] {
                expect_no_longer(pair, [kind], both, |browser, number| {
                    Ok([load(browser, kind, number)?])
                })?;
            }
            // Pages over TLS that is ended here are fetched as those in clear are.
            if pair != Pair::Trusted {
                let kinds = ["behind, seen", "behind"];
                expect_no_longer(pair, kinds, both, load_style_behind)?;
                expect_no_longer(pair, ["cached"], both, load_behind_cached)?;
            }
            for (site, helps) in [(site, true), (other, false)] {
                let promised = figure(site, "promised_total")?;
                ensure!((promised > 0) == helps, "{promised} objects promised");
            }
            Ok(())
        })
    })
}

#[test]
fn no_page_takes_longer_with_the_pair_than_without() -> Result<()> {
    if !privileged("pages that are hard to help") {
        return Ok(());
    }
    let _alone = alone();
    for pair in [Pair::Clear, Pair::Trusted, Pair::Sealed] {
        compare(pair)?;
    }
    Ok(())
}

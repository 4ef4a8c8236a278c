//! Origins that say more than they should, or for ever, pages that are long to read, and a client that is revoked in the middle.

use std::fs;
use std::io::{Read as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::usage::{cpu_seconds, resident};
use bentpipe_testbed::peer::{payload, read_exactly, read_to_reset, reset};
use bentpipe_testbed::reload::reload;

use super::S;
use super::browser::{Browser, HTML, exchange, get};
use super::cases::{BOTH, as_it_is, figure, on_site, served};
use super::origin::{INTERIM, OBJECT, Origin, answer};
use super::packed::costly;
use super::speech::{Over, Speech};

/// Time for what takes a round trip or two.
const SOON: Duration = Duration::from_secs(5);

/// The answer to a GET, which has to be the origin's to the last byte.
fn expect_answer(stream: &mut Speech, target: &str) -> Result<()> {
    let head = get(target, "");
    let expected = answer(&head);
    stream.write_all(head.as_bytes())?;
    let heard = read_exactly(stream, expected.len())?;
    let begins = String::from_utf8_lossy(&heard[..heard.len().min(200)]);
    ensure!(heard == expected, "{target}: {begins:?}");
    Ok(())
}

/// Waits until no connection to `origin` is open.
fn wait_until_left(origin: &Origin, patience: Duration) -> Result<()> {
    let deadline = Instant::now() + patience;
    while origin.open() > 0 {
        let open = origin.open();
        ensure!(
            Instant::now() < deadline,
            "{open} connections to the origin"
        );
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

#[test]
fn an_origin_that_says_more_than_its_length_ends_with_it() {
    for over in BOTH {
        on_site(
            "more than the length",
            over,
            as_it_is,
            Duration::ZERO,
            |site, origin, browser| {
                // As a page, as an object that is ahead, and as one that is asked for; what is behind it is nobody's.
                let mut stream = browser.connect()?;
                expect_answer(&mut stream, "/more")?;
                expect_answer(&mut stream, "/o/behind")?;
                exchange(
                    &mut stream,
                    &get("/names/more,o+good,chunked-3m,chunked-5m", HTML),
                )?;
                thread::sleep(4 * S);
                let objects = [
                    ("/more", 2),
                    ("/o/good", 1),
                    ("/chunked-3m", 1),
                    ("/chunked-5m", 2),
                ];
                for (target, times) in objects {
                    expect_answer(&mut stream, target)?;
                    let asked = origin.count(target);
                    ensure!(asked == times, "{target}: asked for {asked} times");
                }
                let causes = served(site)?["failed_causes"].clone();
                ensure!(causes["unfit"] == 1, "the long one: {causes}");
                Ok(())
            },
        );
    }
}

#[test]
fn interim_responses_without_end_hold_nobody() {
    for over in BOTH {
        on_site(
            "endless hints",
            over,
            as_it_is,
            Duration::ZERO,
            |site, origin, browser| {
                let (mut stream, began) = (browser.connect()?, Instant::now());
                exchange(&mut stream, &get("/names/endless+1,o+good", HTML))?;
                for target in ["/endless/1", "/o/good"] {
                    expect_answer(&mut stream, target)?;
                }
                let took = began.elapsed();
                ensure!(took < SOON, "the page took {took:?}");
                ensure!(
                    origin.count("/endless/1") == 2,
                    "once ahead, once for the browser"
                );
                let causes = served(site)?["failed_causes"].clone();
                ensure!(causes["unfit"] == 1, "{causes}");
                // A browser may listen to as many as it likes.
                let mut stream = browser.connect()?;
                stream.write_all(get("/endless", HTML).as_bytes())?;
                let many = INTERIM.repeat(500);
                ensure!(
                    read_exactly(&mut stream, many.len())? == many,
                    "other hints"
                );
                drop(stream);
                wait_until_left(origin, Duration::from_secs(20))
            },
        );
    }
}

#[test]
fn a_head_in_many_pieces_holds_up_nothing_behind_it() {
    for over in BOTH {
        on_site(
            "a head in many pieces",
            over,
            as_it_is,
            Duration::ZERO,
            |_, origin, browser| {
                let mut stream = browser.connect()?;
                exchange(&mut stream, &get("/pieces/page", HTML))?;
                // The browser takes the connection to be free, and the origin does not end it.
                let began = Instant::now();
                expect_answer(&mut stream, "/o/after")?;
                let took = began.elapsed();
                ensure!(took < SOON, "the next answer took {took:?}");
                exchange(&mut stream, &get("/names/pieces+ahead", HTML))?;
                expect_answer(&mut stream, "/pieces/ahead")?;
                super::expect_once(origin, &["/pieces/ahead"])
            },
        );
    }
}

/// Loads a page that is long to read, and its objects; no page for the server, unless the request has [`HTML`] in its `fields`.
fn load_costly(browser: &Browser, name: &str, fields: &str) -> Result<()> {
    let mut stream = browser.connect()?;
    let head = get(&format!("/costly/{name}"), fields);
    let expected = answer(&head);
    stream.write_all(head.as_bytes())?;
    ensure!(
        read_exactly(&mut stream, expected.len())? == expected,
        "another page"
    );
    for object in ["first", "last"] {
        let body = exchange(&mut stream, &get(&format!("/o/{object}-{name}"), ""))?;
        ensure!(body == payload(OBJECT), "another object");
    }
    Ok(())
}

/// Loads 48 such pages, twelve at one time.
fn load_many_costly(browser: &Browser, fields: &str) -> Result<()> {
    let load = |one: usize| {
        let mut numbers = 0..4;
        numbers.try_for_each(|two| load_costly(browser, &format!("{one}-{two}"), fields))
    };
    thread::scope(|scope| {
        let all: Vec<_> = (0..12).map(|one| scope.spawn(move || load(one))).collect();
        let mut joined = all.into_iter();
        joined.try_for_each(|one| one.join().expect("no panic"))
    })
}

#[test]
fn a_client_has_its_share_of_the_processor_for_links_and_no_more() {
    on_site(
        "pages that are long to read",
        Over::Clear,
        as_it_is,
        Duration::ZERO,
        |site, origin, browser| {
            ensure!(costly("x").len() < 4 << 20, "not all of it would be read");
            load_costly(browser, "alone", HTML)?;
            super::expect_once(origin, &["/o/first-alone", "/o/last-alone"])?;
            ensure!(served(site)?["unread_total"] == 0, "a page was not read");
            let [(plain, _), (read, took)] = ["", HTML].map(|fields| {
                let (began, used) = (Instant::now(), cpu_seconds(site.server().id()));
                let loaded = load_many_costly(browser, fields);
                let used = loaded.and_then(|()| Ok(cpu_seconds(site.server().id())? - used?));
                (used, began.elapsed())
            });
            let (plain, read, took) = (plain?, read?, took.as_secs_f64());
            println!(
                "{read:.2} s of the processor for 48 pages in {took:.2} s, {plain:.2} s if they are none"
            );
            let most = plain + 0.5 + 0.15 * took;
            ensure!(
                read <= most,
                "{read:.2} s of the processor, not {most:.2} s"
            );
            let unread = served(site)?["unread_total"].as_u64().context("a number")?;
            println!("{unread} of 48 pages were not read to their end");
            ensure!(unread > 0, "all of 48 pages were read");
            // The share comes back with time.
            thread::sleep(Duration::from_secs(8));
            load_costly(browser, "later", HTML)?;
            super::expect_once(origin, &["/o/first-later", "/o/last-later"])?;
            ensure!(
                served(site)?["unread_total"] == unread,
                "the share has not come back"
            );
            ensure!(figure(site, "used_total")? > 4, "nothing was used");
            Ok(())
        },
    );
}

/// Memory that a server has for reading one client's pages, bytes.
const READING: u64 = 32 << 20;

/// Asks for a page whose reading takes a window of 8 MiB, reads what comes of it, and keeps it open.
fn open_window(browser: &Browser, name: &str) -> Result<Speech> {
    let mut stream = browser.connect()?;
    let head = get(&format!("/window/{name}"), HTML);
    let expected = answer(&head);
    stream.write_all(head.as_bytes())?;
    ensure!(
        read_exactly(&mut stream, expected.len())? == expected,
        "another page"
    );
    Ok(stream)
}

#[test]
fn pages_of_one_client_are_read_in_so_much_memory() {
    on_site(
        "pages that take memory to read",
        Over::Clear,
        as_it_is,
        Duration::ZERO,
        |site, origin, browser| {
            browser.load("before-7", 7)?;
            let number =
                |name: &str| -> Result<u64> { served(site)?[name].as_u64().context("a number") };
            let before = resident(site.server().id())?;
            let mut open = Vec::new();
            for page in 0..16 {
                open.push(open_window(browser, &page.to_string())?);
                // Reading has its share of the processor as well, which comes back.
                thread::sleep(Duration::from_secs(1));
            }
            let grown = resident(site.server().id())?.saturating_sub(before);
            let (crowded, unread) = (number("crowded_total")?, number("unread_total")?);
            println!("{grown} bytes more for 16 pages, of which {crowded} were read no further");
            ensure!(grown < READING, "{grown} bytes more");
            ensure!(
                crowded == 13 && unread == 0,
                "{crowded} crowded, {unread} unread: not three of the longest windows"
            );
            // The memory of pages that have left is for others.
            for page in open {
                if let Speech::Clear(socket) = page {
                    reset(socket)?;
                }
            }
            thread::sleep(2 * S);
            let _open = open_window(browser, "later")?;
            thread::sleep(2 * S);
            let crowded = number("crowded_total")?;
            ensure!(crowded == 13, "a window is held for nobody");
            super::expect_once(origin, &["/o/window-0", "/o/window-later"])
        },
    );
}

#[test]
fn a_client_that_is_revoked_in_a_page_hears_no_more_of_it() {
    for over in BOTH {
        on_site(
            "a client that is revoked",
            over,
            as_it_is,
            Duration::ZERO,
            |site, origin, browser| {
                let mut stream = browser.connect()?;
                stream.write_all(get("/large", HTML).as_bytes())?;
                stream.read_exact(&mut [0; 100_000])?;
                let file = site.topology.directory().join("server.toml");
                let text = fs::read_to_string(&file)?;
                let others = text.replace(
                    "public_key = \"",
                    "public_key = \"hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=\" #",
                );
                ensure!(others != text, "no key in the file");
                fs::write(&file, others)?;
                reload(site, "reloaded")?;
                read_to_reset(&mut stream)?;
                wait_until_left(origin, SOON)
            },
        );
    }
}

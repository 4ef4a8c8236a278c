//! Origins that stall or say nothing, more pages than are fetched at one time, and objects that are asked for otherwise.

use std::io::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bentpipe_testbed::peer::read_exactly;
use bentpipe_testbed::privileged;
use bentpipe_testbed::site::Site;

use super::S;
use super::browser::{Browser, HTML, exchange, get};
use super::cases::{BOTH, as_it_is, figure, on_both, on_site, served};
use super::origin::{CAMERA, Origin, answer, page};
use super::sealed::{AS_IT_SHOULD_BE, Sealed};
use super::speech::{Over, Speech};

/// Time for which a server waits for an object whose origin says nothing.
const SILENCE: Duration = Duration::from_secs(20);

/// Time for which a client waits for an object that was promised while nothing comes of its page.
const PATIENCE: Duration = Duration::from_secs(6);

/// Time for which a client waits for an object that a hub has promised while nothing comes of it.
const SEALED_PATIENCE: Duration = Duration::from_secs(3);

/// Time for which a client waits for an object of which nothing comes while others of its page neither begin nor end.
const TURN: Duration = Duration::from_secs(30);

/// Objects of one page that are fetched ahead.
const MOST_OBJECTS: u64 = 64;

/// Pages of one client whose objects are fetched at one time.
const MOST_PAGES: u64 = 16;

/// Time for which a browser that has ended its direction is waited with.
const LEFT: Duration = Duration::from_secs(20);

/// Machine's own time.
const SLACK: Duration = Duration::from_secs(5);

/// The answer to a GET, which has to be the origin's to the last byte.
fn expect_answer(stream: &mut Speech, target: &str, fields: &str) -> Result<()> {
    let head = get(target, fields);
    let expected = answer(&head);
    stream.write_all(head.as_bytes())?;
    let heard = read_exactly(stream, expected.len())?;
    ensure!(
        heard == expected,
        "{target}: {:?}",
        String::from_utf8_lossy(&heard[..heard.len().min(200)])
    );
    Ok(())
}

#[test]
fn an_object_that_stalls_is_asked_for_after_all_and_delays_no_other() {
    on_both(
        "an object that stalls",
        Duration::ZERO,
        |site, origin, browser| {
            objects_stall(origin, browser, PATIENCE)?;
            let failed = figure(site, "failed_total")?;
            ensure!(failed == 2, "{failed} failures counted");
            let causes = served(site)?["failed_causes"].clone();
            ensure!(causes["silent"] == 2, "{causes}");
            Ok(())
        },
    );
}

#[test]
fn a_sealed_object_that_stalls_is_asked_for_after_all_and_delays_no_other() {
    if !privileged("a sealed object that stalls") {
        return;
    }
    Sealed::start(&AS_IT_SHOULD_BE).expect("a site").run(|it| {
        objects_stall(&it.web, &it.browser, SEALED_PATIENCE)?;
        let failed = it.origin_figures()?["objects_failed_total"].clone();
        ensure!(failed == 2, "{failed} objects were given up by the origin");
        Ok(())
    });
}

/// Loads a page of which one object stops in its middle and another says nothing, as long as they are fetched ahead; each is asked for by a
/// connection of its own.
fn objects_stall(origin: &Origin, browser: &Browser, patience: Duration) -> Result<()> {
    let (mut stream, began) = (browser.connect()?, Instant::now());
    exchange(&mut stream, &get("/names/stall+1,mute+1,o+good", HTML))?;
    let ask = |target: &str| -> Result<()> {
        expect_answer(&mut browser.connect()?, target, "")?;
        let took = began.elapsed();
        ensure!(
            took >= patience,
            "{target}: {took:?}: the object was not waited for"
        );
        ensure!(
            took < patience + 4 * S + SLACK,
            "{target} took {took:?} to come"
        );
        let asked = origin.count(target);
        ensure!(
            asked == 2,
            "{target}: asked for {asked} times, not once ahead and once for the browser"
        );
        Ok(())
    };
    thread::scope(|scope| -> Result<()> {
        let asked = ["/stall/1", "/mute/1"].map(|target| scope.spawn(move || ask(target)));
        expect_answer(&mut stream, "/o/good", "")?;
        let took = began.elapsed();
        ensure!(took < 2 * S + SLACK, "the page took {took:?}");
        let mut joined = asked.into_iter();
        joined.try_for_each(|one| one.join().expect("no panic"))
    })?;
    thread::sleep(SILENCE);
    Ok(())
}

#[test]
fn an_object_behind_others_that_never_end_is_asked_for_after_all() {
    on_site(
        "objects that never end",
        Over::Clear,
        as_it_is,
        Duration::ZERO,
        |_, origin, browser| {
            let (mut stream, began) = (browser.connect()?, Instant::now());
            let cameras: Vec<_> = (0..6).map(|number| format!("trickle+{number}")).collect();
            let page = format!("/names/{},o+behind", cameras.join(","));
            exchange(&mut stream, &get(&page, HTML))?;
            expect_answer(&mut stream, "/o/behind", "")?;
            let took = began.elapsed();
            println!("behind objects that never end: {took:?}");
            ensure!(took < TURN + 4 * S + SLACK, "the object took {took:?}");
            super::expect_once(origin, &["/trickle/5", "/o/behind"])
        },
    );
}

#[test]
fn the_picture_of_a_camera_moves_at_once() {
    on_both(
        "a camera in a page",
        Duration::ZERO,
        |_, origin, browser| {
            let mut stream = browser.connect()?;
            exchange(&mut stream, &get("/names/camera+1,o+beside", HTML))?;
            let mut camera = browser.connect()?;
            let began = Instant::now();
            camera.write_all(get("/camera/1", "").as_bytes())?;
            let heard = read_exactly(&mut camera, CAMERA.len() + 300)?;
            let took = began.elapsed();
            println!("the first pictures of a camera: {took:?}");
            ensure!(heard.starts_with(CAMERA));
            ensure!(took < 2 * S + SLACK, "the pictures took {took:?}");
            ensure!(origin.count("/camera/1") == 2, "not asked for ahead");
            expect_answer(&mut stream, "/o/beside", "")?;
            super::expect_once(origin, &["/o/beside"])
        },
    );
}

#[test]
fn an_origin_that_says_nothing_keeps_nobody_else_and_is_left_with_its_browser() {
    on_both("a silent origin", Duration::ZERO, |_, origin, browser| {
        origin_says_nothing(origin, browser)?;
        // Connections that have answered wait for others a few seconds.
        wait_until(LEFT, || match origin.open() {
            0 => None,
            open => Some(format!("{open} connections to the origin are open")),
        })
    });
}

#[test]
fn a_silent_web_server_of_a_sealed_page_keeps_nobody_else_and_is_left_with_its_browser() {
    if !privileged("a silent web server behind an origin") {
        return;
    }
    Sealed::start(&AS_IT_SHOULD_BE)
        .expect("a site")
        .run(|it| origin_says_nothing(&it.web, &it.browser));
}

/// Asks for a page that does not come, loads another beside it, and ends the browser's direction of the first.
fn origin_says_nothing(origin: &Origin, browser: &Browser) -> Result<()> {
    let mut silent = browser.connect()?;
    silent.write_all(get("/silent", HTML).as_bytes())?;
    browser.load("beside-7", 7)?;
    wait_until(SLACK, || match origin.silent() {
        1 => None,
        _ => Some("the origin was not asked".into()),
    })?;
    silent.finish()?;
    // A browser that has ended its direction is waited with.
    wait_until(LEFT + SLACK, || match origin.silent() {
        0 => None,
        _ => Some("the origin is still asked for the page".into()),
    })
}

/// Waits until `lacks` names nothing more that is amiss.
fn wait_until(patience: Duration, lacks: impl Fn() -> Option<String>) -> Result<()> {
    let deadline = Instant::now() + patience;
    while let Some(fault) = lacks() {
        ensure!(Instant::now() < deadline, fault);
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Loads a page of slow objects, and then these.
fn load_slowly(browser: &Browser, number: usize) -> Result<()> {
    let mut stream = browser.connect()?;
    let objects: Vec<_> = (0..8).map(|i| format!("slow+{number}-{i}")).collect();
    let head = get(&format!("/names/{}", objects.join(",")), HTML);
    exchange(&mut stream, &head)?;
    for object in objects {
        let target = format!("/{}", object.replace('+', "/"));
        expect_answer(&mut stream, &target, "")?;
    }
    Ok(())
}

#[test]
fn more_pages_than_are_fetched_at_one_time_load_all_the_same() {
    on_site(
        "twenty pages at once",
        Over::Clear,
        as_it_is,
        Duration::ZERO,
        |site, origin, browser| {
            let loaded: Vec<Result<()>> = thread::scope(|scope| {
                let all: Vec<_> = (0..20)
                    .map(|number| scope.spawn(move || load_slowly(browser, number)))
                    .collect();
                let joined = all.into_iter();
                joined.map(|one| one.join().expect("no panic")).collect()
            });
            loaded.into_iter().collect::<Result<Vec<_>>>()?;
            thread::sleep(Duration::from_secs(2));
            let figures = served(site)?;
            ensure!(figures["pages_total"] == MOST_PAGES, "{figures}");
            ensure!(figures["crowded_total"] == 20 - MOST_PAGES, "{figures}");
            ensure!(figures["promised_total"] == 8 * MOST_PAGES, "{figures}");
            let most = origin.most_ahead();
            ensure!(most <= 6 * 16, "{most} objects at one time");
            ensure!(
                most > 6 * 8,
                "{most} objects at one time: nothing was tried"
            );
            Ok(())
        },
    );
}

#[test]
fn a_page_that_names_ten_thousand_objects_is_whole_and_few_of_them_come_ahead() {
    for over in BOTH {
        on_site(
            "ten thousand objects",
            over,
            as_it_is,
            Duration::ZERO,
            |site, origin, browser| names_many(site, origin, browser),
        );
    }
    if privileged("ten thousand objects behind an origin") {
        Sealed::start(&AS_IT_SHOULD_BE)
            .expect("a site")
            .run(|it| names_many(&it.site, &it.web, &it.browser));
    }
}

fn names_many(site: &Site, origin: &Origin, browser: &Browser) -> Result<()> {
    let (name, objects) = ("many-10000", 10_000);
    let mut stream = browser.connect()?;
    let body = exchange(&mut stream, &get(&format!("/page/{name}"), HTML))?;
    ensure!(body == page(name, objects).as_bytes(), "another page");
    // All that is promised has come.
    thread::sleep(6 * S);
    let promised = figure(site, "promised_total")?;
    ensure!(promised == MOST_OBJECTS, "{promised} objects promised");
    let asked = origin.asked();
    let is_ahead = |head: &&String| head.contains("sec-purpose: prefetch");
    let ahead = asked.iter().filter(is_ahead).count() as u64;
    ensure!(ahead == MOST_OBJECTS, "{ahead} objects fetched ahead");
    for target in ["/o/many-10000-63", "/o/many-10000-64"] {
        expect_answer(&mut stream, target, "User-Agent: test\r\n")?;
        ensure!(origin.count(target) == 1, "{target}: asked for again");
    }
    ensure!(figure(site, "used_total")? == 1, "not the first 64");
    Ok(())
}

#[test]
fn one_connection_loads_page_after_page() {
    BOTH.into_iter().for_each(page_after_page);
}

fn page_after_page(over: Over) {
    on_site(
        "page after page",
        over,
        as_it_is,
        Duration::ZERO,
        |site, origin, browser| {
            let mut stream = browser.connect()?;
            for number in 0..5 {
                let name = format!("p{number}-4");
                let body = exchange(&mut stream, &get(&format!("/page/{name}"), HTML))?;
                ensure!(body == page(&name, 4).as_bytes(), "{name}: another page");
                for i in 0..4 {
                    let target = format!("/o/{name}-{i}");
                    expect_answer(&mut stream, &target, "User-Agent: test\r\n")?;
                    ensure!(origin.count(&target) == 1, "{target}");
                }
            }
            ensure!(figure(site, "pages_total")? == 5);
            ensure!(figure(site, "used_total")? == 20);
            let (used, wasted) = (
                figure(site, "used_bytes_total")?,
                figure(site, "wasted_bytes_total")?,
            );
            ensure!(
                used > 200_000 && wasted == 0,
                "{used} used, {wasted} wasted"
            );
            Ok(())
        },
    );
}

#[test]
fn what_is_asked_for_otherwise_comes_from_the_origin() {
    BOTH.into_iter().for_each(asked_for_otherwise);
}

fn asked_for_otherwise(over: Over) {
    on_site(
        "objects that are asked for otherwise",
        over,
        as_it_is,
        Duration::ZERO,
        |site, origin, browser| {
            let mut stream = browser.connect()?;
            let mine = "Accept-Language: de\r\n";
            let page = "/names/o+part,o+condition,o+fresh,no-store,vary-star,language+1,language+2,chunked";
            exchange(&mut stream, &get(page, &format!("{HTML}{mine}")))?;
            // All that is promised has come, or failed.
            thread::sleep(3 * S);
            for (target, fields, times) in [
                ("/o/part", "Range: bytes=0-9\r\n", 2),
                ("/o/condition", "If-None-Match: \"a\"\r\n", 2),
                ("/o/fresh", "Cache-Control: no-cache\r\n", 2),
                ("/no-store", mine, 1),
                ("/no-store", mine, 2),
                ("/vary-star", mine, 2),
                ("/language/1", mine, 1),
                ("/language/2", "Accept-Language: fr\r\n", 2),
                ("/chunked", mine, 1),
            ] {
                expect_answer(&mut stream, target, fields)?;
                let asked = origin.count(target);
                ensure!(
                    asked == times,
                    "{target}: the origin was asked {asked} times"
                );
            }
            ensure!(figure(site, "used_total")? == 3);
            // One may answer nobody, as the server sees; the others were asked for otherwise.
            ensure!(figure(site, "failed_total")? == 1);
            ensure!(figure(site, "unequal_total")? == 4);
            ensure!(figure(site, "wasted_bytes_total")? > 30_000);
            Ok(())
        },
    );
}

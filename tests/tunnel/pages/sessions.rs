//! Several sessions of DSSL at one time: with one web server, whose connections they share, and with several, each behind an origin
//! of its own.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::Process;
use bentpipe_testbed::peer::payload;
use bentpipe_testbed::privileged;
use bentpipe_testbed::route::Place;

use super::browser::{Browser, HTML, exchange, get};
use super::cases::{figure, sealed};
use super::origin::{OBJECT, Origin, SLOW};
use super::sealed::{AS_IT_SHOULD_BE, Sealed, load, public};
use super::speech::Speech;
use crate::BENTPIPE;

/// Address of the second web server.
const SECOND: Ipv4Addr = Ipv4Addr::new(10, 30, 0, 77);

/// Time that a stop waits for open flows, as the client has it by default.
const DRAIN: Duration = Duration::from_secs(10);

/// A page of two objects for which the web server takes [`SLOW`].
const SLOW_PAGE: &str = "/names/slow+1,slow+2";

/// Loads an object over the connection, as an image.
fn image(stream: &mut Speech, path: &str) -> Result<()> {
    let body = exchange(stream, &get(path, ""))?;
    ensure!(body == payload(OBJECT), "another object {path}");
    Ok(())
}

#[test]
fn a_page_does_not_end_the_objects_of_another_session() {
    if !privileged("sessions with one server") {
        return;
    }
    Sealed::start(&AS_IT_SHOULD_BE).expect("a site").run(|it| {
        // Both have a connection to the origin, and the hub proves its key.
        thread::scope(|scope| -> Result<()> {
            let sessions =
                ["one-2", "other-2"].map(|name| scope.spawn(move || load(&it.browser, name, 2)));
            sessions
                .into_iter()
                .try_for_each(|session| session.join().expect("no panic"))
        })?;
        let (mut one, mut other) = (it.browser.connect()?, it.browser.connect()?);
        exchange(&mut one, &get(SLOW_PAGE, HTML))?;
        // Its objects are promised by now, and do not come yet.
        thread::sleep(Duration::from_secs(1));
        exchange(&mut other, &get("/names/o+third", HTML))?;
        image(&mut other, "/o/third")?;
        // Whoever asks before they come loses patience with the hub.
        thread::sleep(SLOW + Duration::from_secs(1));
        image(&mut one, "/slow/1")?;
        image(&mut one, "/slow/2")?;
        for path in ["/slow/1", "/slow/2", "/o/third"] {
            let asked = it.web.count(path);
            ensure!(asked == 1, "{path}: asked for {asked} times");
        }
        let used = figure(&it.site, "used_total")?;
        ensure!(used == 7, "{used} objects used of 7");
        Ok(())
    });
}

/// A second web server, with an origin of its own before it.
fn second(it: &Sealed) -> Result<(Origin, Process, Browser)> {
    let behind = SocketAddr::new(IpAddr::from([127, 0, 0, 1]), 8081);
    let place = Place::from(it.site.topology.web());
    let server = Origin::start(&place, behind, None, Duration::ZERO)?;
    let (origin, browser) = second_origin(it, behind)?;
    Ok((server, origin, browser))
}

/// A second origin, before the web server `behind`, and a browser of its pages.
pub(super) fn second_origin(it: &Sealed, behind: SocketAddr) -> Result<(Process, Browser)> {
    let web = it.site.topology.web();
    let address = format!("{SECOND}/24");
    web.run("ip", &["address", "add", &address, "dev", "eth0"])?;
    let hub = public(&fs::read(it.site.topology.directory().join("server.key"))?)?;
    let listen = SocketAddr::from((SECOND, 443));
    let text = format!(
        "[origin]\nlisten = \"{listen}\"\nupstream = \"http://{behind}\"\ncertificate = \"site.pem\"\nkey = \"site.key\"\n\
         hubs = [\"{hub}\"]\n"
    );
    let file = it.certified.path("second.toml");
    fs::write(&file, text)?;
    let mut command = Command::new(BENTPIPE);
    command.args(["origin", "--config"]).arg(&file);
    let origin = it.site.topology.spawn_in(web, command)?;
    origin.wait_for_line("ready", Duration::from_secs(10))?;
    let browser = Browser {
        origin: listen,
        ..it.browser.clone()
    };
    Ok((origin, browser))
}

#[test]
fn sessions_with_several_servers_have_their_objects_ahead() {
    if !privileged("sessions with several servers") {
        return;
    }
    Sealed::start(&AS_IT_SHOULD_BE).expect("a site").run(|it| {
        let (other, _origin, browser) = second(it)?;
        thread::scope(|scope| -> Result<()> {
            let sessions = [(&it.browser, "first"), (&browser, "second")].map(|(browser, name)| {
                scope.spawn(move || {
                    load(browser, &format!("{name}-5"), 5)?;
                    load(browser, &format!("{name}-6"), 6)
                })
            });
            sessions
                .into_iter()
                .try_for_each(|session| session.join().expect("no panic"))
        })?;
        for (server, name) in [(&it.web, "first"), (&other, "second")] {
            for n in [5, 6] {
                super::expect_each_once(server, &format!("{name}-{n}"), n)?;
            }
            // Nothing of one server is asked of the other.
            let strange = server.asked().into_iter().find(|head| !head.contains(name));
            ensure!(strange.is_none(), "{name}: {strange:?}");
        }
        let used = figure(&it.site, "used_total")?;
        ensure!(used == 22, "{used} objects used of 22");
        let sessions = sealed(&it.site)?["sessions_total"].as_u64();
        ensure!(sessions.context("a number")? >= 2, "{sessions:?} sessions");
        Ok(())
    });
}

#[test]
fn a_stop_does_not_wait_for_connections_that_no_browser_uses() -> Result<()> {
    if !privileged("a stop beside connections that wait") {
        return Ok(());
    }
    let mut it = Sealed::start(&AS_IT_SHOULD_BE)?;
    load(&it.browser, "last-2", 2)?;
    let began = Instant::now();
    it.site.stop_client()?;
    let took = began.elapsed();
    ensure!(took < DRAIN / 2, "the client took {took:?} to stop");
    Ok(())
}

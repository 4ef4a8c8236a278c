//! A client that stops while a browser is still reading: what has been asked for is answered whole, and the connection ends in order.

use std::io::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bentpipe_testbed::edit::edit;
use bentpipe_testbed::peer::{payload, read_to_eof};
use bentpipe_testbed::site::Site;
use rustix::process::Signal;

use super::browser::{Browser, get};
use super::cases::{BOTH, as_it_is, on_site};
use super::origin::LONG;
use super::speech::{NAME, Speech};

/// Time in which something changes on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// Waits until the server has given the client all of the answer.
fn until_answered(site: &Site) -> Result<()> {
    let deadline = Instant::now() + SOON;
    loop {
        let status = site.client_report()?;
        let (asked, open) = (&status["web"]["requests_total"], &status["flows"]["active"]);
        if asked == 1 && open == 0 {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{asked} asked, {open} flows");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A browser asks for a long object and reads it once the client has been told to stop.
fn read_from_a_stopping_client(site: &mut Site, browser: &Browser) -> Result<()> {
    site.stop_client()?;
    let longer = "drain_timeout = \"60 s\"";
    edit(&site.client_file(), "drain_timeout = \"5 s\"", longer)?;
    site.start_client()?;
    let [mut route, _] = site.routes();
    route.patience = SOON;
    let socket = route.connect_slowly(browser.origin)?;
    let mut stream = Speech::browser(socket, browser.tls.as_ref(), NAME)?;
    stream.write_all(get("/long", "").as_bytes())?;
    until_answered(site)?;
    site.client().signal(Signal::TERM)?;
    site.client().wait_for_line("stopping", SOON)?;
    // More than a client needs that has nothing to wait for.
    let _ = site.client().wait(Duration::from_secs(3));
    let answer = read_to_eof(&mut stream)?;
    ensure!(
        answer.ends_with(&payload(LONG)),
        "{} bytes of another object",
        answer.len()
    );
    let status = site.client().wait(SOON)?;
    ensure!(status.code() == Some(0), "stopped with {status}");
    Ok(())
}

#[test]
fn a_browser_gets_all_of_an_answer_from_a_client_that_stops() {
    for over in BOTH {
        on_site(
            "a slow browser",
            over,
            as_it_is,
            Duration::ZERO,
            |site, _, browser| read_from_a_stopping_client(site, browser),
        );
    }
}

//! State of connections and of daemons that pages must not lose or share: authentication that holds for a connection, and a hub that
//! reads its file again.

use std::io::Write as _;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use bentpipe_testbed::peer::read_to_reset;
use bentpipe_testbed::reload::reload;

use super::browser::{Browser, HTML, exchange, get};
use super::cases::{BOTH, as_it_is, deny_origin, on_site};
use super::origin::SLOW;
use super::speech::Speech;
use super::{T, expect_each_once};

/// User that the origin takes `stream` for.
fn user(stream: &mut Speech, fields: &str) -> Result<String> {
    let body = exchange(stream, &get("/whoami", fields))?;
    Ok(String::from_utf8(body)?)
}

fn is(stream: &mut Speech, fields: &str, expected: &str) -> Result<()> {
    let user = user(stream, fields)?;
    ensure!(user == expected, "{user} in the place of {expected}");
    Ok(())
}

#[test]
fn who_was_authenticated_on_a_connection_is_nobody_else() {
    for over in BOTH {
        on_site(
            "connection-bound users",
            over,
            as_it_is,
            T,
            |_, _, browser| shares_no_user(browser),
        );
    }
}

fn shares_no_user(browser: &Browser) -> Result<()> {
    let shown = |name: &str| format!("Authorization: NTLM {name}\r\n");
    let mut alice = browser.connect()?;
    is(&mut alice, "", "nobody")?;
    is(&mut alice, &shown("alice"), "alice")?;
    is(&mut alice, "", "alice")?;
    let mut bob = browser.connect()?;
    for _ in 0..3 {
        is(&mut bob, "", "nobody")?;
    }
    is(&mut bob, &shown("bob"), "bob")?;
    is(&mut alice, "", "alice")?;
    is(&mut bob, "", "bob")?;
    // What either leaves behind is nobody's.
    drop((alice, bob));
    for _ in 0..3 {
        is(&mut browser.connect()?, "", "nobody")?;
    }
    Ok(())
}

#[test]
fn a_hub_that_reads_its_file_again_breaks_no_page() {
    for over in BOTH {
        on_site(
            "a reload during a page",
            over,
            as_it_is,
            T,
            |site, origin, browser| {
                let (name, objects) = ("again-40", 40);
                let loading = browser.clone();
                let loads = thread::spawn(move || loading.load(name, objects));
                while !loads.is_finished() {
                    reload(site, "reloaded")?;
                }
                loads.join().expect("no panic")?;
                expect_each_once(origin, name, objects)
            },
        );
    }
}

#[test]
fn objects_that_a_client_may_not_reach_any_more_are_not_fetched() {
    for over in BOTH {
        on_site(
            "a right that is taken away in a page",
            over,
            as_it_is,
            Duration::ZERO,
            |site, origin, browser| {
                let objects: Vec<_> = (1..=12).map(|number| format!("slow+{number}")).collect();
                let page = get(&format!("/names/{}", objects.join(",")), HTML);
                exchange(&mut browser.connect()?, &page)?;
                thread::sleep(Duration::from_secs(1));
                let asked = || origin.asked().len();
                let before = asked();
                ensure!(before == 7, "{before} requests: not a page and six objects");
                deny_origin(site)?;
                // Those six have come by then, and the others would be asked for.
                thread::sleep(SLOW + Duration::from_secs(2));
                ensure!(asked() == before, "{} requests, not {before}", asked());
                let mut stream = browser.connect()?;
                stream.write_all(get("/slow/12", "").as_bytes())?;
                read_to_reset(&mut stream)?;
                ensure!(asked() == before, "the browser's request has come");
                Ok(())
            },
        );
    }
}

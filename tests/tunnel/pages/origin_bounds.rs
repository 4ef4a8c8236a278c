//! What hubs and clients have of an origin of DSSL, and no more.

use std::fs;
use std::io::{Read as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bentpipe_sealed::dssl::{HubFrame, SessionId};
use bentpipe_testbed::peer::payload;
use bentpipe_testbed::privileged;
use bentpipe_tunnel::engine::identity::PrivateKey;

use super::browser::{HTML, exchange, get};
use super::origin::{OBJECT, SLOW};
use super::origin_reading::Terminal;
use super::origins::Alone;
use super::sealed::{AS_IT_SHOULD_BE, Sealed};

/// Sessions of one hub connection.
const MOST_SESSIONS: u8 = 64;

/// Time for which a session that is not there yet is waited for, and then refused.
const HOLD: Duration = Duration::from_secs(3);

#[test]
fn a_hub_that_asks_for_more_sessions_than_it_may_have_is_ended() -> Result<()> {
    let alone = Alone::start()?;
    for (sessions, ends) in [(MOST_SESSIONS, false), (MOST_SESSIONS + 1, true)] {
        let mut hub = alone.connect_as(&alone.hub)?;
        let began = Instant::now();
        let mut asks = Vec::new();
        for number in 0..sessions {
            HubFrame::KeyRequest(SessionId::new([number; 16])).encode(&mut asks);
        }
        hub.write_all(&asks)?;
        hub.flush()?;
        let heard = hub.read(&mut [0; 16]);
        let took = began.elapsed();
        ensure!(
            ends != matches!(heard, Ok(1..)),
            "{sessions} sessions: heard {heard:?}"
        );
        ensure!(
            ends == (took < HOLD),
            "{sessions} sessions: heard after {took:?}"
        );
    }
    // All of the first connection, and one of the second.
    alone.wait_for_figure("/origin/refused_total/hubs", u64::from(MOST_SESSIONS) + 1)
}

#[test]
fn a_client_that_is_not_listed_has_its_pages_without_objects() -> Result<()> {
    let alone = Alone::start()?;
    let (listed, other) = (PrivateKey::generate()?, PrivateKey::generate()?);
    let file = alone.certified.path("origin.toml");
    let text = fs::read_to_string(&file)?;
    fs::write(
        &file,
        format!("{text}clients = [\"{}\"]\n", listed.public()),
    )?;
    alone.reload("reloaded: certificate")?;
    for (key, sessions) in [(other, 0), (listed, 1)] {
        Terminal::connect_as(&alone, [127, 0, 0, 2], &key)?.load("/page/x-3")?;
        alone.wait_for_figure("/origin/refused_total/unlisted_clients", 1)?;
        alone.wait_for_figure("/origin/sessions_total", sessions)?;
    }
    Ok(())
}

#[test]
fn of_a_sealed_page_six_objects_are_fetched_at_one_time() {
    if !privileged("slow objects of a sealed page") {
        return;
    }
    Sealed::start(&AS_IT_SHOULD_BE).expect("a site").run(|it| {
        let objects: Vec<_> = (0..12).map(|number| format!("slow+{number}")).collect();
        let mut stream = it.browser.connect()?;
        let page = get(&format!("/names/{}", objects.join(",")), HTML);
        exchange(&mut stream, &page)?;
        // Whoever asks before they come loses patience with the hub.
        thread::sleep(3 * SLOW);
        for number in 0..12 {
            let target = format!("/slow/{number}");
            let body = exchange(&mut stream, &get(&target, ""))?;
            ensure!(body == payload(OBJECT), "{target}: another object");
            super::expect_once(&it.web, &[&target])?;
        }
        let most = it.web.most_ahead();
        ensure!(most == 6, "{most} objects at one time");
        Ok(())
    });
}

//! Pages of DSSL whose hub is refused by the origin's machine, or dies, and what is no page.

use std::io::{Read as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use bentpipe_emulator::topology::WEB;
use bentpipe_testbed::peer::{read_exactly, read_to_the_end};
use bentpipe_testbed::privileged;

use super::altering::Harm;
use super::browser::{HTML, exchange, get};
use super::cases::{deny_origin, figure, served};
use super::origin::answer;
use super::sealed::{AS_IT_SHOULD_BE, Case, Sealed, load};

/// Time for a handshake to fail, of which the server gives it 15 s.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn a_page_loads_where_its_hub_is_turned_away() {
    if !privileged("a hub that is turned away") {
        return;
    }
    // The first connection to the origin is the hub's.
    let case = Case {
        mode: "two-phase",
        ..AS_IT_SHOULD_BE
    };
    Sealed::start(&case).expect("a site").run(|it| {
        let table = format!(
            "add table inet away; \
             add chain inet away out {{ type filter hook output priority 0; }}; \
             add rule inet away out ip daddr {WEB} tcp dport 443 tcp flags & (syn | ack) == syn quota until 60 bytes counter reject with tcp reset"
        );
        let gateway = it.site.topology.gateway();
        gateway.run("nft", &[&table])?;
        load(&it.browser, "away-3", 3)?;
        let turned = gateway.run("nft", &["list", "table", "inet", "away"])?;
        ensure!(turned.contains("counter packets 1"), "{turned}");
        let sessions = served(&it.site)?["sealed"]["sessions_total"].clone();
        ensure!(sessions == 0, "the hub has {sessions} sessions");
        let unreached = served(&it.site)?["sealed"]["unreached_total"].clone();
        ensure!(unreached == 1, "{unreached} counted");
        ensure!(
            it.site.logs().contains("cannot be reached as a hub of DSSL"),
            "nothing in the log"
        );
        ensure!(figure(&it.site, "used_total")? == 0, "objects came ahead");
        Ok(())
    });
}

#[test]
fn a_hub_whose_handshake_fails_counts_as_one_that_does_not_reach_the_origin() {
    if !privileged("a hub whose handshake fails") {
        return;
    }
    for (harm, why) in [
        // A reset or an end, whichever is first.
        (Harm::TurnedAway, ""),
        (Harm::Mute, "it does not answer in TLS"),
    ] {
        let case = Case {
            harm: Some(harm),
            ..AS_IT_SHOULD_BE
        };
        Sealed::start(&case).expect("a site").run(|it| {
            load(&it.browser, "alone-3", 3)?;
            let deadline = Instant::now() + PATIENCE;
            while served(&it.site)?["sealed"]["unreached_total"] == 0 {
                ensure!(Instant::now() < deadline, "{harm:?} is not counted");
                thread::sleep(Duration::from_millis(200));
            }
            let log = it.site.logs();
            let line = format!("cannot be reached as a hub of DSSL: {why}");
            ensure!(log.contains(&line), "no line `{line}`");
            ensure!(figure(&it.site, "used_total")? == 0, "objects came ahead");
            Ok(())
        });
    }
}

#[test]
fn a_hub_whose_client_may_not_reach_the_origin_counts_each_time() {
    if !privileged("a hub whose client may not reach the origin") {
        return;
    }
    Sealed::start(&AS_IT_SHOULD_BE).expect("a site").run(|it| {
        load(&it.browser, "before-1", 1)?;
        deny_origin(&it.site)?;
        // Of some the client has taken the stream back before its first frames were read: the page's own connection is denied, too.
        for tries in [24, 48] {
            for _ in 0..24 {
                // What the browser hears is another test's.
                let _ = load(&it.browser, "denied-1", 1);
            }
            let unreached = served(&it.site)?["sealed"]["unreached_total"].clone();
            println!("{unreached} of {tries}");
            if unreached.as_u64() >= Some(tries * 5 / 8) {
                return Ok(());
            }
        }
        bail!("less than five of eight are counted")
    });
}

#[test]
fn a_hub_that_dies_in_a_page_resets_it_and_the_next_one_loads() {
    if !privileged("death of a hub in a page") {
        return;
    }
    let mut it = Sealed::start(&AS_IT_SHOULD_BE).expect("a site");
    let mut die = || -> Result<()> {
        load(&it.browser, "before-2", 2)?;
        let mut stream = it.browser.connect()?;
        stream.write_all(get("/large", HTML).as_bytes())?;
        stream.read_exact(&mut [0; 100_000])?;
        it.site.kill_server()?;
        it.site.start_server()?;
        let (bytes, end) = read_to_the_end(&mut stream);
        ensure!(end.is_err(), "an end in order after {} bytes", bytes.len());
        Ok(())
    };
    let died = die();
    it.run(|it| {
        died?;
        load(&it.browser, "after-3", 3)?;
        load(&it.browser, "again-4", 4)?;
        super::expect_each_once(&it.web, "again-4", 4)
    });
}

#[test]
fn what_is_no_page_crosses_to_a_sealed_origin_to_the_last_byte() {
    if !privileged("other answers of a sealed origin") {
        return;
    }
    Sealed::start(&AS_IT_SHOULD_BE).expect("a site").run(|it| {
        let mut stream = it.browser.connect()?;
        exchange(
            &mut stream,
            &get("/names/more,chunked-3m,chunked-5m,endless+1,o+good", HTML),
        )?;
        for target in [
            "/more",
            "/chunked-3m",
            "/chunked-5m",
            "/endless/1",
            "/o/good",
        ] {
            let head = get(target, "");
            let expected = answer(&head);
            stream.write_all(head.as_bytes())?;
            let heard = read_exactly(&mut stream, expected.len())?;
            let begins = String::from_utf8_lossy(&heard[..heard.len().min(200)]);
            ensure!(heard == expected, "{target}: {begins:?}");
        }
        ensure!(it.web.count("/o/good") == 1, "it did not come ahead");
        let mut stream = it.browser.connect()?;
        let head = get("/upgrade", "Connection: Upgrade\r\nUpgrade: echo\r\n");
        stream.write_all(head.as_bytes())?;
        let switched = answer(&head);
        ensure!(read_exactly(&mut stream, switched.len())? == switched);
        for word in [b"\x00\x01web socket".as_slice(), b"another"] {
            stream.write_all(word)?;
            ensure!(read_exactly(&mut stream, word.len())? == word);
        }
        // A web server that gives up in the middle is heard as far as it went.
        let head = get("/short", "");
        let (bytes, _) = it.browser.hear(head.as_bytes())?;
        ensure!(
            bytes == answer(&head),
            "{:?}",
            String::from_utf8_lossy(&bytes)
        );
        Ok(())
    });
}

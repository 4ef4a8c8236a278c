//! Hubs that may not, or not any more, bring objects of a sealed page: it loads all the same, and all who are concerned hear why.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::WEB;
use bentpipe_testbed::peer::{payload, read_to_reset, read_to_the_end};
use bentpipe_testbed::privileged;
use bentpipe_testbed::reload::reload;
use bentpipe_tunnel::engine::identity::PrivateKey;
use rustix::process::Signal;

use super::browser::{Browser, HTML, exchange, get};
use super::cases::{figure, sealed, served};
use super::http2_alone::{WORD, hear_host, start_host};
use super::origin::OBJECT;
use super::sealed::{AS_IT_SHOULD_BE, Sealed, load};

/// Sessions that a hub has for one client at one time.
const MOST_SESSIONS: usize = 16;

/// Time for what takes a round trip or two.
const SOON: Duration = Duration::from_secs(10);

/// Number in this figure.
fn number(figures: &serde_json::Value, name: &str) -> Result<u64> {
    figures[name].as_u64().with_context(|| format!("{figures}"))
}

#[test]
fn more_sessions_than_a_hub_has_for_a_client_load_all_the_same() {
    if !privileged("more sessions than a hub has") {
        return;
    }
    Sealed::start(&AS_IT_SHOULD_BE).expect("a site").run(|it| {
        load(&it.browser, "first-1", 1)?;
        let browsers = MOST_SESSIONS + 8;
        let ready = Barrier::new(browsers);
        let loaded: Vec<Result<()>> = thread::scope(|scope| {
            let all: Vec<_> = (0..browsers)
                .map(|number| {
                    let ready = &ready;
                    scope.spawn(move || {
                        // All at one time: no page has the connection of another.
                        ready.wait();
                        load(&it.browser, &format!("{number}-2"), 2)
                    })
                })
                .collect();
            let joined = all.into_iter();
            joined.map(|one| one.join().expect("no panic")).collect()
        });
        loaded.into_iter().collect::<Result<Vec<_>>>()?;
        let hub = served(&it.site)?;
        ensure!(number(&hub, "crowded_total")? > 0, "{hub}");
        let log = it.site.logs();
        ensure!(
            log.contains("the client has 16 sessions of DSSL at this time"),
            "nothing in the log"
        );
        ensure!(figure(&it.site, "used_total")? > 2, "nothing came ahead");
        Ok(())
    });
}

#[test]
fn a_client_that_is_revoked_in_a_sealed_page_hears_no_more_of_it() {
    if !privileged("a client that is revoked in a sealed page") {
        return;
    }
    Sealed::start(&AS_IT_SHOULD_BE).expect("a site").run(|it| {
        load(&it.browser, "before-2", 2)?;
        let mut stream = it.browser.connect()?;
        stream.write_all(get("/large", HTML).as_bytes())?;
        stream.read_exact(&mut [0; 100_000])?;
        let file = it.site.topology.directory().join("server.toml");
        let text = fs::read_to_string(&file)?;
        let others = text.replace(
            "public_key = \"",
            "public_key = \"hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=\" #",
        );
        ensure!(others != text, "no key in the file");
        fs::write(&file, others)?;
        reload(&it.site, "reloaded")?;
        read_to_reset(&mut stream)?;
        let deadline = Instant::now() + SOON;
        while it.web.open() > 0 {
            ensure!(Instant::now() < deadline, "{} are open", it.web.open());
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    });
}

#[test]
fn a_hub_that_is_taken_off_the_list_in_a_page_brings_no_more_of_it() {
    if !privileged("a hub that is taken off the list") {
        return;
    }
    Sealed::start(&AS_IT_SHOULD_BE).expect("a site").run(|it| {
        load(&it.browser, "before-2", 2)?;
        let mut stream = it.browser.connect()?;
        exchange(&mut stream, &get("/names/slow+1,slow+2", HTML))?;
        // The objects are promised, and being fetched.
        thread::sleep(Duration::from_secs(1));
        let file = it.certified.path("origin.toml");
        let text = fs::read_to_string(&file)?;
        let other = PrivateKey::generate()?.public().to_string();
        let (begin, rest) = text.split_once("hubs = [\"").context("a list")?;
        let (_, end) = rest.split_once('"').context("a key")?;
        fs::write(&file, format!("{begin}hubs = [\"{other}\"{end}"))?;
        it.origin.signal(Signal::HUP)?;
        it.origin.wait_for_line("reloaded: certificate", SOON)?;
        for target in ["/slow/1", "/slow/2"] {
            let body = exchange(&mut stream, &get(target, ""))?;
            ensure!(body == payload(OBJECT), "{target}: another object");
        }
        ensure!(figure(&it.site, "used_total")? == 2, "objects came ahead");
        load(&it.browser, "after-3", 3)?;
        ensure!(figure(&it.site, "used_total")? == 2, "objects came ahead");
        let (own, hub) = (sealed(&it.site)?, served(&it.site)?["sealed"].clone());
        ensure!(number(&own, "keyless_total")? > 0, "the client: {own}");
        ensure!(number(&hub, "unlisted_total")? > 0, "the hub: {hub}");
        let log = it.origin.stderr_text();
        ensure!(log.contains("`hubs` does not list its server"), "{log}");
        Ok(())
    });
}

#[test]
fn a_listed_host_that_speaks_http2_alone_is_not_touched() {
    if !privileged("an origin of HTTP/2 alone") {
        return;
    }
    Sealed::start(&AS_IT_SHOULD_BE).expect("a site").run(|it| {
        it.origin.signal(Signal::TERM)?;
        it.origin.wait(Duration::from_secs(15))?;
        let host = start_host(&it.site, &*it.certified.ordinary()?)?;
        ensure!(host == SocketAddr::new(IpAddr::from(WEB), 443));
        let mut own = (*it.certified.trust()?).clone();
        own.alpn_protocols = [&b"h2"[..], b"http/1.1"].map(<[u8]>::to_vec).to_vec();
        let own = Arc::new(own);
        for _ in 0..2 {
            ensure!(
                hear_host(&it.site, host, own.clone())? == WORD,
                "other words"
            );
        }
        Ok(())
    });
}

#[test]
fn a_sealed_page_goes_on_when_the_ca_is_removed() {
    if !privileged("a CA that is removed in a sealed page") {
        return;
    }
    Sealed::start(&AS_IT_SHOULD_BE).expect("a site").run(|it| {
        let mut stream = it.browser.connect()?;
        exchange(&mut stream, &get("/names/o+1,o+2", HTML))?;
        fs::remove_dir_all(it.site.client_home().join("state").join("ca"))?;
        thread::sleep(Duration::from_secs(2));
        for target in ["/o/1", "/o/2"] {
            let body = exchange(&mut stream, &get(target, ""))?;
            ensure!(body == payload(OBJECT), "{target}: another object");
        }
        stream.write_all(get("/o/3", "Connection: close\r\n").as_bytes())?;
        let (_, end) = read_to_the_end(&mut stream);
        end?;
        // The next connection is the host's own.
        let browser = Browser {
            tls: Some(it.certified.trust()?),
            ..it.browser.clone()
        };
        load(&browser, "after-3", 3)
    });
}

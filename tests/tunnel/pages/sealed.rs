//! Pages of origins of DSSL: objects come ahead through a server that reads neither page nor object, and all that fails of it costs
//! speed and nothing else.

use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{Process, WEB};
use bentpipe_testbed::memory::{holds, memory};
use bentpipe_testbed::peer::{payload, read_to_the_end};
use bentpipe_testbed::privileged;
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{Site, SiteConfig, fast_geo};
use bentpipe_testbed::status::report;
use bentpipe_tunnel::engine::identity::PrivateKey;

use super::altering::{self, Harm};
use super::browser::{Browser, HTML, exchange, get};
use super::cases::{figure, sealed, served};
use super::certified::Certified;
use super::origin::{OBJECT, Origin, page};
use super::speech::NAME;
use super::trusted::trust_local;
use crate::BENTPIPE;

/// Cookie that nobody on the way may see.
const COOKIE: &str = "Cookie: canary=5c1b-in-no-memory-of-a-hub\r\n";

/// Part of [`COOKIE`].
const CANARY: &[u8] = b"canary=5c1b-in-no-memory-of-a-hub";

/// Field of the answers to all that [`load`] asks for.
const HEADER: &[u8] = b"X-Odd-CASE: 1\r\n";

/// Address of an origin that somebody stands before.
const BEHIND: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8443);

/// What a case may have otherwise.
pub(super) struct Case {
    pub(super) mode: &'static str,
    pub(super) hub: bool,
    /// The origin lists the server as a hub.
    pub(super) listed: bool,
    /// Harm that is done to what the origin tells the hub.
    pub(super) harm: Option<Harm>,
}

pub(super) const AS_IT_SHOULD_BE: Case = Case {
    mode: "quick",
    hub: true,
    listed: true,
    harm: None,
};

/// A site whose web server has an origin of DSSL before it.
pub(super) struct Sealed {
    pub(super) site: Site,
    pub(super) web: Origin,
    pub(super) origin: Process,
    pub(super) browser: Browser,
    pub(super) certified: Certified,
}

impl Sealed {
    pub(super) fn start(case: &Case) -> Result<Self> {
        let certified = Certified::new()?;
        let roots = certified.path("roots.pem");
        let tables = SiteConfig::new(BENTPIPE).client_tables;
        let config = SiteConfig {
            scenario: fast_geo(),
            server_tables: format!(
                "[web]\nhub = {}\n{}",
                case.hub,
                match case.hub {
                    true => format!("roots = {roots:?}\n"),
                    false => String::new(),
                }
            ),
            client_tables: format!(
                "{tables}[dssl]\norigins = [\"{NAME}\"]\nmode = \"{}\"\nroots = {roots:?}\n",
                case.mode
            ),
            ..SiteConfig::new(BENTPIPE)
        };
        let site = Site::start(config)?;
        let place = Place::from(site.topology.web());
        let behind = SocketAddr::new(IpAddr::from([127, 0, 0, 1]), 8080);
        let web = Origin::start(&place, behind, None, Duration::ZERO)?;
        let key = match case.listed {
            true => fs::read(site.topology.directory().join("server.key"))?,
            false => fs::read(site.client_home().join("client.key"))?,
        };
        let hub = public(&key)?;
        let listen = match &case.harm {
            Some(harm) => {
                let keys = (private(&key)?, &certified);
                altering::start(
                    &place,
                    (SocketAddr::new(IpAddr::from(WEB), 443), BEHIND),
                    keys,
                    *harm,
                )?;
                BEHIND
            }
            None => SocketAddr::new(IpAddr::from(WEB), 443),
        };
        let text = format!(
            "status_socket = \"origin.sock\"\n[origin]\nlisten = \"{listen}\"\nupstream = \"http://{behind}\"\n\
             certificate = \"site.pem\"\nkey = \"site.key\"\nhubs = [\"{hub}\"]\n"
        );
        let file = certified.path("origin.toml");
        fs::write(&file, text)?;
        let mut command = Command::new(BENTPIPE);
        command.args(["origin", "--config"]).arg(&file);
        let origin = site.topology.spawn_in(site.topology.web(), command)?;
        origin.wait_for_line("ready", Duration::from_secs(10))?;
        let browser = Browser {
            place: Place::from(site.topology.user()),
            origin: SocketAddr::new(IpAddr::from(WEB), 443),
            tls: Some(trust_local(&site)?),
        };
        Ok(Self {
            site,
            web,
            origin,
            browser,
            certified,
        })
    }

    /// Figures of the origin's `status`.
    pub(super) fn origin_figures(&self) -> Result<serde_json::Value> {
        Ok(report(BENTPIPE, &self.certified.path("origin.sock"))?["origin"].take())
    }

    /// Memory of the hub, which has nothing of what [`load`] has asked for, and been answered.
    pub(super) fn expect_hub_holds_nothing(&self) -> Result<Vec<u8>> {
        let hub = memory(self.site.server().id())?;
        let canaries: [(&str, &[u8]); 4] = [
            ("page", b"<p>The end.</p>"),
            ("cookie", CANARY),
            ("field of an answer", HEADER),
            ("object", &payload(OBJECT)[100..164]),
        ];
        for (what, canary) in canaries {
            ensure!(!holds(&hub, canary), "the hub's memory holds the {what}");
        }
        Ok(hub)
    }

    /// Runs `case`, and shows the logs if it fails.
    pub(super) fn run(self, case: impl FnOnce(&Self) -> Result<()>) {
        let result = case(&self);
        let fault = |error: anyhow::Error| {
            let (logs, origin) = (self.site.logs(), self.origin.stderr_text());
            format!("{error:#}\n{logs}--- log of the origin:\n{origin}")
        };
        assert!(result.is_ok(), "{}", fault(result.unwrap_err()));
    }
}

fn private(text: &[u8]) -> Result<PrivateKey> {
    let key = std::str::from_utf8(text)?.trim().parse();
    key.map_err(|_| anyhow::anyhow!("no private key"))
}

pub(super) fn public(private: &[u8]) -> Result<String> {
    let mut child = Command::new(BENTPIPE)
        .arg("pubkey")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()?;
    child.stdin.take().context("a pipe")?.write_all(private)?;
    let output = child.wait_with_output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Loads a page with the cookie by one connection, and its objects.
pub(super) fn load(browser: &Browser, name: &str, n: usize) -> Result<()> {
    let mut stream = browser.connect()?;
    let body = exchange(
        &mut stream,
        &get(&format!("/page/{name}"), &format!("{HTML}{COOKIE}")),
    )?;
    ensure!(body == page(name, n).as_bytes(), "another page");
    for i in 0..n {
        let body = exchange(&mut stream, &get(&format!("/o/{name}-{i}"), COOKIE))?;
        ensure!(body == payload(OBJECT), "another object {i}");
    }
    Ok(())
}

#[test]
fn sealed_objects_come_ahead_and_the_hub_sees_none() {
    if !privileged("sealed objects") {
        return;
    }
    for mode in ["quick", "two-phase", "full"] {
        let case = Case {
            mode,
            ..AS_IT_SHOULD_BE
        };
        Sealed::start(&case).expect("a site").run(|it| {
            for (name, n) in [("first-1", 1), ("second-10", 10)] {
                let began = std::time::Instant::now();
                load(&it.browser, name, n)?;
                println!("{mode}: {n} objects in {:?}", began.elapsed());
                for i in 0..n {
                    let path = format!("/o/{name}-{i}");
                    ensure!(
                        it.web.count(&path) == 1,
                        "{path}: {} times",
                        it.web.count(&path)
                    );
                }
            }
            let used = figure(&it.site, "used_total")?;
            ensure!(used >= 10, "{used} objects used of 11");
            let dropped = sealed(&it.site)?["dropped_total"]
                .as_u64()
                .unwrap_or_default();
            ensure!(dropped == 0, "{dropped} objects dropped");
            let hub = it.expect_hub_holds_nothing()?;
            ensure!(
                holds(&hub, b"/o/second-10-0"),
                "the hub has no links: nothing was looked at"
            );
            let own = memory(it.site.client().id())?;
            for canary in [CANARY, HEADER] {
                let text = String::from_utf8_lossy(canary);
                ensure!(holds(&own, canary), "the client's memory holds no {text}");
            }
            Ok(())
        });
    }
}

/// In the two-phase order the client waits for the hub's first answer, and not for the hub's connection.
#[test]
fn a_hub_answers_before_it_has_reached_the_origin() {
    if !privileged("a hub that is not connected yet") {
        return;
    }
    // TCP sends a SYN again after so long.
    const AGAIN: Duration = Duration::from_secs(1);
    let most = AGAIN - Duration::from_millis(300);
    // A busy machine adds to one load or the other.
    let waited = |[all_well, lost]: [Duration; 2]| lost >= all_well + most;
    let mut tries = (0..3).map(|_| waited(loads_with_and_without_a_loss()));
    assert!(!tries.all(|waited| waited), "it has waited three times");
}

/// Times of a page's load while all is well, and while the hub's SYN to the origin is lost.
fn loads_with_and_without_a_loss() -> [Duration; 2] {
    let case = Case {
        mode: "two-phase",
        ..AS_IT_SHOULD_BE
    };
    let mut times = [Duration::ZERO; 2];
    for (loses, took) in [false, true].into_iter().zip(&mut times) {
        Sealed::start(&case).expect("a site").run(|it| {
            let gateway = it.site.topology.gateway();
            if loses {
                // The first connection to the origin is the hub's.
                let table = format!(
                    "add table inet lost; \
                     add chain inet lost out {{ type filter hook output priority 0; }}; \
                     add rule inet lost out ip daddr {WEB} tcp dport 443 tcp flags & (syn | ack) == syn quota until 60 bytes counter drop"
                );
                gateway.run("nft", &[&table])?;
            }
            let began = std::time::Instant::now();
            load(&it.browser, "early-0", 0)?;
            *took = began.elapsed();
            if loses {
                let dropped = gateway.run("nft", &["list", "table", "inet", "lost"])?;
                ensure!(dropped.contains("counter packets 1"), "{dropped}");
            }
            Ok(())
        });
    }
    let [all_well, lost] = times;
    println!("{all_well:?}, and {lost:?} while the hub's SYN was lost");
    times
}

#[test]
fn a_page_loads_without_a_hub() {
    if !privileged("without a hub") {
        return;
    }
    // The origin does not list the server: K2 is for nobody.
    let refused = Case {
        listed: false,
        ..AS_IT_SHOULD_BE
    };
    for mode in ["quick", "full"] {
        let case = Case { mode, ..refused };
        Sealed::start(&case).expect("a site").run(|it| {
            load(&it.browser, "page-3", 3)?;
            let used = figure(&it.site, "used_total")?;
            ensure!(used == 0, "{used} objects used");
            let told =
                |says: &serde_json::Value, name: &str| says[name].as_u64().unwrap_or_default();
            let hub = served(&it.site)?["sealed"].clone();
            ensure!(told(&hub, "sessions_total") == 0, "the hub has K2");
            // Each of the three says why.
            ensure!(told(&hub, "unlisted_total") > 0, "the hub: {hub}");
            let own = sealed(&it.site)?;
            ensure!(told(&own, "keyless_total") > 0, "the client: {own}");
            let (site, origin) = (it.site.logs(), it.origin.stderr_text());
            for (log, line) in [
                (&site, "does not list this server as a hub of DSSL"),
                (&site, "the server brought no key of DSSL"),
                (&origin, "a hub that shows the key"),
                (&origin, "`hubs` does not list its server"),
            ] {
                ensure!(log.contains(line), "no line `{line}`");
            }
            Ok(())
        });
    }
    // The server is none: the browser's own connection goes to the origin as it is.
    let none = Case {
        hub: false,
        ..AS_IT_SHOULD_BE
    };
    Sealed::start(&none).expect("a site").run(|it| {
        let browser = Browser {
            tls: Some(it.certified.trust()?),
            ..it.browser.clone()
        };
        load(&browser, "page-3", 3)
    });
}

#[test]
fn what_is_no_plain_get_crosses_and_others_see_a_web_server() {
    if !privileged("other words to an origin") {
        return;
    }
    Sealed::start(&AS_IT_SHOULD_BE).expect("a site").run(|it| {
        let close = "Connection: close\r\n";
        let post =
            format!("POST /o/1 HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 5\r\n{close}\r\nhello");
        for words in [
            post,
            get("/chunked", close),
            get("/hints", close),
            get("/until-close", ""),
        ] {
            let mut stream = it.browser.connect()?;
            stream.write_all(words.as_bytes())?;
            let (bytes, end) = read_to_the_end(&mut stream);
            let expected = super::origin::answer(&words);
            ensure!(end.is_ok(), "{words}: {end:?}");
            ensure!(
                bytes == expected,
                "{words}: {:?}",
                String::from_utf8_lossy(&bytes[..bytes.len().min(200)])
            );
        }
        // Somebody who is in the web, and has no client.
        let near = Browser {
            place: Place::from(it.site.topology.web()),
            tls: Some(it.certified.trust()?),
            ..it.browser.clone()
        };
        load(&near, "near-2", 2)
    });
}

#[test]
fn a_web_server_without_dssl_is_not_touched() {
    if !privileged("a web server without DSSL") {
        return;
    }
    Sealed::start(&AS_IT_SHOULD_BE).expect("a site").run(|it| {
        it.origin.signal(rustix::process::Signal::TERM)?;
        it.origin.wait(Duration::from_secs(15))?;
        let place = Place::from(it.site.topology.web());
        let address = SocketAddr::new(IpAddr::from(WEB), 443);
        let _web = Origin::start(
            &place,
            address,
            Some(it.certified.ordinary()?),
            Duration::ZERO,
        )?;
        let browser = Browser {
            tls: Some(it.certified.trust()?),
            ..it.browser.clone()
        };
        load(&browser, "plain-2", 2)?;
        load(&browser, "plain-3", 3)?;
        ensure!(
            it.site.logs().contains("loads without DSSL"),
            "nothing in the log"
        );
        Ok(())
    });
}

#[test]
fn a_tunnel_that_was_down_says_nothing_of_a_host() -> Result<()> {
    if !privileged("a host behind a tunnel that was down") {
        return Ok(());
    }
    let mut it = Sealed::start(&AS_IT_SHOULD_BE)?;
    it.site.stop_server()?;
    // The client has heard the end, and has no tunnel.
    thread::sleep(Duration::from_secs(1));
    let browser = Browser {
        tls: Some(it.certified.trust()?),
        ..it.browser.clone()
    };
    let untouched = thread::spawn(move || load(&browser, "untouched-2", 2));
    thread::sleep(Duration::from_secs(1));
    it.site.start_server()?;
    untouched.join().expect("no panic")?;
    // A host that does not speak DSSL would not be asked for ten minutes.
    it.run(|it| {
        load(&it.browser, "back-2", 2)?;
        let used = figure(&it.site, "used_total")?;
        ensure!(used == 2, "{used} objects used");
        Ok(())
    });
    Ok(())
}

#[test]
fn an_origins_file_is_checked() {
    let check = |text: &str| {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("origin.toml");
        fs::write(&file, text).expect("the directory is ours");
        let output = Command::new(BENTPIPE)
            .arg("check")
            .arg(&file as &Path)
            .output();
        let output = output.expect("bentpipe");
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.code(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    };
    let certified = Certified::new().expect("a certificate");
    let [certificate, own] = ["site.pem", "site.key"].map(|name| certified.path(name));
    let with = |upstream: &str, hubs: &str| {
        format!(
            "[origin]\nlisten = \"127.0.0.1:443\"\nupstream = \"{upstream}\"\ncertificate = {certificate:?}\nkey = {own:?}\nhubs = [{hubs}]\n"
        )
    };
    let key = "\"hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=\"";
    let (code, said) = check(&with("http://127.0.0.1:8080", key));
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("a valid configuration of an origin"),
        "{said}"
    );
    let (code, said) = check(&format!(
        "{}proxy_protocol = true\n",
        with("http://127.0.0.1:8080", key)
    ));
    assert_eq!(code, Some(0), "{said}");
    for (upstream, hubs, fault) in [
        ("https://127.0.0.1", key, "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080", "", "`hubs` of `[origin]` is empty"),
    ] {
        let (code, said) = check(&with(upstream, hubs));
        assert_eq!(code, Some(3), "{said}");
        assert!(said.contains(fault), "{said}");
    }
}

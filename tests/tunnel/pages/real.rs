//! Pages of a real web server, nginx: each answer through the pair is that which the server gives without, and objects that were
//! promised are the right ones.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{Process, WEB};
use bentpipe_testbed::peer::read_exactly;
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{Site, SiteConfig, fast_geo};
use bentpipe_testbed::{installed, privileged};

use super::S;
use super::answers::{Answer, ask, shown, without_date, without_dates};
use super::browser::{Browser, HTML, get};
use super::cases::figure;
use super::certified::Certified;
use super::nginx::{Nginx, PAGES, objects, page};
use super::origin::Origin;
use super::sealed::{AS_IT_SHOULD_BE, Sealed};
use super::sessions::second_origin;
use super::speech::{NAME, Speech};
use super::trusted::trust_local;
use crate::BENTPIPE;

/// Ways to have a page's objects ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pair {
    Clear,
    Trusted,
    Sealed,
}

const PAIRS: [Pair; 3] = [Pair::Clear, Pair::Trusted, Pair::Sealed];

/// Objects of nginx's mixed page, the fields by which a browser asks for each, and how often nginx is asked: once for what is answered ahead,
/// twice for what must not be.
const OBJECTS: [(&str, &str, usize); 16] = [
    ("/cookie", "Cookie: a=1\r\n", 1),
    ("/cookie-of-another", "Cookie: a=2\r\n", 2),
    ("/language/1", "Cookie: a=1\r\nAccept-Language: de\r\n", 1),
    ("/language/2", "Cookie: a=1\r\nAccept-Language: fr\r\n", 2),
    ("/redirect", "Cookie: a=1\r\n", 2),
    ("/sets-cookie", "Cookie: a=1\r\n", 2),
    ("/no-store", "Cookie: a=1\r\n", 1),
    ("/o/range", "Cookie: a=1\r\nRange: bytes=100-199\r\n", 2),
    ("/o/kept", "Cookie: a=1\r\n", 1),
    // It may answer one request, and not two.
    ("/o/kept", "Cookie: a=1\r\n", 2),
    ("/big/3m", "Cookie: a=1\r\n", 1),
    ("/big/5m", "Cookie: a=1\r\n", 2),
    ("/missing", "Cookie: a=1\r\n", 2),
    ("/forbidden", "Cookie: a=1\r\n", 2),
    ("/behind/chunked", "Cookie: a=1\r\n", 1),
    ("/behind/o/1", "Cookie: a=1\r\n", 1),
];

/// Fields by which a browser asks for the objects of a page that was asked for with [`page_fields`].
pub(super) const OBJECT_FIELDS: &str =
    "Accept-Encoding: gzip, deflate, br, zstd\r\nCookie: a=1\r\n";

/// A site with nginx in the web, and two browsers: one behind the satellite, and one beside nginx.
pub(super) struct Real {
    pub(super) site: RealSite,
    pub(super) nginx: Nginx,
    _behind: Origin,
    pub(super) browser: Browser,
    near: Browser,
}

/// Parts of a case's site.
pub(super) enum RealSite {
    Pair(Box<(Site, Certified)>),
    /// With the origin before nginx.
    Sealed(Box<(Sealed, Process)>),
}

impl Real {
    /// Starts all of it; nginx speaks these `versions` of TLS.
    pub(super) fn start(pair: Pair, versions: &str) -> Result<Self> {
        let local = |port| SocketAddr::new(IpAddr::from([127, 0, 0, 1]), port);
        let (clear, behind) = (local(8081), local(9000));
        let (site, browser) = match pair {
            Pair::Sealed => {
                let it = Sealed::start(&AS_IT_SHOULD_BE)?;
                let (origin, browser) = second_origin(&it, clear)?;
                (RealSite::Sealed(Box::new((it, origin))), browser)
            }
            Pair::Clear | Pair::Trusted => pair_site(pair)?,
        };
        let (own, certified) = (site.site(), site.certified());
        let web = Place::from(own.topology.web());
        let near = Browser {
            place: web.clone(),
            origin: match pair {
                Pair::Clear | Pair::Trusted => browser.origin,
                Pair::Sealed => clear,
            },
            tls: match pair {
                Pair::Trusted => Some(certified.trust()?),
                Pair::Clear | Pair::Sealed => None,
            },
        };
        Ok(Self {
            nginx: Nginx::start(own, (certified, versions), near.origin, behind)?,
            _behind: Origin::start(&web, behind, None, Duration::ZERO)?,
            site,
            browser,
            near,
        })
    }

    /// Asks through the pair and beside nginx; both answers have to be the same.
    pub(super) fn expect_same(
        &self,
        stream: &mut Speech,
        target: &str,
        fields: &str,
    ) -> Result<Answer> {
        let through = ask(stream, target, &format!("User-Agent: test\r\n{fields}"))
            .with_context(|| format!("{target} through the pair"))?;
        let mut near = self.near.connect()?;
        let direct = ask(&mut near, target, &format!("User-Agent: near\r\n{fields}"))
            .with_context(|| format!("{target} without the pair"))?;
        ensure!(
            through == direct,
            "{target} with {fields:?}: {} and {} bytes instead of {} and {}",
            through.head,
            through.body.len(),
            direct.head,
            direct.body.len()
        );
        Ok(through)
    }

    pub(super) fn expect_count(&self, target: &str, times: usize) -> Result<()> {
        let asked = self.nginx.count(target)?;
        ensure!(
            asked == times,
            "{target}: nginx was asked {asked} times, not {times}"
        );
        Ok(())
    }
}

impl RealSite {
    pub(super) fn site(&self) -> &Site {
        match self {
            Self::Pair(pair) => &pair.0,
            Self::Sealed(sealed) => &sealed.0.site,
        }
    }

    /// Daemon that reads pages.
    pub(super) fn reader(&self) -> u32 {
        match self {
            Self::Pair(pair) => pair.0.server().id(),
            Self::Sealed(sealed) => sealed.1.id(),
        }
    }

    pub(super) fn certified(&self) -> &Certified {
        match self {
            Self::Pair(pair) => &pair.1,
            Self::Sealed(sealed) => &sealed.0.certified,
        }
    }
}

/// A site whose daemons fetch ahead in clear, or for a named host.
pub(super) fn pair_site(pair: Pair) -> Result<(RealSite, Browser)> {
    let certified = Certified::new()?;
    let tables = SiteConfig::new(BENTPIPE).client_tables;
    let (mut client, mut server) = ("[web]\nprefetch = true\n".to_owned(), String::new());
    server.push_str(&client);
    if pair == Pair::Trusted {
        client.push_str(&format!("tls = \"trusted\"\nnames = [\"{NAME}\"]\n"));
        let roots = certified.path("roots.pem");
        server.push_str(&format!("tls = \"trusted\"\nroots = {roots:?}\n"));
    }
    let site = Site::start(SiteConfig {
        scenario: fast_geo(),
        server_tables: server,
        client_tables: format!("{tables}{client}"),
        ..SiteConfig::new(BENTPIPE)
    })?;
    let (port, tls) = match pair {
        Pair::Trusted => (443, Some(trust_local(&site)?)),
        Pair::Clear | Pair::Sealed => (80, None),
    };
    let browser = Browser {
        place: Place::from(site.topology.user()),
        origin: SocketAddr::new(IpAddr::from(WEB), port),
        tls,
    };
    Ok((RealSite::Pair(Box::new((site, certified))), browser))
}

/// Runs `case` with each pair, and shows the logs if it fails.
pub(super) fn with_each(name: &str, case: impl Fn(&Real) -> Result<()>) {
    if !privileged(name) || !installed(name, "nginx") || !installed(name, "zstd") {
        return;
    }
    for pair in PAIRS {
        let real = Real::start(pair, "TLSv1.2 TLSv1.3").expect("a site");
        let result = case(&real);
        let fault =
            |error: anyhow::Error| format!("{pair:?}: {error:#}\n{}", real.site.site().logs());
        assert!(result.is_ok(), "{}", fault(result.unwrap_err()));
    }
}

/// Fields of a page's request, as a browser that reads every coding sends them.
pub(super) fn page_fields() -> String {
    let own = HTML.replace("User-Agent: test\r\n", "");
    format!(
        "{own}Accept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: de\r\nCookie: a=1\r\n"
    )
}

#[test]
fn pages_in_every_coding_have_their_objects_ahead() {
    with_each("pages in every coding", |real| {
        let fields = page_fields();
        for (number, name) in PAGES.into_iter().enumerate() {
            let mut stream = real.browser.connect()?;
            let answer = real.expect_same(&mut stream, &format!("/{name}.html"), &fields)?;
            let packed = !matches!(name, "plain" | "chunked");
            ensure!(
                packed == answer.head.contains("Content-Encoding: ")
                    && packed != (answer.body == page(name).as_bytes()),
                "{name}: another coding: {}",
                answer.head
            );
            for target in objects(name) {
                real.expect_same(&mut stream, &target, OBJECT_FIELDS)?;
                real.expect_count(&target, 1)?;
            }
            let used = figure(real.site.site(), "used_total")?;
            ensure!(
                used == 4 * (number as u64 + 1),
                "{name}: {used} objects used"
            );
        }
        Ok(())
    });
}

#[test]
fn objects_of_a_real_server_answer_those_alone_who_ask_as_was_assumed() {
    with_each("objects of a real server", |real| {
        let mut stream = real.browser.connect()?;
        real.expect_same(&mut stream, "/mixed.html", &page_fields())?;
        // All that is promised has come, or failed.
        thread::sleep(6 * S);
        for (target, fields, times) in OBJECTS {
            let fields = format!("Accept-Encoding: gzip, deflate, br, zstd\r\n{fields}");
            real.expect_same(&mut stream, target, &fields)?;
            real.expect_count(target, times)?;
        }
        conditions(real, &mut stream)?;
        for target in ["/early", "/behind/short"] {
            let [through, direct] = [&real.browser, &real.near].map(|browser| -> Result<_> {
                let (bytes, in_order) = browser.hear(get(target, "Cookie: a=1\r\n").as_bytes())?;
                Ok((without_date(&bytes), in_order))
            });
            let (through, direct) = (through?, direct?);
            ensure!(
                through.0 == direct.0,
                "{target}: {through:?} instead of {direct:?}"
            );
        }
        Ok(())
    });
}

/// A browser that has an object asks whether it is still the same.
fn conditions(real: &Real, stream: &mut Speech) -> Result<()> {
    let mut near = real.near.connect()?;
    let known = ask(&mut near, "/o/condition", "User-Agent: near\r\n")?;
    for (field, asks) in [
        ("ETag", "If-None-Match"),
        ("Last-Modified", "If-Modified-Since"),
    ] {
        let line = known
            .head
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{field}: ")));
        let fields = format!(
            "Cookie: a=1\r\n{asks}: {}\r\n",
            line.context("a validator")?
        );
        let answer = real.expect_same(stream, "/o/condition", &fields)?;
        ensure!(answer.head.starts_with("HTTP/1.1 304 "), "{}", answer.head);
    }
    Ok(())
}

/// Words on a connection that nginx ends, so that all of the answer is heard.
fn conversations() -> Vec<String> {
    let close = "Connection: close\r\nUser-Agent: test\r\n";
    let say = |line: &str, more: &str| format!("{line}\r\nHost: {NAME}\r\n{close}{more}");
    vec![
        say("HEAD /o/plain-0 HTTP/1.1", "\r\n"),
        say("HEAD /plain.html HTTP/1.1", "Accept: text/html\r\n\r\n"),
        say("POST /o/plain-0 HTTP/1.1", "Content-Length: 5\r\n\r\nhello"),
        say(
            "PUT /behind/o/1 HTTP/1.1",
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        ),
        say("OPTIONS / HTTP/1.1", "\r\n"),
        say("TRACE / HTTP/1.1", "\r\n"),
        say("GET /a b HTTP/1.1", "\r\n"),
        say(
            "GET /o/plain-0 HTTP/1.1",
            "Range: bytes=0-9,100-109\r\n\r\n",
        ),
        say("GET /o/plain-0 HTTP/1.1", "Range: bytes=999999-\r\n\r\n"),
        say("GET /o/plain-0 HTTP/1.1", "Range: bytes=-10\r\n\r\n"),
        say(
            "GET /plain.html HTTP/1.1",
            "Accept: text/html\r\nAuthorization: Basic YTpi\r\n\r\n",
        ),
        say("GET /big/20m HTTP/1.1", "\r\n"),
        say("GET /behind/empty HTTP/1.1", "\r\n"),
        say("GET /behind/hints HTTP/1.1", "\r\n"),
        "GET /o/plain-0 HTTP/1.0\r\n\r\n".to_owned(),
        format!("GET /plain.html HTTP/1.0\r\nHost: {NAME}\r\nAccept: text/html\r\n\r\n"),
        "GET /o/plain-0 HTTP/1.1\r\nConnection: close\r\n\r\n".to_owned(),
        // One after another, without waiting.
        [
            get("/o/plain-1", "User-Agent: test\r\n"),
            get("/no-store", ""),
            get("/o/plain-2", close),
        ]
        .concat(),
    ]
}

#[test]
fn words_to_a_real_server_are_answered_as_without() {
    with_each("words to a real server", |real| {
        for words in conversations() {
            let [through, direct] = [&real.browser, &real.near].map(|browser| -> Result<_> {
                let (bytes, in_order) = browser.hear(words.as_bytes())?;
                Ok((without_dates(&bytes), in_order))
            });
            let (through, direct) = (through?, direct?);
            ensure!(
                through == direct,
                "{words}: {} instead of {}",
                shown(&through),
                shown(&direct)
            );
        }
        let mut stream = real.browser.connect()?;
        // Where these are cut into chunks nginx decides anew each time.
        for target in [
            "/behind/until-close",
            "/behind/chunked",
            "/behind/chunked-3m",
        ] {
            real.expect_same(&mut stream, target, "")?;
        }
        let head = get(
            "/behind/upgrade",
            "Connection: Upgrade\r\nUpgrade: echo\r\n",
        );
        stream.write_all(head.as_bytes())?;
        let mut switched = Vec::new();
        while !switched.ends_with(b"\r\n\r\n") {
            switched.extend(read_exactly(&mut stream, 1)?);
        }
        ensure!(
            switched.starts_with(b"HTTP/1.1 101 "),
            "{}",
            without_date(&switched)
        );
        for word in [b"\x00\x01web socket".as_slice(), b"another"] {
            stream.write_all(word)?;
            ensure!(read_exactly(&mut stream, word.len())? == word);
        }
        Ok(())
    });
}

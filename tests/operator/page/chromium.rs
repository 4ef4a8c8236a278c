//! The page in a real browser, at a desk and on a phone, in light and in dark: of a client that is up, of its server, of a client
//! without a server, of one whose daemon goes away, and the form that asks for a token.
//!
//! Reports of `bentpipe measure` are looked at in the same way. The pictures stay in `target/tmp/page`, for people to look at.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_testbed::chromium;
use serde::Deserialize;
use serde_json::json;

use super::super::config_errors::home::Home;
use super::site::{Site, apart, start};
use super::{TOKEN, write_token};

/// For Chromium to look at a page four times, on a machine that is busy.
const LOOK: Duration = Duration::from_secs(120);

/// Coloured pixels that a curve has at least. A plot without one has none; how wide a curve is depends on how long the daemon has run.
const DRAWN: u64 = 10;

/// Pause after each of three downloads: a curve of twenty seconds is eight pixels wide on a phone, and two high.
const PAUSE: Duration = Duration::from_secs(4);

/// One view of a page.
#[derive(Debug, Deserialize)]
pub(in super::super) struct Seen {
    width: u32,
    scheme: String,
    /// What went wrong in it.
    faults: Vec<String>,
    /// Pixels that it is wider than the screen.
    wider: i64,
    state: String,
    fault: String,
    /// What it says of a daemon that does not answer.
    lost: String,
    tiles: Vec<Vec<String>>,
    clients: Vec<Vec<String>>,
    pub(in super::super) events: Vec<String>,
    /// Coloured pixels of each plot.
    pub(in super::super) curves: Vec<u64>,
    ground: String,
}

impl Seen {
    /// The texts of a tile below its title.
    fn tile(&self, title: &str) -> String {
        let tile = self.tiles.iter().find(|tile| tile[0] == title);
        let tile = tile.unwrap_or_else(|| panic!("no tile {title}: {:?}", self.tiles));
        tile[1..].join(" ")
    }
}

/// Where pictures go.
fn pictures() -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page");
    fs::create_dir_all(&place).expect("cargo's directory is writable");
    place
}

/// Has a browser look at `url`; `loses` says that its daemon will go once `NAME.open` is there.
fn begin(name: &str, url: &str, loses: bool) -> Child {
    let place = pictures();
    for end in ["open", "json"] {
        let _ = fs::remove_file(place.join(format!("{name}.{end}")));
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/operator/page/shots.cjs");
    let mut node = Command::new("node");
    node.arg(script)
        .arg(std::env::current_exe().expect("this test"));
    node.arg("/usr/bin/chromium").arg(&place);
    node.arg(json!({ "name": name, "url": url, "loses": loses }).to_string());
    let home = place.join("home");
    fs::create_dir_all(&home).expect("cargo's directory is writable");
    node.env("HOME", home)
        .stderr(Stdio::piped())
        .spawn()
        .expect("node runs")
}

fn end(name: &str, browser: Child) -> Vec<Seen> {
    let output = browser.wait_with_output().expect("its output");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {said}");
    let text = fs::read(pictures().join(format!("{name}.json"))).expect("what it saw");
    let seen: Vec<Seen> = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(seen.len(), 4, "two widths, two schemes");
    for one in &seen {
        let view = format!("{name} at {} in {}", one.width, one.scheme);
        assert_eq!(one.faults, [""; 0], "{view}");
        assert!(one.wider <= 0, "{view}: {} too wide", one.wider);
        let grounds = seen.iter().filter(|other| other.ground == one.ground);
        assert_eq!(grounds.count(), 2, "{view}: dark is light");
    }
    seen
}

/// Has a browser look at `url`; fails where it is wider than the screen, dark by day, or in want of something.
pub(in super::super) fn look(name: &str, url: &str) -> Vec<Seen> {
    end(name, begin(name, url, false))
}

#[test]
fn the_page_is_whole_wherever_it_is_looked_at() {
    if chromium("page").is_none() {
        return;
    }
    apart(|| {
        let mut site = Site::start();
        // As `bentpipe measure` leaves it.
        let measured =
            json!({ "began": "2026-11-27T10:00:00Z", "request_ratio": 1.98, "upload_ratio": 3.9 });
        fs::write(site.home.path("state/measured.json"), measured.to_string())
            .expect("a directory of ours");
        for megabytes in [4, 1, 6] {
            site.download(megabytes * 1_000_000);
            thread::sleep(PAUSE);
        }
        for seen in look("client", &format!("http://{}/", site.client)) {
            assert!(seen.state.starts_with("Up for "), "{seen:?}");
            assert_eq!((seen.fault.as_str(), seen.lost.as_str()), ("", ""));
            assert!(
                seen.tile("Received").contains("capacity 20.0 Mbit/s"),
                "{seen:?}"
            );
            assert!(
                seen.tile("Sent").contains("capacity 2.0 Mbit/s"),
                "{seen:?}"
            );
            assert!(
                seen.tile("Bytes on the link").contains("of 50.0 MB"),
                "{seen:?}"
            );
            assert!(seen.tile("Connections").contains("3 opened"), "{seen:?}");
            assert_eq!(
                seen.tile("Worth of the tunnel"),
                "2.0 × as fast as without: requests, uploads 3.9 × measured 2026-11-27"
            );
            assert!(seen.tile("Round trip").contains("lowest"), "{seen:?}");
            assert_eq!(seen.curves.len(), 2, "rate and RTT");
            assert!(seen.curves.iter().all(|pixels| *pixels > DRAWN), "{seen:?}");
            assert!(seen.events.iter().any(|one| one.contains("ready: tunnel")));
        }
        for seen in look("server", &format!("http://{}/", site.server)) {
            assert_eq!(seen.state, "Serving 1 client");
            assert_eq!(seen.clients.len(), 1, "{seen:?}");
            assert_eq!(seen.clients[0][0], "terminal-1");
            assert!(seen.clients[0][1].starts_with("Up for "), "{seen:?}");
            assert!(
                seen.events
                    .iter()
                    .any(|one| one.contains("terminal-1: connected"))
            );
            assert!(seen.curves[0] > DRAWN, "{seen:?}");
        }
        // The daemon goes while somebody looks.
        let browser = begin("lost", &format!("http://{}/", site.client), true);
        let (began, open) = (Instant::now(), pictures().join("lost.open"));
        while !open.exists() && began.elapsed() < LOOK {
            thread::sleep(Duration::from_millis(50));
        }
        site.kill();
        for seen in end("lost", browser) {
            assert!(
                seen.lost.starts_with("The daemon has not answered for "),
                "{seen:?}"
            );
        }
    });
}

#[test]
fn a_page_without_a_link_says_so() {
    if chromium("page").is_none() {
        return;
    }
    apart(|| {
        let home = Home::new();
        write_token(&home, TOKEN);
        let (_daemon, address) = start(&home, "client", "token_file = \"page.token\"");
        let url = format!("http://{address}/");
        for seen in look("login", &url) {
            assert_eq!(seen.tiles.len(), 0, "nothing without the token: {seen:?}");
        }
        for seen in look("error", &format!("{url}?token={TOKEN}")) {
            assert!(seen.state.starts_with("Down for "), "{seen:?}");
            assert!(
                seen.fault
                    .contains("The server has not been reached since "),
                "{seen:?}"
            );
            assert!(seen.fault.contains("127.0.0.1:4433"), "{seen:?}");
            assert!(seen.events.iter().any(|one| one.contains("Warning")));
        }
    });
}

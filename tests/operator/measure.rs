//! `bentpipe measure` over real links: what it finds over a geostationary satellite and on one machine, what it costs, and what it
//! says where it cannot measure.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::Result;
use bentpipe_emulator::topology::{GATEWAY_SAT, WEB};
use bentpipe_testbed::daemon::{Daemon, free_port};
use bentpipe_testbed::peer::{PATIENCE, Service};
use bentpipe_testbed::proxy::HTTP;
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{Site, SiteConfig, geo, near};
use bentpipe_testbed::{chromium, privileged, status};
use serde_json::Value;

use super::config_errors::home::Home;
use super::page::look;
use crate::BENTPIPE;

/// Start of the line that says what is about to be done.
const HEADING: &str = "measuring with ";
/// A name of two families.
const BOTH: &str = "both.example";
const SOCKS5_TABLE: &str = "[socks5]\nlisten = \"127.0.0.1:1080\"\n";

fn measure(config: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(BENTPIPE);
    command
        .args(["measure", "--config"])
        .arg(config)
        .args(options);
    command
}

/// Runs it at the terminal of `site`.
fn at(site: &Site, mut command: Command) -> Output {
    let terminal = site.topology.terminal();
    let output = terminal.enter(move || command.output());
    output.expect("the namespace").expect("bentpipe runs")
}

fn at_terminal(site: &Site, options: &[&str]) -> Output {
    at(site, measure(&site.client_file(), options))
}

/// Measures without capabilities.
fn unprivileged(site: &Site, options: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--inh-caps=-all", "--bounding-set=-all", "--", BENTPIPE]);
    command
        .args(["measure", "--config"])
        .arg(site.client_file());
    command.args(options);
    command
}

fn document(output: &Output) -> Value {
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The results, by kind.
fn result<'a>(document: &'a Value, kind: &str) -> &'a Value {
    let rows = document["rows"].as_array().expect("rows");
    let mut rows = rows.iter().filter(|row| row["kind"] == kind);
    &rows.next().expect("the kind")["result"]
}

fn ratio(result: &Value) -> f64 {
    result["ratio"]
        .as_f64()
        .unwrap_or_else(|| panic!("{result}"))
}

/// Measures where [`BOTH`] has an address that nobody has, and then that of the web.
fn with_a_dead_address(site: &Site, options: &[&str]) -> Command {
    let hosts = site.topology.directory().join("hosts");
    fs::write(&hosts, format!("fd00:30::dead {BOTH}\n{WEB} {BOTH}\n")).expect("a file of ours");
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c"])
        .arg("mount --bind \"$0\" /etc/hosts && exec \"$@\"")
        .arg(&hosts)
        .args([BENTPIPE, "measure", "--config"])
        .arg(site.client_file())
        .args(options);
    command
}

fn site(scenario: bentpipe_link::Scenario, client_tables: &str) -> Site {
    Site::start(SiteConfig {
        scenario,
        client_tables: client_tables.into(),
        server_tables: format!("[responder]\nlisten = \"{GATEWAY_SAT}:4480\"\n"),
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site")
}

/// A web server of 100 kB, for GET and HEAD.
fn serve(mut stream: TcpStream) -> Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")?;
    if head.starts_with(b"GET") {
        stream.write_all(&[7; 100_000])?;
    }
    Ok(())
}

fn web(site: &Site) -> (Service, String) {
    let place = Place::from(site.topology.web());
    let address = SocketAddr::from((WEB, 8000));
    let service = Service::start(&place, address, serve).expect("a server");
    (service, format!("http://{address}/file"))
}

/// This machine is intercepted, so that what goes past the tunnel shows that it carries the mark: else both were the same.
#[test]
fn over_a_geostationary_satellite_the_tunnel_is_a_gain() {
    if !privileged("measure: over a satellite") {
        return;
    }
    let tables = format!("[intercept]\nlocal = true\n{SOCKS5_TABLE}");
    let site = site(geo(), &tables);
    let (_service, url) = web(&site);
    let options = ["--rounds", "6", "--size", "60 kB", "--json", "--url", &url];
    let found = document(&at_terminal(&site, &options));
    for kind in ["request", "down"] {
        let result = result(&found, kind);
        assert_eq!(
            (&result["verdict"], &result["n"]),
            (&"gain".into(), &6.into())
        );
        let low = result["interval"][0].as_f64().expect("an interval");
        // Past the tunnel a handshake comes first, and slow start after it; the tunnel has both behind it.
        assert!(low > 1.4 && ratio(result) < 6.0, "{kind}: {result}");
    }
    // A wish that is too large is cut, said, and then too few pairs are no conclusion.
    let options = ["--size", "60 kB", "--max-bytes", "402 kB"];
    let output = at_terminal(&site, &options);
    let (said, told) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{told}");
    assert!(
        told.contains("1 round, at most") && told.contains("no room for 8"),
        "{told}"
    );
    assert_eq!(said.matches("too few pairs to say: 1").count(), 4, "{said}");
    // Who may not set the mark is told what it takes.
    let output = at(&site, unprivileged(&site, &["--url", &url]));
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(
        told.contains("CAP_NET_ADMIN") && told.contains("as root"),
        "{told}"
    );
}

#[test]
fn whatever_the_client_has_leads_into_the_tunnel() {
    if !privileged("measure: front ends") {
        return;
    }
    let options = ["--rounds", "1", "--size", "100 kB", "--json"];
    let tables = format!("[intercept]\ninterfaces = [\"lan0\"]\n[http]\nlisten = \"{HTTP}\"\n");
    let over_http = site(near(), &tables);
    // Of this machine nothing is taken in, so no mark is needed.
    let found = document(&at(&over_http, unprivileged(&over_http, &options)));
    assert_eq!(found["through"], format!("the HTTP proxy at {HTTP}"));
    for kind in ["request", "page", "down", "up"] {
        let result = result(&found, kind);
        assert_eq!(
            (&result["verdict"], &result["n"]),
            (&"too-few".into(), &1.into())
        );
    }
    drop(over_http);
    let intercepted = site(near(), "[intercept]\nlocal = true\n");
    let (_service, url) = web(&intercepted);
    let with_url = [&options[..], &["--url", &url]].concat();
    // One round trip instead of two; the mark of the direct half is what makes them differ. A busy machine adds to one or the other.
    let mut ratios = (0..5).map(|_| {
        let found = document(&at_terminal(&intercepted, &with_url));
        assert_eq!(found["through"], "the interception of this machine");
        ratio(result(&found, "request"))
    });
    assert!(ratios.any(|ratio| ratio > 1.3), "no gain in five rounds");
    // One of a name's addresses leads nowhere: the other one is measured.
    let named = format!("http://{BOTH}:8000/file");
    let with_name = [&options[..], &["--url", &named]].concat();
    document(&at(
        &intercepted,
        with_a_dead_address(&intercepted, &with_name),
    ));
    // The name of the responder is a proxy's matter.
    let output = at_terminal(&intercepted, &options);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("add `[socks5]`"), "{told}");
}

/// Client and server on loopback: where there is no delay to save, a tunnel has nothing to give.
fn one_machine(responder: bool) -> (Home, Vec<Daemon>) {
    let home = Home::new();
    let [server, socks5, transfers] = [(); 3].map(|()| free_port());
    home.edit("server.toml", "127.0.0.1:0", &format!("127.0.0.1:{server}"));
    let tables = match responder {
        true => format!("[responder]\nlisten = \"127.0.0.1:{transfers}\"\n"),
        false => String::new(),
    };
    // Nothing of this machine's own namespace is to be configured.
    let tables = format!("{tables}[packets]\nenabled = false\n[[client]]");
    home.edit("server.toml", "[[client]]", &tables);
    home.edit(
        "client.toml",
        "127.0.0.1:4433",
        &format!("127.0.0.1:{server}"),
    );
    home.edit("client.toml", "127.0.0.1:0", &format!("127.0.0.1:{socks5}"));
    home.edit(
        "client.toml",
        "status_socket",
        "open_wait = \"2 s\"\nstatus_socket",
    );
    let daemons = ["server", "client"].map(|role| {
        let daemon = Daemon::start(BENTPIPE, role, home.directory.path(), role);
        let daemon = daemon.expect("bentpipe starts");
        daemon.wait_for("ready", PATIENCE);
        daemon
    });
    // The client ends before its server does.
    (home, daemons.into_iter().rev().collect())
}

#[test]
fn on_one_machine_the_tunnel_is_no_gain() {
    let (home, _daemons) = one_machine(true);
    let config = home.path("client.toml");
    let options = ["--rounds", "6", "--size", "1 MB"];
    let output = measure(&config, &options).output().expect("bentpipe runs");
    let (said, told) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{told}");
    // 1 kB, 120 kB, 1 MB and 250 kB, twice in each of six rounds.
    assert!(
        told.contains("6 rounds, at most 16.45 MB of payload"),
        "{told}"
    );
    assert_eq!(said.matches("no gain: ").count(), 4, "{said}");
    assert!(!said.contains("failed"), "{said}");
    // Nobody has to read how far it is, or what came of it.
    let mut unread = measure(&config, &["--rounds", "1", "--size", "10 kB"]);
    unread.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut unread = unread.spawn().expect("bentpipe starts");
    drop((unread.stdout.take(), unread.stderr.take()));
    assert_eq!(unread.wait().expect("a child").code(), Some(0));
    // The client tells of it from then on.
    let told = status::report(BENTPIPE, &home.path("client.sock")).expect("a report");
    let kinds = ["request", "page", "download", "upload"];
    for ratio in kinds.map(|kind| &told["measured"][format!("{kind}_ratio")]) {
        let ratio = ratio.as_f64().unwrap_or_else(|| panic!("{told}"));
        assert!(ratio > 0.0 && ratio < 1.1, "{told}");
    }
}

#[test]
fn a_report_is_a_page_that_is_whole_or_is_not_there() {
    let (home, daemons) = one_machine(true);
    let config = home.path("client.toml");
    let place = home.path("reports");
    fs::create_dir(&place).expect("a directory of ours");
    let report = |name: &str| {
        let page = place.join(name).display().to_string();
        let options = ["--rounds", "6", "--size", "100 kB", "--report", &page];
        measure(&config, &options).output().expect("bentpipe runs")
    };
    let refused = |name: &str| {
        let output = report(name);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(
            told.contains("--report") && !told.contains(HEADING),
            "{told}"
        );
    };
    // Before a byte is spent.
    refused("nowhere/link.html");
    refused(".");
    let output = report("link.html");
    let told = text(&output.stderr);
    assert!(
        told.contains(HEADING) && told.contains("report in "),
        "{told}"
    );
    let page = fs::read_to_string(place.join("link.html")).expect("the report");
    assert_eq!(page.matches("no gain: ").count(), 4, "{page}");
    drop(daemons);
    assert_eq!(report("gone.html").status.code(), Some(6));
    let names = fs::read_dir(&place).expect("a directory").flatten();
    let names: Vec<_> = names.map(|file| file.file_name()).collect();
    assert_eq!(names, ["link.html"]);
    if chromium("measure: report").is_some() {
        let url = format!("file://{}", place.join("link.html").display());
        for seen in look("measure", &url) {
            assert!(seen.curves[0] > 100, "{seen:?}");
            assert_eq!(seen.events.len(), 4, "{seen:?}");
        }
    }
}

#[test]
fn what_cannot_be_measured_is_said_with_the_mend() {
    let (home, daemons) = one_machine(false);
    let config = home.path("client.toml");
    let must_say = |options: &[&str], code, words: &[&str]| {
        let output = measure(&config, options).output().expect("bentpipe runs");
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{told}");
        for word in words {
            assert!(told.contains(word), "no `{word}`: {told}");
        }
    };
    must_say(&[], 1, &["no responder answers", "`[responder]`", "--url"]);
    must_say(
        &["--max-bytes", "5 MB"],
        2,
        &["5244 kB", "--max-bytes is 5 MB"],
    );
    must_say(&["--rounds", "0"], 2, &["--rounds"]);
    must_say(&["--url", "https://example.com/"], 2, &["only http://"]);
    must_say(&["--size", "much"], 2, &["`much` is not a size"]);
    let [client, server] = <[Daemon; 2]>::try_from(daemons).expect("two");
    drop(server);
    // The tunnel is at fault, and not the responder behind it.
    must_say(
        &[],
        1,
        &[
            "waiting for it",
            "the tunnel is not up",
            "`bentpipe doctor`",
        ],
    );
    must_say(
        &["--url", "http://127.0.0.1:9/"],
        1,
        &["the tunnel is not up"],
    );
    drop(client);
    must_say(&[], 6, &["127.0.0.1", "is `bentpipe client` running"]);
}

/// Each reason has words of its own: they are mended at different places.
#[test]
fn a_client_that_is_not_known_and_a_closed_port_are_told_apart() {
    let (home, daemons) = one_machine(true);
    let config = home.path("client.toml");
    let [client, server] = <[Daemon; 2]>::try_from(daemons).expect("two");
    let told = || {
        let output = measure(&config, &[]).output().expect("bentpipe runs");
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr)
    };
    drop((client, server));
    let start = |role: &str, line: &str| {
        let daemon = Daemon::start(BENTPIPE, role, home.directory.path(), role);
        let daemon = daemon.expect("bentpipe starts");
        daemon.wait_for(line, PATIENCE);
        daemon
    };
    // Past the tunnel nobody listens where clients come to.
    let responder = "[responder]\nlisten = \"127.0.0.";
    let [here, there] = [1, 2].map(|host| format!("{responder}{host}:"));
    home.edit("server.toml", &here, &there);
    let _server = start("server", "ready");
    let client = start("client", "ready");
    let closed = told();
    for words in [
        "past it not",
        "Connection refused",
        "`listen` of the server's `[responder]`",
    ] {
        assert!(closed.contains(words), "{closed}");
    }
    // The server forgets the client.
    drop(client);
    home.edit("client.toml", "client.key", "stranger.key");
    bentpipe_testbed::keys::generate(BENTPIPE, &home.path("stranger.key")).expect("a key");
    let _client = start("client", "does not know this client");
    let unknown = told();
    for words in [
        "the tunnel is not up",
        "does not know this client",
        "public_key = ",
    ] {
        assert!(unknown.contains(words), "{unknown}");
    }
}

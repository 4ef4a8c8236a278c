//! The live page of both daemons over real sockets: whom it answers, what it says, what it costs, and how it looks.

mod chromium;
mod site;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use serde_json::Value;

use super::config_errors::home::{Home, PATIENCE, run};
use crate::BENTPIPE;
pub(super) use chromium::look;
use site::{Site, apart, ask, page, start, status};

const TOKEN: &str = "0123456789abcdef-_XYZ";

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").expect("head and body").1
}

fn json(answer: &str) -> Value {
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    serde_json::from_str(body(answer)).expect("JSON")
}

/// A file of a token in `home` that nobody else may read.
fn write_token(home: &Home, token: &str) {
    home.write("page.token", token);
    let closed = fs::Permissions::from_mode(0o600);
    fs::set_permissions(home.path("page.token"), closed).expect("a file of ours");
}

#[test]
fn both_daemons_serve_the_page_and_what_status_says() {
    apart(|| {
        for role in ["server", "client"] {
            let home = Home::new();
            let (daemon, address) = start(&home, role, "");
            let answer = ask(address, "GET /", &[]);
            assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
            for wanted in [
                "content-security-policy: default-src 'none'; script-src 'self';",
                "x-content-type-options: nosniff",
                "cache-control: no-store",
            ] {
                assert!(answer.contains(wanted), "{wanted}: {answer}");
            }
            // Nothing in it that such a policy forbids, or that leads elsewhere.
            let text = body(&answer);
            for fault in ["http:", "https:", "onclick", "style=", "<style", "<script>"] {
                assert!(!text.contains(fault), "{fault}: {text}");
            }
            for part in [
                "/page.js",
                "/page.css",
                "/uplot.js",
                "/uplot.css",
                "/icon.svg",
            ] {
                assert!(text.contains(part) || part == "/icon.svg", "{part}");
                let answer = ask(address, &format!("GET {part}"), &[]);
                assert!(answer.starts_with("HTTP/1.1 200 OK"), "{part}: {answer}");
            }
            let (shown, said) = (
                json(&ask(address, "GET /status.json", &[])),
                status(&home, role),
            );
            for key in [
                "schema",
                "pid",
                "role",
                "config_file",
                "version",
                "sandbox",
                "listen",
            ] {
                assert_eq!(shown[key], said[key], "{key} of {role}");
            }
            assert!(ask(address, "GET /x", &[]).starts_with("HTTP/1.1 404 "));
            for other in ["POST /", "HEAD /", "DELETE /status.json"] {
                assert!(
                    ask(address, other, &[]).starts_with("HTTP/1.1 405 "),
                    "{other}"
                );
            }
            let ended = daemon.stop();
            assert_eq!(ended.code, Some(0), "{}", ended.stderr);
            assert!(ended.stderr.contains(&format!("page at http://{address}/")));
        }
    });
}

/// Once nothing crosses any more, page and `status` have the same figures, and the curve has what crossed.
#[test]
fn figures_are_those_of_status() {
    apart(|| {
        let site = Site::start();
        // The first rate is that of the second after the first second.
        thread::sleep(Duration::from_millis(2500));
        let loaded = site.download(2_000_000);
        assert_eq!(loaded, 2_000_000);
        for (role, address) in [("client", site.client), ("server", site.server)] {
            let figures = |report: &Value| match role {
                "client" => [report["bytes"].clone(), report["flows"].clone()],
                _ => ["bytes", "flows"].map(|key| report["clients"][0][key].clone()),
            };
            let deadline = Instant::now() + PATIENCE;
            loop {
                let shown = figures(&json(&ask(address, "GET /status.json", &[])));
                let said = figures(&status(&site.home, role));
                if shown == said && shown[1]["active"] == 0 {
                    break;
                }
                assert!(Instant::now() < deadline, "{role}: {shown:?} and {said:?}");
                thread::sleep(Duration::from_millis(200));
            }
        }
        let deadline = Instant::now() + PATIENCE;
        let (live, seconds) = loop {
            let live = json(&ask(site.client, "GET /live.json", &[]));
            let column = |name: &str| live["samples"][name].as_array().expect("a column").clone();
            let (seconds, received) = (column("uptime_s"), column("received_bit_s"));
            assert_eq!(seconds.len(), received.len());
            let bits: u64 = received.iter().filter_map(Value::as_u64).sum();
            // A busy machine may have missed a second of it.
            if bits > 8_000_000 {
                break (live, seconds);
            }
            assert!(
                Instant::now() < deadline,
                "{bits} bits in the curve of 2 MB: {live}"
            );
            thread::sleep(Duration::from_millis(200));
        };
        assert_eq!(live["shown"]["healthy"], true, "{live}");
        assert_eq!(live["shown"]["server_heard"], false, "{live}");
        let events = live["shown"]["report"]["events"].to_string();
        assert!(events.contains("ready: tunnel to "), "{events}");
        // A page that is open asks for what it does not have.
        let last = seconds.last().expect("a second");
        let later = json(&ask(
            site.client,
            &format!("GET /live.json?after={last}"),
            &[],
        ));
        let later = later["samples"]["uptime_s"].as_array().expect("seconds");
        assert!(later.len() < 3, "{later:?} after {last}");
    });
}

#[test]
fn a_page_for_others_wants_its_token() {
    apart(|| {
        let home = Home::new();
        write_token(&home, &format!("{TOKEN}\n"));
        let (daemon, address) =
            site::start_at(&home, "client", "0.0.0.0", "token_file = \"page.token\"");
        let host = ("Host", "ship.example");
        for path in ["/", "/status.json", "/live.json", "/x"] {
            let answer = ask(address, &format!("GET {path}"), &[host]);
            assert!(answer.starts_with("HTTP/1.1 401 "), "{path}: {answer}");
            assert!(answer.contains("name=\"token\""), "{path}: {answer}");
            assert!(!answer.contains("config_file"), "{path}: {answer}");
        }
        assert!(ask(address, "GET /page.css", &[host]).starts_with("HTTP/1.1 200 "));
        let wrong = ask(address, "GET /?token=0123456789abcdef-_XYz", &[host]);
        assert!(wrong.starts_with("HTTP/1.1 403 "), "{wrong}");
        assert!(!wrong.to_lowercase().contains("set-cookie"), "{wrong}");
        let right = ask(address, &format!("GET /?token={TOKEN}"), &[host]);
        assert!(right.starts_with("HTTP/1.1 200 "), "{right}");
        let cookie = right
            .lines()
            .find_map(|line| line.strip_prefix("set-cookie: "));
        let cookie = cookie.expect("a cookie");
        assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
        assert!(!right.contains(TOKEN), "the token is not repeated: {right}");
        let (cookie, _) = cookie.split_once(';').expect("attributes");
        let shown = ask(address, "GET /status.json", &[host, ("Cookie", cookie)]);
        assert_eq!(json(&shown)["role"], "client");
        let forged = cookie.replace(|c: char| c.is_ascii_digit(), "0");
        let refused = ask(address, "GET /status.json", &[host, ("Cookie", &forged)]);
        assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
        let ended = daemon.stop();
        assert!(
            ended.stderr.contains("is not encrypted"),
            "{}",
            ended.stderr
        );
        assert!(ended.stderr.contains("a wrong token"), "{}", ended.stderr);
        assert!(!ended.stderr.contains(TOKEN), "{}", ended.stderr);
    });
}

#[test]
fn a_page_for_others_without_a_token_is_a_fault() {
    let fault = |listen: &str, token: Option<&str>, mode: u32, words: &[&str]| {
        let home = Home::new();
        let mut table = format!("[page]\nlisten = \"{listen}:8404\"\n");
        if let Some(token) = token {
            write_token(&home, token);
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(home.path("page.token"), mode).expect("a file of ours");
            table += "token_file = \"page.token\"\n";
        }
        let text = fs::read_to_string(home.path("client.toml")).expect("a file");
        home.write("client.toml", &format!("{text}{table}"));
        let mut check = Command::new(BENTPIPE);
        check
            .args(["check", "client.toml"])
            .current_dir(home.directory.path());
        run(&mut check).must_say(3, "client.toml:", words);
    };
    fault(
        "0.0.0.0",
        None,
        0,
        &["`listen` is 0.0.0.0:8404", "add `token_file`"],
    );
    fault("[::]", None, 0, &["no loopback address"]);
    fault(
        "0.0.0.0",
        Some(TOKEN),
        0o644,
        &["accessible to others", "chmod 600"],
    );
    fault(
        "127.0.0.1",
        Some("short"),
        0o600,
        &["16 to 128", "openssl rand"],
    );
    fault(
        "127.0.0.1",
        Some("spaces are not plain"),
        0o600,
        &["letters, digits"],
    );
}

/// A page of somebody else's whose name was led to this address reads nothing.
#[test]
fn another_name_for_the_address_reads_nothing() {
    apart(|| {
        let home = Home::new();
        let (_daemon, address) = start(&home, "client", "");
        for path in ["/", "/status.json", "/live.json", "/page.js"] {
            for host in [
                "evil.example",
                "evil.example:8404",
                "127.0.0.1.evil.example",
            ] {
                let answer = ask(address, &format!("GET {path}"), &[("Host", host)]);
                assert!(
                    answer.starts_with("HTTP/1.1 421 "),
                    "{host}{path}: {answer}"
                );
                assert!(!answer.contains("client.toml"), "{answer}");
            }
        }
        for host in ["localhost:9999", "127.0.0.1", "[::1]:8404"] {
            let answer = ask(address, "GET /status.json", &[("Host", host)]);
            assert_eq!(json(&answer)["role"], "client", "{host}");
        }
    });
}

/// Connections that say nothing, little or too much end soon; the daemon and its page go on.
#[test]
fn who_misuses_the_page_is_left() {
    apart(|| {
        let home = Home::new();
        let (_daemon, address) = start(&home, "client", "");
        let connect = || {
            let stream = TcpStream::connect(address).expect("the page is served");
            stream.set_read_timeout(Some(2 * PATIENCE)).expect("a time");
            stream
        };
        let mut silent: Vec<_> = (0..8).map(|_| connect()).collect();
        let began = Instant::now();
        assert_eq!(status(&home, "client")["role"], "client");
        assert!(began.elapsed() < Duration::from_secs(2), "status waits");
        // All places are taken, and come free.
        assert!(ask(address, "GET /", &[]).starts_with("HTTP/1.1 200 "));
        for stream in &mut silent {
            assert_eq!(
                stream.read(&mut [0; 1]).expect("an end"),
                0,
                "it was closed"
            );
        }
        let mut long = connect();
        let head = format!(
            "GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
            "x".repeat(1 << 20)
        );
        // It need not be read whole.
        let _ = long.write_all(head.as_bytes());
        let mut answer = Vec::new();
        let _ = long.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(!answer.contains("200 OK"), "{answer}");
        assert!(ask(address, "GET /", &[]).starts_with("HTTP/1.1 200 "));
    });
}

#[test]
fn a_server_that_is_not_reached_is_told_in_words() {
    apart(|| {
        let home = Home::new();
        let (_daemon, address) = start(&home, "client", "");
        let deadline = Instant::now() + PATIENCE;
        let live = loop {
            let live = json(&ask(address, "GET /live.json", &[]));
            if live["shown"]["report"]["tunnel"]["last_error"].is_string() {
                break live;
            }
            assert!(Instant::now() < deadline, "no error in {live}");
            thread::sleep(Duration::from_millis(200));
        };
        let shown = &live["shown"];
        assert_eq!(shown["healthy"], false, "{shown}");
        let error = shown["report"]["tunnel"]["last_error"]
            .as_str()
            .expect("text");
        assert!(error.contains("127.0.0.1:4433"), "{error}");
        let events = shown["report"]["events"].as_array().expect("events");
        let warns =
            |event: &&Value| event["level"] == "warn" && event["text"].to_string().contains("4433");
        assert!(events.iter().any(|event| warns(&event)), "{events:?}");
    });
}

/// What a tunnel had is not shown as what there is, once it has ended.
#[test]
fn a_tunnel_that_has_ended_has_no_rate() {
    apart(|| {
        let mut site = Site::start();
        thread::sleep(Duration::from_millis(1500));
        let tunnel = || status(&site.home, "client")["tunnel"].clone();
        assert!(tunnel()["rtt_ms"].is_number(), "{}", tunnel());
        site.stop_server();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let live = json(&ask(site.client, "GET /live.json", &[]));
            let tunnel = &live["shown"]["report"]["tunnel"];
            if tunnel["state"] != "ready" && tunnel["rtt_ms"].is_null() {
                assert_eq!(tunnel["recv_rate_bit_s"], 0, "{tunnel}");
                assert!(tunnel["last_error"].is_string(), "{tunnel}");
                break;
            }
            assert!(Instant::now() < deadline, "{tunnel}");
            thread::sleep(Duration::from_millis(200));
        }
    });
}

/// `--watch` fits a terminal of 80 by 24 and says what the page says.
#[test]
fn watch_is_the_page_for_a_terminal() {
    apart(|| {
        let home = Home::new();
        let (_daemon, _) = start(&home, "client", "");
        let mut watch = Command::new(BENTPIPE)
            .args(["status", "--watch", "--socket", "client.sock"])
            .current_dir(home.directory.path())
            .env("LC_ALL", "C.UTF-8")
            .stdout(Stdio::piped())
            .spawn()
            .expect("bentpipe starts");
        thread::sleep(Duration::from_millis(3500));
        watch.kill().expect("it runs");
        let output = watch.wait_with_output().expect("its output");
        let text = String::from_utf8(output.stdout).expect("text");
        let screens: Vec<_> = text.split("bentpipe client ").skip(1).collect();
        assert!(
            (2..=5).contains(&screens.len()),
            "{} in 3.5 s",
            screens.len()
        );
        for screen in &screens {
            assert!(screen.lines().count() < 24, "{screen}");
            assert!(
                screen.lines().all(|line| line.chars().count() <= 80),
                "{screen}"
            );
        }
        let last = screens.last().expect("a screen");
        for wanted in [
            "DOWN for ",
            "received ",
            "RTT ",
            "flows ",
            "last events (UTC)",
            "warning: ",
        ] {
            assert!(last.contains(wanted), "{wanted}: {last}");
        }
        assert!(!text.contains('\x1b'), "no terminal, no control characters");
    });
}

/// A reload cannot move the page, and says so.
#[test]
fn a_page_elsewhere_needs_a_restart() {
    apart(|| {
        let home = Home::new();
        let (daemon, address) = start(&home, "server", "");
        let elsewhere = page().to_string();
        home.edit("server.toml", &address.to_string(), &elsewhere);
        daemon.signal("HUP");
        thread::sleep(Duration::from_secs(2));
        let ended = daemon.stop();
        assert!(ended.stderr.contains("page.listen"), "{}", ended.stderr);
    });
}

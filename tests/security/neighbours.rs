//! Other programs on the router: a rule of theirs before the client's, and a directory where its status socket is to be.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_testbed::privileged;
use bentpipe_testbed::site::{Site, SiteConfig};

use crate::BENTPIPE;

/// A look every two seconds sees what no notice tells of; the machine may be busy.
const SEEN: Duration = Duration::from_secs(20);

/// Asks the client for its health until it is `healthy`, or not, and the line has `text`.
fn await_check(site: &Site, healthy: bool, text: &str) {
    let deadline = Instant::now() + SEEN;
    loop {
        let mut command = Command::new(BENTPIPE);
        let socket = site.client_home().join("client.sock");
        command.args(["status", "--check", "--socket"]).arg(&socket);
        let output = command.output().expect("bentpipe runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() == healthy && said.contains(text) {
            return;
        }
        assert!(Instant::now() < deadline, "{said}\n{}", site.logs());
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_rule_before_the_clients_is_no_health_until_it_is_gone() {
    if !privileged("neighbours: rules") {
        return;
    }
    let site = Site::start(SiteConfig::new(BENTPIPE)).expect("a site");
    let terminal = site.topology.terminal();
    let ip = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        terminal.run("ip", &words).expect(line);
    };
    await_check(&site, true, "");
    ip("route add blackhole default table 50");
    ip("rule add priority 98 iif lan0 lookup 50");
    await_check(&site, false, "is asked before those of bentpipe");
    ip("rule del priority 98");
    await_check(&site, true, "");
}

#[test]
fn a_client_runs_without_its_status_socket_and_binds_it_later() {
    if !privileged("neighbours: status socket") {
        return;
    }
    let mut site = Site::plain(SiteConfig::new(BENTPIPE)).expect("a site");
    let socket = site.client_home().join("client.sock");
    site.start_server().expect("it starts");
    fs::create_dir(&socket).expect("a directory");
    // The site waits for the socket, so this is done while it does.
    let making_room = thread::spawn(move || {
        thread::sleep(Duration::from_secs(3));
        fs::remove_dir(&socket).expect("it is empty");
    });
    site.start_client()
        .expect("it starts, and binds the socket");
    making_room.join().expect("room");
    await_check(&site, true, "");
    let log = site.logs();
    assert!(log.contains("exists and is no socket"), "{log}");
    assert!(log.contains("is bound now"), "{log}");
}

//! Signals and places of a daemon's own that no configuration names.

use std::fs;
use std::net::UdpSocket;
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::home::{Home, PATIENCE, Running, run};
use crate::BENTPIPE;

#[test]
fn signals_that_mean_nothing_kill_nobody_and_one_logs_the_status() {
    for role in ["client", "server"] {
        let home = Home::new();
        let socket = home.path(&format!("{role}.sock"));
        let running = Running::start(home.daemon(role), &socket);
        for signal in ["USR1", "USR2", "PIPE", "HUP"] {
            running.signal(signal);
        }
        // Who answers now has lived through them.
        thread::sleep(Duration::from_millis(200));
        let mut status = Command::new(BENTPIPE);
        status.args(["status", "--socket"]).arg(&socket);
        let status = run(&mut status);
        assert_eq!(status.code, Some(0), "{}", status.stderr);
        let ended = running.stop();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let shown = format!("status: bentpipe {role} ");
        assert!(ended.stderr.contains(&shown), "{}", ended.stderr);
    }
}

/// A client does not read its file again, and says what a restart would change.
#[test]
fn a_clients_hangup_says_what_has_changed() {
    let home = Home::new();
    let running = Running::start(home.daemon("client"), &home.path("client.sock"));
    let hang_up = || {
        running.signal("HUP");
        thread::sleep(Duration::from_secs(2));
    };
    hang_up();
    home.edit(
        "client.toml",
        "state_dir = \"state\"",
        "state_dir = \"other\"",
    );
    hang_up();
    home.edit(
        "client.toml",
        "state_dir = \"other\"",
        "state_dri = \"other\"",
    );
    hang_up();
    let log = running.stop().stderr;
    for text in [
        "nothing to reload: ",
        "nothing was reloaded: state_dir of ",
        "would not start again: ",
    ] {
        assert!(log.contains(text), "no `{text}`: {log}");
    }
}

#[test]
fn the_wildcard_of_ipv6_is_reached_by_both_families() {
    let home = Home::new();
    let free = UdpSocket::bind("[::]:0").expect("a port");
    let port = free.local_addr().expect("an address").port();
    drop(free);
    home.edit("server.toml", "127.0.0.1:0", &format!(":{port}"));
    let running = Running::start(home.daemon("server"), &home.path("server.sock"));
    for address in ["127.0.0.1", "[::1]"] {
        let asked = UdpSocket::bind(format!("{address}:0")).expect("a port");
        asked.connect(format!("{address}:{port}")).expect("a route");
        // QUIC of a version that nobody has is answered with those that there are.
        let mut initial = [0_u8; 1200];
        initial[..6].copy_from_slice(&[0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8]);
        asked.set_read_timeout(Some(PATIENCE)).expect("a time");
        asked.send(&initial).expect("sent");
        assert!(asked.recv(&mut [0; 1500]).is_ok(), "{address} is silent");
    }
    assert_eq!(running.stop().code, Some(0));
}

#[test]
fn what_is_remembered_goes_where_the_service_manager_says_or_to_the_user() {
    for (set, place) in [
        ("STATE_DIRECTORY", "given"),
        ("XDG_STATE_HOME", "home/bentpipe"),
        ("HOME", "home/.local/state/bentpipe"),
    ] {
        let home = Home::new();
        home.edit("client.toml", "state_dir = \"state\"\n", "");
        fs::create_dir(home.path("home")).expect("a directory");
        let mut client = home.daemon_of_nobody("client");
        client
            .env_remove("STATE_DIRECTORY")
            .env_remove("XDG_STATE_HOME")
            .env("HOME", home.path("none"))
            .env(
                set,
                home.path(if set == "STATE_DIRECTORY" {
                    "given"
                } else {
                    "home"
                }),
            );
        let running = Running::start(client, &home.path("client.sock"));
        assert!(home.path(place).is_dir(), "{set}: no {place}");
        let ended = running.stop();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(
            !ended.stderr.contains("cannot remember"),
            "{}",
            ended.stderr
        );
    }
}

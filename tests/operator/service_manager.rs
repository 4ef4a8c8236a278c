//! What the service manager hears, on a socket of the test's own: as systemd would be told.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::config_errors::home::{Home, PATIENCE, Running};

/// Time that the watchdog of these tests allows. A shard takes a turn each second.
const WATCHDOG: Duration = Duration::from_secs(4);

/// The service manager's end.
struct Manager {
    socket: UnixDatagram,
}

impl Manager {
    fn new(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time");
        Self { socket }
    }

    /// The next message, which is lines of NAME=VALUE.
    fn hear(&self) -> String {
        let mut message = [0; 4096];
        let length = self.socket.recv(&mut message).expect("a message in time");
        String::from_utf8(message[..length].to_vec()).expect("text")
    }

    /// The next message with the line `wanted`.
    fn wait_for(&self, wanted: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let message = self.hear();
            if message.lines().any(|line| line == wanted) {
                return message;
            }
            assert!(Instant::now() < deadline, "no {wanted}, but {message}");
        }
    }
}

/// A daemon in `role` that speaks to the returned manager.
fn start(home: &Home, role: &str, watchdog: bool) -> (Manager, Running) {
    let path = home.path("notify");
    let manager = Manager::new(&path);
    let mut daemon = home.daemon(role);
    daemon.env("NOTIFY_SOCKET", &path);
    if watchdog {
        daemon.env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string());
    }
    let running = Running::start(daemon, &home.path(&format!("{role}.sock")));
    (manager, running)
}

#[test]
fn both_daemons_say_when_they_serve_how_they_fare_and_that_they_stop() {
    for (role, health) in [
        ("server", "STATUS=server on 127.0.0.1:"),
        ("client", "STATUS=tunnel to "),
    ] {
        let home = Home::new();
        let (manager, running) = start(&home, role, false);
        assert_eq!(manager.hear(), "READY=1\n", "{role} says this first");
        let status = manager.hear();
        assert!(status.starts_with(health), "{role}: {status}");
        running.signal("TERM");
        let stopping = manager.wait_for("STOPPING=1");
        let patience = stopping
            .lines()
            .find_map(|line| line.strip_prefix("EXTEND_TIMEOUT_USEC="))
            .expect("a time to wait");
        assert!(patience.parse::<u64>().expect("a number") > 1_000_000);
        let ended = running.stop();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(
            !ended.stderr.contains("service manager"),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn a_reload_is_told_from_its_beginning_to_its_end() {
    let home = Home::new();
    let (manager, running) = start(&home, "server", false);
    manager.wait_for("READY=1");
    let before = clock_gettime(ClockId::Monotonic);
    running.signal("HUP");
    let reloading = manager.wait_for("RELOADING=1");
    let began = reloading
        .lines()
        .find_map(|line| line.strip_prefix("MONOTONIC_USEC="))
        .expect("the time that systemd wants to know");
    let began: i64 = began.parse().expect("a number");
    assert!(began >= before.tv_sec * 1_000_000 + before.tv_nsec / 1000);
    assert_eq!(manager.hear(), "READY=1\n");
    assert_eq!(running.stop().code, Some(0));
}

#[test]
fn the_watchdog_is_fed_in_time_while_the_shards_run() {
    for role in ["server", "client"] {
        let home = Home::new();
        let (manager, running) = start(&home, role, true);
        manager.wait_for("WATCHDOG=1");
        for _ in 0..3 {
            let before = Instant::now();
            manager.wait_for("WATCHDOG=1");
            let waited = before.elapsed();
            assert!(waited < WATCHDOG, "{role}: {waited:?}");
        }
        assert_eq!(running.stop().code, Some(0));
    }
}

#[test]
fn no_watchdog_is_fed_that_nobody_has_set() {
    let home = Home::new();
    let (manager, running) = start(&home, "server", false);
    manager.wait_for("READY=1");
    let quiet = Duration::from_secs(3);
    manager
        .socket
        .set_read_timeout(Some(quiet))
        .expect("a time");
    let mut message = [0; 4096];
    while let Ok(length) = manager.socket.recv(&mut message) {
        let message = String::from_utf8_lossy(&message[..length]);
        assert!(message.starts_with("STATUS="), "{message}");
    }
    assert_eq!(running.stop().code, Some(0));
}

#[test]
fn a_service_manager_that_is_gone_is_named_and_no_reason_to_end() {
    let home = Home::new();
    let mut daemon = home.daemon("server");
    daemon.env("NOTIFY_SOCKET", home.path("nobody"));
    let running = Running::start(daemon, &home.path("server.sock"));
    let ended = running.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let named = ended.stderr.matches("cannot reach the service manager");
    assert_eq!(named.count(), 1, "{}", ended.stderr);
}

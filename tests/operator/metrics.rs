//! What Prometheus reads of a daemon, over a real socket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use bentpipe_testbed::daemon::free_port;

use super::config_errors::home::{Home, PATIENCE, Running, run};

/// Starts a daemon in `role` that serves metrics; returns where.
fn start(home: &Home, role: &str) -> (Running, SocketAddr) {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let file = format!("{role}.toml");
    let text = std::fs::read_to_string(home.path(&file)).expect("a file");
    home.write(
        &file,
        &format!("{text}\n[metrics]\nlisten = \"{address}\"\n"),
    );
    let running = Running::start(home.daemon(role), &home.path(&format!("{role}.sock")));
    (running, address)
}

/// The answer to one request, head and body.
fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("metrics are served");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    let head = format!("{request} HTTP/1.1\r\nHost: metrics\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn both_daemons_serve_their_status_as_openmetrics() {
    for (role, wanted) in [
        ("server", "bentpipe_families_ipv4 "),
        ("client", "bentpipe_tunnel_state{state=\"connecting\"} 1.0"),
    ] {
        let home = Home::new();
        let (daemon, address) = start(&home, role);
        let answer = ask(address, "GET /metrics");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        assert!(
            head.contains("application/openmetrics-text; version=1.0.0"),
            "{head}"
        );
        assert!(body.contains(wanted), "{role}: {body}");
        assert!(
            body.contains("# TYPE bentpipe_uptime_s gauge"),
            "{role}: {body}"
        );
        assert!(body.ends_with("# EOF\n"), "{role}: {body}");
        assert!(ask(address, "GET /").starts_with("HTTP/1.1 404 "), "{role}");
        assert!(
            ask(address, "POST /metrics").starts_with("HTTP/1.1 405 "),
            "{role}"
        );
        let ended = daemon.stop();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(
            ended
                .stderr
                .contains(&format!("metrics at http://{address}/metrics"))
        );
    }
}

/// Somebody who connects and says nothing keeps the port for some seconds, and never more than that.
#[test]
fn who_says_nothing_to_the_metrics_is_left() {
    let home = Home::new();
    let (_daemon, address) = start(&home, "server");
    let mut silent = TcpStream::connect(address).expect("metrics are served");
    silent.set_read_timeout(Some(PATIENCE)).expect("a time");
    assert_eq!(
        silent.read(&mut [0; 1]).expect("an end"),
        0,
        "it was closed"
    );
    assert!(ask(address, "GET /metrics").starts_with("HTTP/1.1 200 OK"));
}

#[test]
fn a_port_of_metrics_that_another_has_is_named() {
    let home = Home::new();
    let (_daemon, address) = start(&home, "server");
    let other = Home::new();
    let text = std::fs::read_to_string(other.path("server.toml")).expect("a file");
    other.write(
        "server.toml",
        &format!("{text}\n[metrics]\nlisten = \"{address}\"\n"),
    );
    run(&mut other.daemon("server")).must_say(
        5,
        "server.toml:10: ",
        &[&address.to_string(), "in use"],
    );
}

/// A reload cannot move the metrics, and says so.
#[test]
fn metrics_elsewhere_need_a_restart() {
    let home = Home::new();
    let (daemon, address) = start(&home, "server");
    let elsewhere = SocketAddr::from(([127, 0, 0, 1], free_port()));
    home.edit("server.toml", &address.to_string(), &elsewhere.to_string());
    daemon.signal("HUP");
    std::thread::sleep(Duration::from_secs(2));
    let ended = daemon.stop();
    assert!(ended.stderr.contains("metrics.listen"), "{}", ended.stderr);
}

/// Has the process open no more descriptors than this, until it raises its limit.
fn limit(daemon: &Running, most: u32) {
    let (pid, limit) = (daemon.id().to_string(), format!("--nofile={most}:"));
    let status = Command::new("prlimit")
        .args(["--pid", &pid, &limit])
        .status();
    assert!(status.is_ok_and(|status| status.success()), "prlimit");
}

/// Eight places of the metrics, and both ways to the responder, meet the same error.
#[test]
fn a_daemon_without_descriptors_says_so_once() {
    let home = Home::new();
    let responder = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let text = std::fs::read_to_string(home.path("server.toml")).expect("a file");
    let table = format!("[responder]\nlisten = \"{responder}\"\n");
    home.write("server.toml", &format!("{text}\n{table}"));
    let (daemon, metrics) = start(&home, "server");
    // All is set up once it answers.
    ask(metrics, "GET /metrics");
    limit(&daemon, 4);
    let connect = |to| TcpStream::connect(to).expect("it listens");
    let _waiting = [metrics, responder, metrics, responder].map(connect);
    std::thread::sleep(Duration::from_secs(3));
    // Stopping takes descriptors again.
    limit(&daemon, 1024);
    let log = daemon.stop().stderr;
    let count = |text| log.matches(text).count();
    assert_eq!(count("no file descriptors left"), 1, "{log}");
    let others = ["cannot serve the", "the responder cannot accept"].map(count);
    assert_eq!(others, [0, 0], "{log}");
}

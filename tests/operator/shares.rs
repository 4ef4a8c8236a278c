//! The descriptors of a server, which its clients share.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_testbed::daemon::free_port;
use bentpipe_testbed::status::report;

use super::config_errors::home::Running;
use super::joining::{Site, through};
use crate::BENTPIPE;

/// Descriptors of the server, of which a quarter is kept for all else than flows.
const FILES: usize = 240;

/// Flows that one client may hold while there are others: three quarters of the places.
const SHARE: usize = FILES * 3 / 4 * 3 / 4;

/// A service on this machine that sends back what comes; its port.
fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || io::copy(&mut &stream, &mut &stream));
        }
    });
    port
}

/// A flow through the proxy at `socks` that carries something.
fn carried(socks: u16, port: u16) -> Option<TcpStream> {
    let mut stream = through(socks, port);
    stream.write_all(b"?").ok()?;
    stream.read_exact(&mut [0]).ok()?;
    Some(stream)
}

/// Flows of the greedy client and of the modest one that were refused for a limit, as `status` says.
fn refused(site: &Site) -> [Option<u64>; 2] {
    let status = report(BENTPIPE, &site.path("server.sock")).expect("a report");
    ["greedy", "modest"].map(|name| {
        let clients = status["clients"].as_array().expect("clients");
        let client = clients.iter().find(|client| client["name"] == name)?;
        client["flows"]["refused"]["limit"].as_u64()
    })
}

/// Has both clients join; returns where their proxies listen.
fn joined(site: &Site) -> [u16; 2] {
    ["greedy", "modest"].map(|name| {
        let code = site.add(name, &[]);
        site.join(name, &code)
    })
}

/// Starts a server that may have [`FILES`] descriptors, and both clients, which are ready.
fn started(site: &Site) -> (Running, [Running; 2]) {
    let mut limited = Command::new("prlimit");
    limited.args([&format!("--nofile={FILES}:{FILES}"), BENTPIPE]);
    let server = site.start_server_by(limited, &[]);
    let clients = ["greedy", "modest"].map(|name| {
        let client = site.start_client_with(name, &[]);
        site.wait_for(name, "ready");
        client
    });
    (server, clients)
}

#[test]
fn a_client_that_opens_all_that_it_can_leaves_room_for_another() {
    let site = Site::new();
    let [greedy, modest] = joined(&site);
    let (server, _clients) = started(&site);
    let port = echo();
    let mut held: Vec<_> = (0..FILES).filter_map(|_| carried(greedy, port)).collect();
    assert_eq!(held.len(), SHARE);
    // A quarter of all places, and of those three quarters.
    let others = (0..30).filter_map(|_| carried(modest, port)).count();
    assert_eq!(others, 30);

    // A daemon publishes its figures once a second.
    let deadline = Instant::now() + Duration::from_secs(10);
    let wanted = [Some((FILES - SHARE) as u64), Some(0)];
    while refused(&site) != wanted {
        assert!(Instant::now() < deadline, "{:?}", refused(&site));
        thread::sleep(Duration::from_millis(50));
    }

    // What ends makes room.
    held.truncate(SHARE / 2);
    let mut more = 0;
    for _ in 0..200 {
        more += usize::from(carried(greedy, port).map(|flow| held.push(flow)).is_some());
        if more == 10 {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(more, 10);
    drop(held);
    let log = server.stop().stderr;
    let said =
        "greedy has its share of the 180 connections that this process has file descriptors for";
    assert_eq!(log.matches(said).count(), 1, "{log}");
    assert!(
        !log.contains("modest has its share") && !log.contains("no file descriptors left"),
        "{log}"
    );
}

/// Connection to a published port that carries something.
fn comes_in(port: u16) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    stream.write_all(b"?").ok()?;
    stream.read_exact(&mut [0]).ok()?;
    Some(stream)
}

#[test]
fn connections_that_come_in_at_a_clients_port_count_for_that_client() {
    let site = Site::new();
    let [greedy, modest] = joined(&site);
    let (port, published) = (echo(), free_port());
    let change = |file: &str, old: &str, new: &str| {
        let text = fs::read_to_string(site.path(file)).expect("it was made");
        assert!(text.contains(old), "{text}");
        fs::write(site.path(file), text.replacen(old, new, 1)).expect("it is ours");
    };
    let named = "name = \"greedy\"\n";
    let permitted = format!("{named}publish = [\"tcp/{published}\"]\n");
    change("server.toml", named, &permitted);
    let asked = format!("[[publish]]\nport = {published}\nto = \"127.0.0.1:{port}\"\n[link]");
    change("greedy/client.toml", "[link]", &asked);
    let (server, _clients) = started(&site);
    let deadline = Instant::now() + Duration::from_secs(10);
    while comes_in(published).is_none() {
        assert!(Instant::now() < deadline, "the port is not published");
        thread::sleep(Duration::from_millis(50));
    }
    // The one that has found the port open ends when it is noticed.
    thread::sleep(Duration::from_secs(1));
    let held: Vec<_> = (0..FILES).filter_map(|_| comes_in(published)).collect();
    // Two of the share are the port's own.
    assert!(
        (SHARE - 4..=SHARE - 2).contains(&held.len()),
        "{}",
        held.len()
    );
    assert!(carried(greedy, port).is_none(), "its share is used up");
    let others = (0..30).filter_map(|_| carried(modest, port)).count();
    assert_eq!(others, 30);
    drop(held);
    let log = server.stop().stderr;
    assert!(
        log.contains("greedy has its share") && !log.contains("no file descriptors left"),
        "{log}"
    );
}

//! Peers whose key nobody knows: what they cost the server, whom they keep out, and what they can make a daemon say.
//!
//! Real daemons, strangers made of quinn's state machine or of bytes. What needs no satellite runs on loopback addresses and
//! needs no privileges.

mod forged;
mod initial;
mod peers;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Error, bail, ensure};
use bentpipe_emulator::topology::{GATEWAY_SAT, WEB};
use bentpipe_emulator::usage::{cpu_seconds, resident, thread_cpu_seconds};
use bentpipe_testbed::daemon::{Daemon, free_port};
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{PORT, SiteConfig, fast_geo};
use bentpipe_testbed::transfer::{Transfer, Way};
use bentpipe_tunnel::engine::identity::PrivateKey;

use crate::BENTPIPE;
use crate::{SOON, on_site};
use initial::Forger;
use peers::{Server, Stranger, Tunnels};

/// Listed clients that connect and say nothing.
const IDLE: usize = 200;

/// Listed clients that are there before: what the server needs once, whatever their number, is no tunnel's.
const FIRST: usize = 20;

/// Memory that an idle tunnel takes of the server, in bytes.
const TUNNEL: u64 = 48_000;

/// CPU time that a tunnel takes of the server until it is idle, as a multiple of what its client's handshake takes. Both do
/// that in one run, so the machine's speed does not count.
const TUNNEL_CPU: f64 = 2.2;

/// Handshakes that strangers begin and leave alone.
const HALF_OPEN: usize = 2600;

const MB: u64 = 1_000_000;

/// Memory that a flood may leave a server with.
const KEPT: u64 = 20 * MB;

const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 7, 7, 7);

/// Another host of the attacker's /24, and one elsewhere.
const CLIENTS: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 7, 7, 8), Ipv4Addr::new(127, 0, 0, 9)];

#[test]
fn idle_tunnels_cost_little() {
    let (memory, cpu) = idle_tunnels(IDLE);
    assert!(memory <= 20 * MB, "{memory} B");
    assert!(cpu <= TUNNEL_CPU, "{cpu:.2} times the client's CPU time");
}

/// Takes a minute.
#[test]
#[ignore = "a minute; `make test-full` runs it"]
fn a_thousand_idle_tunnels_cost_little() {
    let (memory, _) = idle_tunnels(1000);
    assert!(memory <= 100 * MB, "{memory} B");
}

/// Bytes of memory that a server takes for `count` idle tunnels and for all that comes before, and its CPU time until they are
/// idle as a multiple of what their clients' handshakes take. Panics if they take more memory than [`TUNNEL`] each.
fn idle_tunnels(count: usize) -> (u64, f64) {
    let all: Vec<_> = (0..FIRST + count)
        .map(|_| PrivateKey::generate().expect("a key"))
        .collect();
    let (first, keys) = all.split_at(FIRST);
    let server = Server::start(&all);
    let start = server.memory();
    let _first = Tunnels::connect(&server, CLIENTS[0], first);
    thread::sleep(Duration::from_secs(2));
    let (before, own) = ((server.memory(), server.cpu()), thread_cpu_seconds());
    let tunnels = Tunnels::connect(&server, CLIENTS[1], keys);
    let own = thread_cpu_seconds() - own;
    thread::sleep(Duration::from_secs(2));
    let end = server.memory();
    let (memory, cpu) = (end - before.0, server.cpu() - before.1);
    let each = memory / count as u64;
    println!(
        "{count} idle tunnels: {memory} B, {each} B each, {cpu:.2} s of CPU time, of their clients' handshakes {own:.2} s"
    );
    assert_eq!(tunnels.alive(), count);
    assert!(each <= TUNNEL, "{each} B each");
    (end - start, cpu / own)
}

#[test]
fn half_open_handshakes_cost_little_and_keep_nobody_out() {
    let keys: Vec<_> = CLIENTS
        .iter()
        .map(|_| PrivateKey::generate().expect("a key"))
        .collect();
    let server = Server::start(&keys);
    let before = (server.memory(), server.cpu());
    let (mut most, stop) = (before.0, Arc::new(AtomicBool::new(false)));
    let flood = {
        let (address, key, stop) = (server.address, server.public_key(), stop.clone());
        thread::spawn(move || {
            let mut stranger = Stranger::new(ATTACKER, address, key);
            for _ in 0..HALF_OPEN {
                stranger.begin();
            }
            // It goes on at a lower rate.
            while !stop.load(Ordering::Relaxed) {
                stranger.begin();
                thread::sleep(Duration::from_millis(2));
            }
            stranger.begun()
        })
    };
    thread::sleep(Duration::from_secs(2));
    for (source, key) in CLIENTS.into_iter().zip(&keys) {
        let began = Instant::now();
        let tunnel = Tunnels::connect(&server, source, std::slice::from_ref(key));
        let took = began.elapsed();
        println!("a client at {source} is in after {took:?}");
        assert!(took < Duration::from_secs(3), "{source}: {took:?}");
        assert_eq!(tunnel.alive(), 1);
        most = most.max(server.memory());
    }
    stop.store(true, Ordering::Relaxed);
    let begun = flood.join().expect("a thread");
    let (grown, cpu) = (most - before.0, server.cpu() - before.1);
    println!("{begun} handshakes begun: at most {grown} B more, {cpu:.2} s of CPU time");
    assert!(begun >= HALF_OPEN, "{begun}");
    assert!(grown <= 100 * MB, "{grown} B");
    assert!(cpu <= 4.0, "{cpu} s of CPU time");
    // What strangers took is given back once they are gone.
    let deadline = Instant::now() + Duration::from_secs(60);
    while server.memory() > before.0 + KEPT {
        let kept = server.memory() - before.0;
        assert!(Instant::now() < deadline, "{kept} B are kept");
        thread::sleep(Duration::from_millis(500));
    }
}

/// Begins handshakes as fast as one thread can, until `stop`; returns how many.
fn flood(mut stranger: Stranger, stop: &AtomicBool) -> usize {
    while !stop.load(Ordering::Relaxed) {
        stranger.begin();
    }
    stranger.begun()
}

#[test]
fn half_open_handshakes_leave_a_tunnel_its_rate() {
    let config = SiteConfig {
        scenario: fast_geo(),
        ..SiteConfig::new(BENTPIPE)
    };
    on_site("flood beside a tunnel", config, |site| {
        site.start_server()?;
        site.start_client()?;
        let [route, _] = site.routes();
        let transfer = Transfer::start(&route, Way::Download, 70_000_000)?;
        let took = |bytes| {
            let began = Instant::now();
            transfer.until(bytes, SOON).map(|()| began.elapsed())
        };
        let server = SocketAddr::new(GATEWAY_SAT.into(), PORT);
        let key = site.topology.directory().join("server.key");
        let key = bentpipe_pep::keys::read(&key).map_err(Error::msg)?.public();
        let web = Place::from(site.topology.web());
        let mut arrived = 5_000_000;
        took(arrived)?;
        let mut more = || {
            arrived += 8_000_000;
            took(arrived)
        };
        // A busy machine slows down one or the other; a flood that costs the tunnel its rate does so each time.
        let mut alone = Duration::MAX;
        for _ in 0..3 {
            alone = alone.min(more()?);
            let stranger = web.at(|| Stranger::new(WEB, server, key))?;
            let stop = AtomicBool::new(false);
            let (beside, begun) = thread::scope(|scope| {
                let flood = scope.spawn(|| flood(stranger, &stop));
                let beside = more();
                stop.store(true, Ordering::Relaxed);
                (beside, flood.join().expect("a thread"))
            });
            let ratio = alone.as_secs_f64() / beside?.as_secs_f64();
            println!("{begun} handshakes begun: a tunnel has {ratio:.2} of its rate");
            // More than one address may have open at once.
            ensure!(begun >= 300, "only {begun} handshakes were begun");
            if ratio >= 0.8 {
                return Ok(());
            }
        }
        bail!("less than 0.8 of the rate, three times")
    });
}

#[test]
fn nobody_forges_lines_of_a_clients_log() {
    let server = PrivateKey::generate().expect("a key");
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = socket.local_addr().expect("bound");
    let client = peers::client(address, &server.public());
    let forged = "x\n2026-11-25T09:00:00.000000Z  INFO ready: tunnel to forged\r\x1b[2J";
    Forger::new(socket).close(0x0a, forged.as_bytes());
    client.wait_for("without having shown", SOON);
    thread::sleep(Duration::from_millis(200));
    let log = client.log();
    assert!(log.contains("\\n2026-11-25"), "escaped:\n{log}");
    assert!(
        !log.lines()
            .any(|line| line.starts_with("2026-11-25T09:00:00.000000Z")),
        "{log}"
    );
    assert!(!log.contains(['\r', '\x1b']), "{log}");
}

#[test]
fn a_refusal_is_believed_only_of_the_server() {
    let server = PrivateKey::generate().expect("a key");
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = socket.local_addr().expect("bound");
    let client = peers::client(address, &server.public());
    // ACCESS_DENIED of TLS, which says that a client is unknown.
    Forger::new(socket).close(0x100 + 49, b"");
    client.wait_for("without having shown the server's key", SOON);
    assert!(
        !client.log().contains("does not know this client"),
        "{}",
        client.log()
    );
}

#[test]
fn no_client_forges_lines_of_the_servers_log() {
    let key = PrivateKey::generate().expect("a key");
    let server = Server::start(std::slice::from_ref(&key));
    let tunnel = Tunnels::connect(&server, CLIENTS[1], std::slice::from_ref(&key));
    let forged = "bye\n2026-11-25T00:00:00.000000Z  INFO connected client=\"terminal-9\"\x1b[31m";
    tunnel.close(&format!("{forged}{}", "x".repeat(500)));
    server.daemon.wait_for("disconnected", SOON);
    let log = server.daemon.log();
    assert!(
        !log.lines()
            .any(|line| line.starts_with("2026-11-25T00:00:00.000000Z")),
        "{log}"
    );
    assert!(log.contains("bye\\n") && !log.contains('\x1b'), "{log}");
    assert!(!log.contains(&"x".repeat(100)), "cut:\n{log}");
}

#[test]
fn of_two_servers_started_at_once_one_runs() {
    let key = [PrivateKey::generate().expect("a key")];
    for round in 0..25 {
        let port = free_port();
        let address = SocketAddr::new(IpAddr::from(Ipv4Addr::LOCALHOST), port);
        let daemons = [(); 2].map(|()| peers::server(address, &key, 4));
        let deadline = Instant::now() + SOON;
        let ready = |daemon: &Daemon| daemon.log().contains("INFO ready");
        let done = |daemon: &Daemon| ready(daemon) || daemon.ended().is_some();
        while !daemons.iter().all(done) {
            assert!(Instant::now() < deadline, "round {round}");
            thread::sleep(Duration::from_millis(5));
        }
        let logs = daemons.each_ref().map(Daemon::log).join("---\n");
        let running = daemons.iter().filter(|daemon| ready(daemon)).count();
        assert_eq!(running, 1, "round {round}:\n{logs}");
        let ended: Vec<_> = daemons.iter().filter_map(Daemon::ended).collect();
        assert_eq!(ended, [5], "round {round}:\n{logs}");
    }
}

/// CPU time and memory of a server.
impl Server {
    fn cpu(&self) -> f64 {
        cpu_seconds(self.daemon.id()).expect("it lives")
    }

    fn memory(&self) -> u64 {
        resident(self.daemon.id()).expect("the server lives")
    }
}

//! Thousands of connections that say nothing, and some that do: what they cost. Needs root.
//!
//! As many as one process may have files open; forty thousand are then a matter of multiplication, and of
//! `crates/pep/tests/flows`, where they are in virtual time.
#![expect(
    clippy::disallowed_methods,
    reason = "these tests watch real processes by the machine's clock"
)]

mod common;

use std::env;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use bentpipe_lab::topology::WEB;
use bentpipe_lab::usage::cpu_seconds;

use common::peer::{PATIENCE, listen, set_patience};
use common::route::Place;
use common::site::{Site, SiteConfig, near};
use common::{privileged, raise_file_limit};

const IDLE: usize = 18_000;
const ACTIVE: usize = 200;

/// Where the far end of all connections listens; its own process, for one may not have enough open files for both.
const FAR_END: &str = "BENTPIPE_TEST_FAR_END";

/// What client and server together may take in memory with `MANY` idle connections.
const CEILING: u64 = 400_000_000;
const MANY: u64 = 40_000;

/// What of that is for conversations: the 200 of `crates/pep/tests/flows`, data on its way included, take 80 MB.
const ACTIVE_MEMORY: u64 = 80_000_000;

/// Most CPU time of either daemon while nothing is said.
const CPU_SHARE: f64 = 0.01;

/// Watched for so long. Longer than the interval of keepalives.
const WATCHED: Duration = Duration::from_secs(30);

#[test]
#[ignore = "slow: run by `make test-full`"]
fn idle_flows_cost_little() {
    if !privileged("idle flows") {
        return;
    }
    let site = Site::start(SiteConfig {
        scenario: near(),
        ..SiteConfig::default()
    })
    .expect("a site");
    let user: Place = site.topology.user().into();
    let address = SocketAddr::new(WEB.into(), 7007);
    let mut command = Command::new(env::current_exe().expect("this test"));
    command
        .args(["--exact", "the_far_end", "--ignored", "--nocapture"])
        .env(FAR_END, address.to_string());
    let far_end = site
        .topology
        .spawn_in(site.topology.web(), command)
        .expect("a process");
    far_end
        .wait_for_line("listening", PATIENCE)
        .expect("the far end");

    let mut flows = connect(&user, address, ACTIVE);
    let before = resident(&site);
    flows.extend(connect(&user, address, IDLE));
    let each = (resident(&site) - before) / IDLE as u64;
    let spent = cpu(&site);
    thread::sleep(WATCHED);
    let shares = [0, 1].map(|daemon| (cpu(&site)[daemon] - spent[daemon]) / WATCHED.as_secs_f64());
    let all = before + MANY * each + ACTIVE_MEMORY;
    println!(
        "{each} B of memory for one idle flow in both daemons, {before} B without; {all} B with {MANY}; CPU shares \
         {shares:?}"
    );
    assert!(all <= CEILING, "{all} B with {MANY} idle flows");
    assert!(shares.iter().all(|share| *share < CPU_SHARE), "{shares:?}");

    // All of them are still there, and the active ones do not mind the others.
    for flow in &mut flows[..ACTIVE] {
        say(flow);
    }
    for flow in flows.iter_mut().rev().take(ACTIVE) {
        say(flow);
    }
}

/// No test: what the other one starts in the web's namespace.
#[test]
#[ignore = "started by idle_flows_cost_little"]
fn the_far_end() {
    let Ok(address) = env::var(FAR_END) else {
        return;
    };
    raise_file_limit();
    let listener = listen(address.parse().expect("an address")).expect("a listener");
    eprintln!("listening");
    echo_all(&listener);
}

/// Opens `count` connections, each with one round of conversation, a hundred at a time.
fn connect(user: &Place, address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let open = || {
        let stream = TcpStream::connect_timeout(&address, PATIENCE).expect("a connection");
        set_patience(&stream, PATIENCE).expect("a socket");
        stream
    };
    let mut flows = Vec::with_capacity(count);
    while flows.len() < count {
        let size = (count - flows.len()).min(100);
        let mut batch = user
            .at(|| (0..size).map(|_| open()).collect::<Vec<_>>())
            .expect("a namespace");
        for flow in &mut batch {
            flow.write_all(b"hello").expect("the flow is open");
        }
        for flow in &mut batch {
            flow.read_exact(&mut [0; 5]).expect("an echo");
        }
        flows.extend(batch);
    }
    flows
}

fn say(flow: &mut TcpStream) {
    flow.write_all(b"still").expect("the flow is open");
    flow.read_exact(&mut [0; 5]).expect("an echo");
}

/// Echoes on every connection, from one thread: five bytes at a time, whoever has said something.
fn echo_all(listener: &TcpListener) {
    listener.set_nonblocking(true).expect("a listener");
    let mut streams: Vec<TcpStream> = Vec::new();
    loop {
        let mut idle = true;
        while let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(true).expect("a socket");
            streams.push(stream);
            idle = false;
        }
        let mut buffer = [0; 64];
        for stream in &mut streams {
            if let Ok(n @ 1..) = stream.read(&mut buffer) {
                let _ = stream.write_all(&buffer[..n]);
                idle = false;
            }
        }
        if idle {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Resident memory of both daemons, in bytes.
fn resident(site: &Site) -> u64 {
    // What has just been opened settles first: queues drain, buffers go back.
    thread::sleep(Duration::from_secs(2));
    let of = |process: u32| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it lives");
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        kilobytes.expect("a number") * 1024
    };
    of(site.client().id()) + of(site.server().id())
}

/// CPU seconds of client and server so far.
fn cpu(site: &Site) -> [f64; 2] {
    [site.client(), site.server()].map(|daemon| cpu_seconds(daemon.id()).expect("it lives"))
}

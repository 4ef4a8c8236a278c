//! Hits beside dnsmasq's, in one run: the same names, the same host, by turns.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use bentpipe_testbed::route::Place;
use bentpipe_testbed::{installed, privileged};

use super::resolver::Resolver;
use super::{Host, LISTEN, median, query, site, verdict, web};

/// Where dnsmasq answers.
const DNSMASQ: &str = "127.0.0.1:5301";

/// Names in both caches.
const NAMES: usize = 100;

/// Queries under way at once.
const WINDOW: usize = 16;

/// Queries of a round.
const QUERIES: usize = 20_000;

/// How long a round takes.
fn round(host: &Host, server: SocketAddr, queries: &[Vec<u8>]) -> Duration {
    let start = Instant::now();
    let mut buffer = [0; 1024];
    let (mut sent, mut received) = (0, 0);
    while received < QUERIES {
        while sent < QUERIES && sent - received < WINDOW {
            let asked = &queries[sent % queries.len()];
            host.0.send_to(asked, server).expect("sent");
            sent += 1;
        }
        let n = host.0.recv(&mut buffer).expect("an answer");
        assert_eq!(verdict(&buffer[..n]).0, 0);
        received += 1;
    }
    start.elapsed()
}

#[test]
#[ignore = "compares speed, which needs a quiet machine: --release -- --ignored"]
fn hits_are_at_least_as_fast_as_those_of_dnsmasq() {
    let _alone = crate::alone();
    if !privileged("dns: dnsmasq") || !installed("dns: dnsmasq", "dnsmasq") {
        return;
    }
    let site = site();
    let _resolver = Resolver::start(&site.topology.web().into(), web()).expect("a resolver");
    let mut command = Command::new("dnsmasq");
    command.args([
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--no-hosts",
        "--no-resolv",
    ]);
    command.args([
        "--port=5301",
        "--listen-address=127.0.0.1",
        "--bind-interfaces",
    ]);
    command.args(["--cache-size=10000", "--user=root", "--pid-file="]);
    command.arg(format!("--server={}", web().ip()));
    let terminal = site.topology.terminal();
    let _dnsmasq = site.topology.spawn_in(terminal, command).expect("dnsmasq");
    let host = Host::at(&site);
    let servers = [LISTEN, DNSMASQ].map(|text| text.parse::<SocketAddr>().expect("an address"));
    // Until it listens.
    let place: Place = terminal.into();
    let listens = || std::net::TcpStream::connect(DNSMASQ).is_ok();
    let until = Instant::now() + Duration::from_secs(5);
    while !place.at(listens).expect("the place") && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    let names = (0..NAMES).map(|number| format!("name-{number}.example"));
    let queries: Vec<_> = names.map(|name| query(&name)).collect();
    let mut times = [Vec::new(), Vec::new()];
    for server in servers {
        for asked in queries.chunks(WINDOW) {
            for one in asked {
                host.0.send_to(one, server).expect("sent");
            }
            for _ in asked {
                host.0.recv(&mut [0; 1024]).expect("an answer");
            }
        }
    }
    for _ in 0..5 {
        for (times, server) in times.iter_mut().zip(servers) {
            times.push(round(&host, server, &queries));
        }
    }
    let rate = |times: Vec<Duration>| QUERIES as f64 / median(times).as_secs_f64();
    let [ours, theirs] = times.map(rate);
    println!(
        "hits/s: bentpipe {ours:.0}, dnsmasq {theirs:.0}, ratio {:.2}",
        ours / theirs
    );
    assert!(
        ours >= theirs,
        "bentpipe {ours:.0} hits/s, dnsmasq {theirs:.0}"
    );
}

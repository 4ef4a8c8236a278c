//! The emulator between real namespaces and TUN devices. Needs root; without, it says so and checks nothing.

use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use bentpipe_emulator::Stop;
use bentpipe_emulator::scenario::preset;
use bentpipe_emulator::{Emulator, EmulatorConfig, EmulatorStats, Router};
use bentpipe_link::{Orbit, Queue, Queues, Scenario, Standard};
use bentpipe_sys::netns::{NetNs, NetNsGuard};
use bentpipe_units::BitRate;

const GATEWAY: &str = "10.91.0.1";
const TERMINAL: &str = "10.91.0.2";

fn scenario(megabits: u64, one_way_delay: Duration) -> Scenario {
    let standard = Standard::Cbr {
        bit_rate: BitRate::megabits_per_second(megabits),
    };
    Scenario {
        orbit: Orbit::constant(one_way_delay),
        forward_link: standard.clone(),
        return_link: standard,
        queues: Queues::One(Queue {
            packets: Some(5000),
            ..Queue::default()
        }),
        ..preset("geo").unwrap()
    }
}

fn namespaces(test: &str) -> Option<(NetNsGuard, NetNsGuard)> {
    if !bentpipe_testbed::privileged(test) {
        return None;
    }
    let make =
        |side| NetNs::temporary(&format!("bp-{test}-{side}-{}", std::process::id())).unwrap();
    Some((make("t"), make("g")))
}

fn address(netns: &NetNs, own: &str, peer: &str) {
    netns
        .run("ip", &["addr", "add", own, "peer", peer, "dev", "sat0"])
        .unwrap();
}

fn bound(netns: &NetNs, own: &str, peer: &str) -> UdpSocket {
    let socket = netns
        .enter(|| UdpSocket::bind((own, 7000)).unwrap())
        .unwrap();
    socket.connect((peer, 7000)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    socket
}

fn join(scenario: &Scenario, terminal: &NetNs, gateway: &NetNs) -> anyhow::Result<Emulator> {
    let config = EmulatorConfig::from(scenario.clone());
    Emulator::join(&config, &[terminal], gateway, "sat0", Router::single())
}

/// Runs `work(gateway, terminal)` over the scenario.
fn over(
    test: &str,
    scenario: &Scenario,
    work: impl FnOnce(UdpSocket, UdpSocket),
) -> Option<EmulatorStats> {
    let (terminal, gateway) = namespaces(test)?;
    let mut emulator = join(scenario, &terminal, &gateway).unwrap();
    let shown = terminal
        .run("ip", &["addr", "show", "dev", "sat0"])
        .unwrap();
    assert!(
        shown.contains("UP") && !shown.contains("inet"),
        "up, without addresses: {shown}"
    );
    address(&gateway, GATEWAY, TERMINAL);
    address(&terminal, TERMINAL, GATEWAY);
    let stop = Stop::new().unwrap();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| emulator.run(stop.as_fd()));
        work(
            bound(&gateway, GATEWAY, TERMINAL),
            bound(&terminal, TERMINAL, GATEWAY),
        );
        stop.stop();
        Some(running.join().unwrap().unwrap())
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the test on the real clock"
)]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn a_round_trip_takes_both_delays() {
    let scenario = scenario(100, Duration::from_millis(40));
    let stats = over("rtt", &scenario, |gateway, terminal| {
        for _ in 0..10 {
            let sent = now();
            gateway.send(b"there").unwrap();
            let mut buffer = [0; 16];
            assert_eq!(terminal.recv(&mut buffer).unwrap(), 5);
            terminal.send(b"and back").unwrap();
            assert_eq!(gateway.recv(&mut buffer).unwrap(), 8);
            let rtt = sent.elapsed();
            assert!(
                rtt >= Duration::from_millis(80) && rtt < Duration::from_millis(330),
                "{rtt:?}"
            );
        }
    });
    if let Some(stats) = stats {
        eprintln!("{:?}", stats.emulator.lateness);
        // Exactly ours: nothing else may cross an idle link.
        assert_eq!(
            (stats.forward_link.offered, stats.return_link.offered),
            (10, 10)
        );
    }
}

#[test]
fn a_second_of_packets_takes_a_second() {
    let scenario = scenario(10, Duration::from_millis(5));
    let stats = over("rate", &scenario, |gateway, terminal| {
        let start = now();
        std::thread::scope(|scope| {
            // 1222 + 28 bytes of headers = 1250: 1 ms each at 10 Mbit/s.
            scope.spawn(|| {
                for _ in 0..1000 {
                    gateway.send(&[0; 1222]).unwrap();
                }
            });
            let mut buffer = [0; 2000];
            for _ in 0..1000 {
                terminal.recv(&mut buffer).unwrap();
            }
        });
        let took = start.elapsed();
        assert!(
            took >= Duration::from_millis(1005) && took < Duration::from_millis(1255),
            "{took:?}"
        );
    });
    if let Some(stats) = stats {
        eprintln!("{:?}", stats.emulator.lateness);
        assert_eq!(
            (stats.forward_link.delivered, stats.emulator.write_errors),
            (1000, 0)
        );
    }
}

#[test]
fn a_device_that_exists_is_named() {
    let Some((terminal, gateway)) = namespaces("taken") else {
        return;
    };
    let scenario = scenario(10, Duration::ZERO);
    let _first = join(&scenario, &terminal, &gateway).unwrap();
    let second = join(&scenario, &terminal, &gateway).unwrap_err();
    let text = format!("{second:#}");
    assert!(
        text.contains("terminal side") && text.contains("sat0"),
        "{text}"
    );
}

//! The emulator on the real clock, over packet sockets: never early, in order, at the link's rate, both ways.
//!
//! Bounds from above are wide, because test machines are busy; bounds from below are exact.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use bentpipe_emulator::Stop;
use bentpipe_emulator::{Course, Live, Outcome, Outputs, PacketDevice, Router, run};
use bentpipe_link::{Files, Queue, Queues, Scenario};
use bentpipe_units::BitRate;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};

/// One end of a socket pair that keeps packet boundaries, as a TUN device does.
struct Socket(OwnedFd);

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl PacketDevice for Socket {
    fn read_packet(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(recv(&self.0, buffer, RecvFlags::DONTWAIT)?.1)
    }

    fn write_packet(&self, packet: &[u8]) -> io::Result<()> {
        Ok(send(&self.0, packet, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).map(drop)?)
    }
}

fn pair() -> (Socket, OwnedFd) {
    let (inner, outer) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    (Socket(inner), outer)
}

/// A link whose queues hold `packets`.
fn link(forward: u64, back: u64, one_way_delay: Duration, packets: u32) -> Scenario {
    let rate = BitRate::megabits_per_second;
    Scenario {
        queues: Queues::One(Queue {
            limit: None,
            packets: Some(packets),
            ..Queue::default()
        }),
        ..Scenario::constant("test", one_way_delay, rate(forward), rate(back))
    }
}

/// Runs `work(gateway, terminal)` beside an emulator and returns what the emulator counted.
fn beside(scenario: &Scenario, work: impl FnOnce(&OwnedFd, &OwnedFd)) -> Outcome {
    let course = Course {
        model: scenario.build(&Files::default()).unwrap(),
        router: Router::single(),
        period: scenario.probes.period.get(),
        outputs: Outputs::default(),
        live: Live::default(),
    };
    let (gateway, gateway_host) = pair();
    let (terminal, terminal_host) = pair();
    let stop = Stop::new().unwrap();
    let watched = stop.clone();
    std::thread::scope(|scope| {
        let emulator = scope.spawn(move || run(&course, &gateway, &[terminal], watched.as_fd()));
        work(&gateway_host, &terminal_host);
        stop.stop();
        emulator.join().unwrap().unwrap()
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the test on the real clock"
)]
fn now() -> Instant {
    Instant::now()
}

fn post(to: &OwnedFd, packet: &[u8]) {
    assert_eq!(send(to, packet, SendFlags::empty()).unwrap(), packet.len());
}

fn fetch(from: &OwnedFd) -> Vec<u8> {
    let mut buffer = [0; 2000];
    let length = recv(from, &mut buffer, RecvFlags::empty()).unwrap().1;
    buffer[..length].to_vec()
}

#[test]
fn packets_arrive_unchanged_never_early_and_soon() {
    let scenario = link(10, 1, Duration::from_millis(30), 1000);
    let outcome = beside(&scenario, |gateway, terminal| {
        for round in 0..10u8 {
            let packet = vec![round; 1250];
            let sent = now();
            post(gateway, &packet);
            assert_eq!(fetch(terminal), packet);
            let there = sent.elapsed();
            post(terminal, &packet);
            assert_eq!(fetch(gateway), packet);
            let back = sent.elapsed() - there;
            // 1250 B: 1 ms at 10 Mbit/s, 10 ms at 1 Mbit/s.
            assert!(there >= Duration::from_millis(31), "{there:?}");
            assert!(back >= Duration::from_millis(40), "{back:?}");
            assert!(
                there + back < Duration::from_millis(571),
                "{there:?} {back:?}"
            );
        }
    });
    let terminal = &outcome.probe.terminals[0];
    let delivered =
        [&terminal.forward_link, &terminal.return_link].map(|way| way.counters.delivered);
    assert_eq!(delivered, [10, 10]);
    let health = outcome.health;
    assert_eq!((health.lateness.packets, health.write_errors), (20, 0));
    assert!(
        health.lateness.p50 <= health.lateness.p99 && health.lateness.p99 <= health.lateness.max
    );
}

#[test]
fn a_burst_leaves_at_the_rate_of_the_link() {
    let scenario = link(10, 10, Duration::from_millis(5), 1000);
    let count = 200u8;
    let outcome = beside(&scenario, |gateway, terminal| {
        let start = now();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..count).for_each(|number| post(gateway, &[number; 1250])));
            for number in 0..count {
                assert_eq!(fetch(terminal)[0], number);
                let earliest = Duration::from_millis(5 + 1 + u64::from(number));
                assert!(
                    start.elapsed() >= earliest,
                    "packet {number} after {:?}",
                    start.elapsed()
                );
            }
        });
        assert!(
            start.elapsed() < Duration::from_millis(206 + 500),
            "{:?}",
            start.elapsed()
        );
    });
    let counters = outcome.probe.terminals[0].forward_link.counters;
    assert_eq!(counters.delivered, u64::from(count));
    assert_eq!(outcome.health.write_errors, 0);
}

#[test]
fn the_model_decides_what_is_dropped() {
    let scenario = link(1, 1, Duration::ZERO, 5);
    let outcome = beside(&scenario, |gateway, terminal| {
        (0..20u8).for_each(|number| post(gateway, &[number; 1250]));
        for number in 0..6u8 {
            assert_eq!(fetch(terminal)[0], number);
        }
    });
    let counters = outcome.probe.terminals[0].forward_link.counters;
    assert_eq!((counters.offered, counters.dropped_queue), (20, 14));
}

#[test]
fn an_idle_emulator_stops_at_once() {
    let start = now();
    let outcome = beside(&link(10, 10, Duration::from_millis(250), 10), |_, _| ());
    assert!(start.elapsed() < Duration::from_secs(2));
    assert_eq!(outcome.health.lateness.packets, 0);
}

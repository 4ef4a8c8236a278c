//! Constant bit rates: what a link has in common with two pipes, classes, fairness, events, counters.

use std::time::{Duration, Instant};

use crate::{DropCause, Duplex, EventKind, Files, Link, Port, Scenario, TerminalId};
use bentpipe_units::{ByteCount, Seed};

use super::common::{origin, seed};
use super::{drain, gateway, header, made, read};

const PLAIN: &str = r#"
[scenario]
name = "plain"
seed = 7
[orbit]
model = "constant"
one_way_delay = "20 ms"
[forward]
standard = "cbr"
bit_rate = "10 Mbit/s"
[return]
standard = "cbr"
bit_rate = "1 Mbit/s"
"#;

fn scenario(extra: &str) -> Scenario {
    read(&format!("{PLAIN}{extra}"))
}

fn link(extra: &str, start: Instant) -> Link<u32> {
    made(&format!("{PLAIN}{extra}"), start)
}

/// Irregular arrivals in both directions: instant, whether at the gateway, size.
fn arrivals(seed: Seed, count: u64) -> Vec<(Duration, bool, u64)> {
    let mut at = 0;
    let number = |name: &str, index: u64| seed.stream(&format!("{name} {index}")).as_u64();
    (0..count)
        .map(|index| {
            at += number("gap", index) % 900_000;
            let forward = !number("way", index).is_multiple_of(8);
            (
                Duration::from_nanos(at),
                forward,
                number("size", index) % 1460 + 40,
            )
        })
        .collect()
}

#[test]
fn constant_rates_are_two_pipes_to_the_nanosecond() {
    let extra = "[errors]\nmodel = \"gilbert_elliott\"\nrate = \"2 %\"\nmean_burst = 3.0\n[queue]\npackets = 9\n";
    let start = origin();
    let config = scenario(extra).link_config().unwrap();
    let mut pipes = Duplex::new(&config, Seed::new(7), start);
    let mut link = link(extra, start);
    let mut from_pipes = Vec::new();
    let mut from_link = Vec::new();
    for (index, (after, forward, size)) in arrivals(seed(), 20_000).into_iter().enumerate() {
        let (now, packet) = (start + after, index as u32);
        let port = if forward {
            pipes
                .forward_link
                .handle_packet(now, ByteCount::new(size), packet);
            gateway(0)
        } else {
            pipes
                .return_link
                .handle_packet(now, ByteCount::new(size), packet);
            Port::Terminal(TerminalId::new(0))
        };
        link.handle_packet(now, port, header(size, 0), packet);
        while let Some(arrival) = pipes.forward_link.poll_output(now) {
            from_pipes.push(arrival);
        }
        while let Some(arrival) = pipes.return_link.poll_output(now) {
            from_pipes.push(arrival);
        }
        while let Some(arrival) = link.poll_output(now) {
            from_link.push((arrival.at, arrival.packet));
        }
    }
    from_pipes.sort();
    from_link.sort();
    assert!(from_pipes.len() > 10_000);
    assert_eq!(from_pipes, from_link);
    let (pipe, probe) = (
        pipes.forward_link.stats(),
        link.probe(start + Duration::from_secs(3600)),
    );
    let counters = probe.terminals[0].forward_link.counters;
    assert!(pipe.dropped_queue > 100 && pipe.dropped_loss > 100);
    assert_eq!(counters.dropped_queue, pipe.dropped_queue);
    assert_eq!(counters.dropped_channel, pipe.dropped_loss);
}

#[test]
fn urgent_classes_go_first_and_limits_are_exact() {
    let classes = "[[queue]]\nname = \"be\"\npriority = 4\npackets = 5\n\
        [[queue]]\nname = \"ef\"\npriority = 1\ndscp = [46]\nlimit = \"3000 B\"\n";
    let start = origin();
    let mut link = link(classes, start);
    // The first is sent at once; of the others five and three wait.
    for packet in 0..10 {
        link.handle_packet(start, gateway(0), header(1000, 0), packet);
    }
    for packet in 10..20 {
        link.handle_packet(start, gateway(0), header(1000, 46), packet);
    }
    let probe = link.probe(start);
    let queues = &probe.terminals[0].forward_link.queues;
    let waiting: Vec<_> = queues
        .iter()
        .map(|queue| (queue.name.as_str(), queue.packets))
        .collect();
    assert_eq!(waiting, [("ef", 3), ("be", 5)]);
    let order: Vec<_> = drain(&mut link)
        .into_iter()
        .map(|(_, _, packet)| packet)
        .collect();
    assert_eq!(order, [0, 10, 11, 12, 1, 2, 3, 4, 5]);
    let counters = link.probe(start).terminals[0].forward_link.counters;
    assert_eq!((counters.dropped_queue, counters.delivered), (4 + 7, 9));
    let mut full = 0;
    while let Some(event) = link.poll_event() {
        let kind = EventKind::Dropped {
            cause: DropCause::QueueFull,
            size: ByteCount::new(1000),
        };
        assert_eq!((event.at, &event.kind), (start, &kind));
        full += 1;
    }
    assert_eq!(full, 11);
}

#[test]
fn terminals_share_a_carrier_fairly() {
    let three = "[[terminal]]\nname = \"a\"\n[[terminal]]\nname = \"b\"\n[[terminal]]\nname = \"c\"\n[queue]\npackets = 1000\n";
    let start = origin();
    let mut link = link(three, start);
    assert_eq!(link.terminals(), 3);
    // The first has been served for a while when the others come; it is owed nothing, and they are not either.
    for packet in 0..200 {
        link.handle_packet(start, gateway(0), header(1500, 0), packet);
    }
    let later = start + Duration::from_millis(120);
    while link.poll_output(later).is_some() {}
    for _ in 0..100 {
        link.handle_packet(later, gateway(1), header(1500, 0), 1);
        link.handle_packet(later, gateway(2), header(300, 0), 2);
    }
    let mut bytes = [0u64; 3];
    let until = later + Duration::from_millis(20 + 72);
    while let Some(delivery) = link.poll_output(until) {
        let Port::Terminal(terminal) = delivery.to else {
            panic!("{delivery:?}")
        };
        // What left before the others came arrives for one way delay more.
        if delivery.at > later + Duration::from_millis(20) {
            bytes[terminal.index()] += delivery.size.as_u64();
        }
    }
    // 72 ms at 10 Mbit/s are 90 kB.
    for share in bytes {
        assert!((28_000..=32_000).contains(&share), "{bytes:?}");
    }
}

#[test]
fn codel_keeps_a_standing_queue_short() {
    let start = origin();
    // 20 % too much for 10 s, as an application without any control would send.
    let sojourn = |extra: &str| {
        let mut link = link(extra, start);
        let mut worst = Duration::ZERO;
        for packet in 0..10_000 {
            let now = start + Duration::from_millis(1) * packet;
            link.handle_packet(now, gateway(0), header(1500, 0), packet);
            while link.poll_output(now).is_some() {}
            if packet > 5_000 {
                let probe = link.probe(now);
                let queue = &probe.terminals[0].forward_link.queues[0];
                worst = worst.max(queue.sojourn.get());
            }
        }
        let probe = link.probe(start + Duration::from_secs(10));
        (worst, probe.terminals[0].forward_link.counters)
    };
    let (worst, plain) = sojourn("[queue]\npackets = 1000\n");
    assert!(worst > Duration::from_millis(900), "{worst:?}");
    assert_eq!(plain.dropped_codel, 0);
    let (worst, codel) = sojourn("[queue]\npackets = 1000\ndiscipline = \"codel\"\n");
    assert!(worst < Duration::from_millis(500), "{worst:?}");
    assert!(codel.dropped_codel > 500, "{codel:?}");
    assert_eq!(codel.dropped_queue, 0);
}

#[test]
fn contradictions_have_a_key() {
    for (extra, key) in [
        (
            "[[queue]]\nname = \"x\"\npriority = 1\ndscp = [64]\n",
            "queue.0.dscp",
        ),
        (
            "[[queue]]\nname = \"x\"\npriority = 1\ndscp = [1, 1]\n",
            "queue.0.dscp",
        ),
        (
            "[[queue]]\nname = \"x\"\npriority = 1\ndirection = \"return\"\n",
            "queue",
        ),
        ("[queue]\ntarget = \"5 ms\"\n", "queue"),
        (
            "[[terminal]]\nname = \"x\"\n[[terminal]]\nname = \"x\"\n",
            "terminal.1.name",
        ),
    ] {
        let error = scenario(extra).build(&Files::new()).unwrap_err();
        assert_eq!(error.key(), key, "{error}");
    }
}

#[test]
fn planned_changes_are_those_of_two_pipes() {
    let extra = "[[change]]\nat = \"2 s\"\nbit_rate = \"3 Mbit/s\"\nloss = \"10 %\"\n\
        [[change]]\nat = \"5 s\"\ndirection = \"forward\"\nbit_rate = \"20 Mbit/s\"\n[[change]]\nat = \"6 s\"\nloss = \"0 %\"\n\
        [queue]\npackets = 40\n";
    let start = origin();
    let config = scenario(extra).link_config().unwrap();
    let mut pipes = Duplex::new(&config, Seed::new(7), start);
    let mut link = link(extra, start);
    let [mut from_pipe, mut from_link] = [Vec::new(), Vec::new()];
    for (index, (after, _, size)) in arrivals(seed(), 20_000).into_iter().enumerate() {
        let (now, packet) = (start + after, index as u32);
        pipes
            .forward_link
            .handle_packet(now, ByteCount::new(size), packet);
        link.handle_packet(now, gateway(0), header(size, 0), packet);
        while let Some(arrival) = pipes.forward_link.poll_output(now) {
            from_pipe.push(arrival);
        }
        while let Some(arrival) = link.poll_output(now) {
            from_link.push((arrival.at, arrival.packet));
        }
    }
    assert!(pipes.forward_link.stats().dropped_loss > 50);
    assert!(from_pipe.len() > 5_000);
    assert_eq!(from_pipe, from_link);
}

#[test]
fn changes_that_change_nothing_are_refused() {
    for (change, key) in [
        ("at = \"1 s\"", "change.0"),
        ("at = \"1 s\"\nbit_rate = \"0 bit/s\"", "change.0.bit_rate"),
    ] {
        let scenario = scenario(&format!("[[change]]\n{change}\n"));
        assert_eq!(scenario.build(&Files::new()).unwrap_err().key(), key);
    }
}

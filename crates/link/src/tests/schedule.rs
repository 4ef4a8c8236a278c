//! Planned changes, the policer and marks.

use std::time::{Duration, Instant};

use crate::{Change, CoDel, Law, LossModel, Marking, Outage, Pipe, PipeConfig, Policer, Schedule};
use bentpipe_units::{BitRate, ByteCount, Ratio};

use super::common::{burst, clean, drain, origin, seed};

const SECOND: Duration = Duration::from_secs(1);
const PACKET: ByteCount = ByteCount::new(1250);

fn megabits(n: u64) -> BitRate {
    BitRate::megabits_per_second(n)
}

/// 10 Mbit/s, from the first second on 1 Mbit/s, from the third on 20 Mbit/s.
fn stepped() -> PipeConfig {
    PipeConfig {
        schedule: Schedule::new([
            (3 * SECOND, Change::Rate(megabits(20))),
            (SECOND, Change::Rate(megabits(1))),
        ]),
        ..clean(megabits(10), SECOND / 4)
    }
}

#[test]
fn the_rate_follows_its_steps_without_being_asked() {
    let start = origin();
    let mut pipe = Pipe::new(&stepped(), seed(), start);
    // 1000 packets in the first second, 100 in each of the next two, then 2000 a second.
    let arrived = burst(&mut pipe, start, 3200, 1250);
    let at = |packet: usize| arrived[packet - 1].0 - start - SECOND / 4;
    assert_eq!(at(1000), SECOND);
    assert_eq!(at(1100), 2 * SECOND);
    assert_eq!(at(1200), 3 * SECOND);
    assert_eq!(at(3200), 4 * SECOND);
}

#[test]
fn how_often_a_pipe_is_polled_changes_nothing() {
    let start = origin();
    let lazy = burst(&mut Pipe::new(&stepped(), seed(), start), start, 1300, 1250);
    let mut pipe = Pipe::new(&stepped(), seed(), start);
    for number in 0..1300 {
        pipe.handle_packet(start, PACKET, number);
    }
    let mut eager = Vec::new();
    let mut now = start;
    while eager.len() < lazy.len() {
        eager.extend(pipe.poll_output(now));
        now += Duration::from_micros(700);
    }
    assert_eq!(lazy, eager);
}

#[test]
fn a_shorter_delay_is_announced_in_time_and_keeps_order() {
    let start = origin();
    let config = PipeConfig {
        schedule: Schedule::new([
            (SECOND / 2, Change::OneWayDelay(SECOND / 10)),
            (2 * SECOND, Change::OneWayDelay(SECOND)),
        ]),
        ..clean(BitRate::kilobits_per_second(10), SECOND)
    };
    // One packet per second. `drain` insists that every arrival was announced.
    let arrived = burst(&mut Pipe::new(&config, seed(), start), start, 3, 1250);
    let at: Vec<_> = arrived.iter().map(|(at, _)| *at - start).collect();
    assert_eq!(at, [SECOND + SECOND / 10, 3 * SECOND, 4 * SECOND]);
}

#[test]
fn loss_begins_and_ends_as_planned() {
    let start = origin();
    let config = PipeConfig {
        schedule: Schedule::new([
            (SECOND, Change::Loss(LossModel::Iid(Ratio::ONE))),
            (2 * SECOND, Change::Loss(LossModel::None)),
        ]),
        ..clean(megabits(10), SECOND)
    };
    let mut pipe = Pipe::new(&config, seed(), start);
    let arrived = burst(&mut pipe, start, 3000, 1250);
    assert_eq!(pipe.stats().dropped_loss, 1000);
    // The packet that ends with the first second is hit already.
    assert!(
        arrived
            .iter()
            .all(|(_, number)| !(999..1999).contains(number))
    );
}

#[test]
fn the_time_to_send_is_the_integral_of_the_rate() {
    let config = PipeConfig {
        outages: vec![Outage {
            start: SECOND / 2,
            length: SECOND / 4,
        }],
        ..stepped()
    };
    let sent_by = |from, kilobytes: u64| config.sent_by(from, ByteCount::new(kilobytes * 1000));
    assert_eq!(sent_by(Duration::ZERO, 625), Some(SECOND / 2));
    assert_eq!(sent_by(Duration::ZERO, 625 + 125), Some(SECOND * 17 / 20));
    assert_eq!(sent_by(SECOND * 3 / 5, 312), Some(SECOND * 9996 / 10_000));
    // 937.5 kB in the first second, 250 kB in the next two, the rest at 2500 kB/s.
    let end = sent_by(Duration::ZERO, 3_687).unwrap();
    assert!((end.as_secs_f64() - 3.9998).abs() < 1e-9, "{end:?}");
    assert_eq!(
        config.rate_at(SECOND - Duration::from_nanos(1)),
        megabits(10)
    );
    assert_eq!(config.rate_at(SECOND), megabits(1));
    let dead = PipeConfig {
        schedule: Schedule::new([(SECOND, Change::Rate(BitRate::default()))]),
        ..config
    };
    assert_eq!(
        dead.sent_by(Duration::ZERO, ByteCount::new(2_000_000)),
        None
    );
}

#[test]
fn a_policer_lets_its_rate_and_one_burst_pass() {
    let start = origin();
    let policer = Policer {
        rate: megabits(5),
        burst: ByteCount::new(12_500),
    };
    let config = PipeConfig {
        policer: Some(policer),
        ..clean(megabits(100), SECOND)
    };
    let mut pipe = Pipe::new(&config, seed(), start);
    let offer = |pipe: &mut Pipe<()>, from: Instant| {
        // 10 Mbit/s for one second.
        for number in 0..1000 {
            pipe.handle_packet(from + Duration::from_millis(1) * number, PACKET, ());
        }
        drain(pipe).len()
    };
    assert!((509..=510).contains(&offer(&mut pipe, start)));
    assert!((509..=510).contains(&offer(&mut pipe, start + 10 * SECOND)));
    let stats = pipe.stats();
    assert_eq!(stats.offered, stats.delivered + stats.dropped_policer);
}

#[test]
fn packets_that_waited_are_marked_or_dropped() {
    let start = origin();
    let mut pipe = Pipe::new(&clean(megabits(10), SECOND), seed(), start);
    // A millisecond each. Even ones can carry a mark.
    pipe.set_marking(Some(Marking {
        law: Law::Threshold(Duration::from_millis(20)),
        mark: |packet: &mut u32| {
            let able = packet.is_multiple_of(2);
            *packet += 1000;
            able
        },
    }));
    let arrived = burst(&mut pipe, start, 40, 1250);
    let numbers: Vec<_> = arrived.iter().map(|(_, number)| *number).collect();
    let expected: Vec<_> = (0..=20).chain([1022, 1024, 1026, 1028, 1030]).collect();
    assert_eq!(numbers[..expected.len()], expected);
    let stats = pipe.stats();
    assert_eq!(stats.marked + stats.dropped_queue + 21, 40, "{stats:?}");
    assert_eq!(stats.delivered, 40 - stats.dropped_queue);
}

/// At 105, 205, 276, 334, 384, 429, 469 and 507 ms: interval / √n apart, since packets have waited 5 ms for 100 ms.
#[test]
fn codel_marks_or_drops_the_same_packets() {
    let start = origin();
    for able in [true, false] {
        let mut pipe = Pipe::new(&clean(megabits(10), SECOND), seed(), start);
        pipe.set_marking(Some(Marking {
            law: Law::CoDel(CoDel::default()),
            mark: if able { |_| true } else { |_| false },
        }));
        burst(&mut pipe, start, 520, 1250);
        let stats = pipe.stats();
        let told = if able { (8, 0) } else { (0, 8) };
        assert_eq!((stats.marked, stats.dropped_queue), told, "{stats:?}");
    }
}

#[test]
fn a_new_plan_counts_from_now_and_replaces_the_old_one() {
    let start = origin();
    let mut pipe = Pipe::new(&stepped(), seed(), start);
    let now = start + SECOND / 2;
    let outage = Outage {
        start: 2 * SECOND,
        length: SECOND,
    };
    let faster = Schedule::new([(SECOND, Change::Rate(megabits(20)))]);
    pipe.plan(now, &faster, vec![outage]);
    for number in 0..8000 {
        pipe.handle_packet(now, PACKET, number);
    }
    let arrived = drain(&mut pipe);
    // 1000 packets in the first second, 2000 in each of the next; those of the third are lost.
    assert_eq!(pipe.stats().dropped_outage, 2000);
    let last = arrived.last().unwrap();
    assert_eq!(last.1, 7999);
    assert_eq!(last.0 - now, SECOND + SECOND * 7 / 2 + SECOND / 4);
}

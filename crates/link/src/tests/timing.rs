//! The pipe's clockwork: exact long-run rate, exact delay, order, and changes while packets are inside.

use std::time::Duration;

use crate::{Duplex, LinkConfig, Pipe, Scenario};
use bentpipe_units::{BitRate, ByteCount};

use super::common::{burst, clean, drain, origin, seed};

const DELAY: Duration = Duration::from_millis(250);

/// Closed form of the last of `count` back-to-back departures, in whole nanoseconds, rounded up.
fn closed_form(rate: u64, count: u32, size: u64) -> Duration {
    let bits = u128::from(count) * u128::from(size) * 8 * 1_000_000_000;
    Duration::from_nanos(u64::try_from(bits.div_ceil(u128::from(rate))).unwrap())
}

#[test]
fn long_run_rate_is_exact() {
    let start = origin();
    for rate in [
        64_000,
        1_000_003,
        9_999_991,
        178_100_000,
        999_999_937,
        10_000_000_000,
    ] {
        for size in [40, 100, 577, 1428, 1500] {
            let config = clean(BitRate::bits_per_second(rate), DELAY);
            let arrived = burst(&mut Pipe::new(&config, seed(), start), start, 20_000, size);
            assert_eq!(arrived.len(), 20_000);
            let last = arrived[19_999].0 - start - DELAY;
            // Far stricter than the 0.01 % that would do: not one nanosecond of drift.
            assert_eq!(
                last,
                closed_form(rate, 20_000, size),
                "{rate} bit/s, {size} B"
            );
        }
    }
}

#[test]
fn every_packet_keeps_its_closed_form_and_order() {
    let start = origin();
    let rate = 333_333_333;
    let config = clean(BitRate::bits_per_second(rate), DELAY);
    let arrived = burst(&mut Pipe::new(&config, seed(), start), start, 1000, 1333);
    for (index, (arrival, number)) in (0..).zip(&arrived) {
        assert_eq!(*number, index);
        assert_eq!(*arrival - start - DELAY, closed_form(rate, index + 1, 1333));
    }
}

#[test]
fn nothing_is_delivered_early() {
    let start = origin();
    let mut pipe = Pipe::new(
        &clean(BitRate::megabits_per_second(10), DELAY),
        seed(),
        start,
    );
    pipe.handle_packet(start, ByteCount::new(1250), ());
    let due = start + Duration::from_millis(251);
    assert_eq!(pipe.poll_timeout(), Some(due));
    assert_eq!(pipe.poll_output(due - Duration::from_nanos(1)), None);
    assert_eq!(pipe.poll_output(due), Some((due, ())));
    assert_eq!(pipe.poll_timeout(), None);
}

#[test]
fn an_idle_link_gives_no_credit() {
    let start = origin();
    let mut pipe = Pipe::new(
        &clean(BitRate::megabits_per_second(10), DELAY),
        seed(),
        start,
    );
    let later = start + Duration::from_secs(60);
    let arrived = burst(&mut pipe, later, 2, 1250);
    let offsets: Vec<_> = arrived
        .iter()
        .map(|(arrival, _)| (*arrival - later).as_millis())
        .collect();
    assert_eq!(offsets, [251, 252]);
}

#[test]
fn results_do_not_depend_on_how_often_one_polls() {
    let start = origin();
    let config = clean(BitRate::bits_per_second(7_777_777), DELAY);
    let mut lazy = Pipe::new(&config, seed(), start);
    let expected = burst(&mut lazy, start, 300, 901);
    let mut eager = Pipe::new(&config, seed(), start);
    for number in 0..300 {
        eager.handle_packet(start, ByteCount::new(901), number);
    }
    let mut arrived = Vec::new();
    for step in 0..8_000u64 {
        let now = start + Duration::from_nanos(step * 99_991);
        while let Some(output) = eager.poll_output(now) {
            assert!(output.0 <= now);
            arrived.push(output);
        }
    }
    assert_eq!(arrived, expected);
}

#[test]
fn a_new_rate_counts_from_the_next_packet() {
    let start = origin();
    let mut pipe = Pipe::new(
        &clean(BitRate::megabits_per_second(10), Duration::ZERO),
        seed(),
        start,
    );
    for number in 0..3 {
        pipe.handle_packet(start, ByteCount::new(1250), number);
    }
    pipe.set_rate(
        start + Duration::from_micros(1500),
        BitRate::megabits_per_second(1),
    );
    let offsets: Vec<_> = drain(&mut pipe)
        .iter()
        .map(|(at, _)| (*at - start).as_millis())
        .collect();
    assert_eq!(offsets, [1, 2, 12]);
}

#[test]
fn a_shrinking_delay_does_not_reorder() {
    let start = origin();
    let mut pipe = Pipe::new(
        &clean(BitRate::megabits_per_second(10), DELAY),
        seed(),
        start,
    );
    pipe.handle_packet(start, ByteCount::new(1250), 'a');
    let change = start + Duration::from_millis(1);
    pipe.set_one_way_delay(change, Duration::from_millis(5));
    pipe.handle_packet(change, ByteCount::new(1250), 'b');
    let late = change + Duration::from_secs(1);
    pipe.handle_packet(late, ByteCount::new(1250), 'c');
    let due = start + Duration::from_millis(251);
    let soon = late + Duration::from_millis(6);
    assert_eq!(drain(&mut pipe), [(due, 'a'), (due, 'b'), (soon, 'c')]);
}

#[test]
fn a_rate_of_zero_stalls_and_does_not_panic() {
    let start = origin();
    let mut pipe = Pipe::new(&clean(BitRate::default(), DELAY), seed(), start);
    pipe.handle_packet(start, ByteCount::new(1500), ());
    assert_eq!(
        pipe.poll_timeout(),
        Some(start + Duration::from_secs(12_000) + DELAY)
    );
}

#[test]
fn both_directions_keep_their_own_rate() {
    let start = origin();
    let leo: Scenario = toml::from_str(crate::preset("leo").unwrap()).unwrap();
    let config: LinkConfig = leo.link_config().unwrap();
    let mut link = Duplex::new(&config, seed(), start);
    link.return_link
        .handle_packet(start, ByteCount::new(1500), ());
    let back = link.poll_timeout().unwrap() - start;
    link.forward_link
        .handle_packet(start, ByteCount::new(1500), ());
    let there = link.poll_timeout().unwrap() - start;
    assert_eq!((there.as_micros(), back.as_micros()), (25_080, 25_800));
}

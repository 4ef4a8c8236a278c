//! The scenarios that are built in: each describes a link, and the link that its name promises.

use std::time::{Duration, Instant};

use crate::{
    Files, Link, Orbit, PRESETS, PacketHeader, Port, Scenario, Standard, TerminalId, preset,
};
use bentpipe_units::{BitRate, ByteCount};

use super::common::{origin, seed};

const SECOND: Duration = Duration::from_secs(1);

fn read(name: &str) -> Scenario {
    let text = preset(name).unwrap_or_else(|| panic!("{name}"));
    toml::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn made(name: &str, start: Instant) -> Link<u32> {
    let model = read(name).build(&Files::new());
    Link::new(
        &model.unwrap_or_else(|error| panic!("{name}: {error}")),
        start,
    )
}

fn header(size: u64) -> PacketHeader {
    PacketHeader {
        size: ByteCount::new(size),
        dscp: 0,
        train: None,
    }
}

/// Sends full packets both ways for a while; how many of each arrive.
fn exercise(link: &mut Link<u32>, start: Instant) -> [u32; 2] {
    let mut arrived = [0; 2];
    for step in 0..2_000u32 {
        let now = start + Duration::from_millis(5) * step;
        let terminal = TerminalId::new(step as usize % link.terminals());
        link.handle_packet(now, Port::Gateway { terminal }, header(1500), step);
        link.handle_packet(now, Port::Terminal(terminal), header(100), step);
        while let Some(delivery) = link.poll_output(now) {
            arrived[usize::from(matches!(delivery.to, Port::Gateway { .. }))] += 1;
        }
    }
    arrived
}

#[test]
fn every_preset_carries_packets() {
    for name in PRESETS {
        let general = read(name).general;
        assert_eq!((general.name.as_str(), general.seed), (*name, seed()));
        let start = origin();
        let [forward, back] = exercise(&mut made(name, start), start);
        // The slowest has 512 kbit/s of the 2.4 Mbit/s offered; the first half second is on its way.
        assert!(forward > 380 && back > 1_500, "{name}: {forward} {back}");
    }
    assert_eq!(preset("moon"), None);
}

#[test]
fn plain_presets_have_the_rates_and_delays_of_their_names() {
    for (name, forward, back, millis) in [
        ("geo", 10_000, 10_000, 250),
        ("leo", 150_000, 15_000, 25),
        ("g1", 250_000, 3_000, 300),
        ("g2", 250_000, 3_000, 300),
        ("g2-bursts", 250_000, 3_000, 300),
        ("g2-periodic", 250_000, 3_000, 300),
        ("g3", 250_000, 3_000, 325),
        ("g4", 250_000, 3_000, 325),
        ("g5", 50_000, 10_000, 325),
        ("g6", 50_000, 500, 325),
        ("g7", 50_000, 10_000, 325),
        ("g8", 10_000, 2_000, 325),
        ("d1", 20_000, 2_000, 300),
        ("d2", 20_000, 2_000, 300),
        ("p1", 12_000, 3_000, 250),
        ("r1", 50_000, 10_000, 325),
        ("r1-out", 50_000, 10_000, 325),
        ("s1", 512, 512, 293),
        ("m1", 100_000, 20_000, 300),
        ("m1-2", 100_000, 20_000, 300),
        ("m1-50", 100_000, 20_000, 300),
        ("cnes-geo", 10_000, 10_000, 250),
        ("cnes-geo-loss", 10_000, 10_000, 250),
    ] {
        let scenario = read(name);
        let cbr = |rate| Standard::Cbr {
            bit_rate: BitRate::kilobits_per_second(rate),
        };
        let standards = [scenario.forward_link, scenario.return_link];
        assert_eq!(standards, [forward, back].map(cbr), "{name}");
        let jitter = if name == "g1" { 3 } else { 0 };
        let [one_way_delay, jitter] =
            [millis, jitter].map(|millis| Duration::from_millis(millis).into());
        let orbit = Orbit::Constant {
            one_way_delay,
            jitter,
        };
        assert_eq!(scenario.orbit, orbit, "{name}");
    }
    let g7 = read("g7").link_config().unwrap();
    assert_eq!(
        g7.forward_link.rate_at(SECOND * 5),
        BitRate::megabits_per_second(10)
    );
    assert_eq!(
        g7.return_link.rate_at(SECOND * 5),
        BitRate::megabits_per_second(10)
    );
    for name in ["r1", "r1-out"] {
        let r1 = read(name).link_config().unwrap().forward_link;
        let ladder: Vec<_> = (0..8)
            .map(|rung| r1.rate_at(SECOND * (rung * 10 + 5)).as_u64() / 1_000_000)
            .collect();
        assert_eq!(ladder, [50, 35, 20, 10, 5, 10, 20, 50], "{name}");
    }
}

#[test]
fn beams_have_their_terminals() {
    for (name, terminals) in [("m1-2", 2), ("m1", 10), ("m1-50", 50)] {
        assert_eq!(made(name, origin()).terminals(), terminals);
    }
}

/// The spread of the forward link's one-way delay in ten minutes, in milliseconds.
fn delays(name: &str) -> [f64; 2] {
    let start = origin();
    let mut link = made(name, start);
    let delays = (0..60_000u32).map(|sample| {
        let probe = link.probe(start + Duration::from_millis(10) * sample);
        let delay = probe.terminals[0].forward_link.one_way_delay;
        delay.get().as_secs_f64() * 1e3
    });
    delays.fold([f64::INFINITY, 0.0], |[least, most], delay| {
        [least.min(delay), most.max(delay)]
    })
}

#[test]
fn delays_vary_as_far_as_the_names_promise() {
    for (name, least, most) in [
        ("g1", 300.0..300.01, 302.99..=303.0),
        ("s1-trace", 400.0..430.0, 850.0..=1000.0),
    ] {
        let [low, high] = delays(name);
        assert!(
            least.contains(&low) && most.contains(&high),
            "{name}: {low} {high}"
        );
    }
}

/// What becomes of full packets at equal distances, forward: how many of those sent in each of `seconds` are lost.
fn lost_by_second(name: &str, gap: Duration, seconds: u32) -> Vec<u32> {
    let start = origin();
    let mut link = made(name, start);
    let per_second = u32::try_from(SECOND.as_nanos() / gap.as_nanos()).unwrap();
    let mut lost = vec![per_second; seconds as usize];
    for packet in 0..per_second * seconds {
        let now = start + gap * packet;
        let terminal = TerminalId::new(0);
        link.handle_packet(now, Port::Gateway { terminal }, header(1000), packet);
        while let Some(delivery) = link.poll_output(now) {
            lost[(delivery.packet / per_second) as usize] -= 1;
        }
    }
    while let Some(delivery) = link.poll_output(start + SECOND * (seconds + 10)) {
        lost[(delivery.packet / per_second) as usize] -= 1;
    }
    lost
}

#[test]
fn an_outage_of_ten_seconds_and_no_other() {
    // 2 Mbit/s, which the worst rung carries too.
    let lost = lost_by_second("r1-out", Duration::from_millis(4), 80);
    assert_eq!(lost[34..42], [250; 8]);
    assert_eq!([lost[32], lost[44], lost[46]], [0; 3]);
    assert!(lost[50] > 2 && lost[50] < 40, "{lost:?}");
}

#[test]
fn one_in_64_is_lost() {
    let lost = lost_by_second("g2-periodic", Duration::from_millis(1), 64);
    assert_eq!(lost.iter().sum::<u32>(), 1000);
}

#[test]
fn bursts_pass_in_time() {
    // At a packet each 20 ms, bursts of 17 ms lose single packets, and the same share of them.
    let lost: u32 = lost_by_second("p1", Duration::from_millis(20), 4000)
        .iter()
        .sum();
    let share = f64::from(lost) / 200_000.0;
    assert!((share - 0.0256).abs() < 0.003, "{share}");
}

#[test]
fn the_papers_link_runs_at_its_recorded_modcods() {
    let start = origin();
    for (name, modcod, rate) in [
        ("paper-geo", 28, 178.1),
        ("paper-plr", 28, 178.1),
        ("paper-leo", 28, 178.1),
        ("paper-atten", 26, 164.8),
        ("opensand-default", 28, 178.1),
    ] {
        let mut link = made(name, start);
        let arrived = exercise(&mut link, start);
        assert!(arrived[0] > 1_800, "{name}: {arrived:?}");
        let probe = link.probe(start + SECOND * 10);
        let terminal = &probe.terminals[0];
        let cn = terminal.forward_link.cn.unwrap().as_f64();
        assert!((cn - 16.99).abs() < 0.005, "{name}: {cn}");
        assert_eq!(terminal.forward_link.modcod, Some(modcod), "{name}");
        let capacity = terminal.forward_link.capacity.as_u64() as f64 / 1e6;
        assert!((capacity / rate - 1.0).abs() < 0.002, "{name}: {capacity}");
        let waveform = terminal.return_link.modcod.unwrap();
        assert_eq!(waveform, 12, "{name}");
    }
}

#[test]
fn the_fade_takes_five_decibels_in_ten_minutes() {
    let start = origin();
    let mut link = made("paper-atten", start);
    let mut cn = |seconds: u32| {
        let probe = link.probe(start + SECOND * seconds);
        probe.terminals[0].forward_link.cn.unwrap().as_f64()
    };
    for (seconds, expected) in [
        (29, 16.99),
        (31, 16.86),
        (599, 13.99),
        (601, 13.81),
        (900, 13.81),
    ] {
        assert!(
            (cn(seconds) - expected).abs() < 0.01,
            "{seconds}: {}",
            cn(seconds)
        );
    }
}

#[test]
fn low_orbits_have_their_delays() {
    let start = origin();
    for (name, least, most, mean) in [
        ("paper-leo", 26.0, 147.0, 60.0),
        ("cnes-leo", 25.0, 146.0, 59.0),
        ("starlink-like", 10.0, 37.0, 19.0),
        ("oneweb-like", 30.0, 42.0, 33.0),
        ("l1", 15.0, 55.0, 27.0),
    ] {
        let mut link = made(name, start);
        let delays: Vec<_> = (0..402u32)
            .map(|sample| {
                let probe = link.probe(start + SECOND * 30 * sample + SECOND / 2);
                probe.terminals[0]
                    .forward_link
                    .one_way_delay
                    .get()
                    .as_secs_f64()
                    * 1e3
            })
            .collect();
        assert!(
            delays.iter().all(|delay| (least..most).contains(delay)),
            "{name}: {delays:?}"
        );
        let average = delays.iter().sum::<f64>() / delays.len() as f64;
        assert!((average / mean - 1.0).abs() < 0.1, "{name}: {average}");
    }
}

#[test]
fn starlink_like_loses_one_to_two_percent() {
    let start = origin();
    let mut link = made("starlink-like", start);
    for packet in 0..300_000u32 {
        let now = start + Duration::from_millis(2) * packet;
        link.handle_packet(
            now,
            Port::Gateway {
                terminal: TerminalId::new(0),
            },
            header(1500),
            packet,
        );
        while link.poll_output(now).is_some() {}
    }
    let counters = link.probe(start + SECOND * 700).terminals[0]
        .forward_link
        .counters;
    let lost =
        (counters.dropped_channel + counters.dropped_outage) as f64 / counters.offered as f64;
    assert!((0.01..0.02).contains(&lost), "{lost}");
    assert_eq!(counters.dropped_queue, 0);
}

//! The scenarios that are built in: each describes a link, and the link that its name promises.

#[path = "common/origin.rs"]
mod common;

use std::time::{Duration, Instant};

use bentpipe_link::{Files, Link, PRESETS, PacketHeader, Port, Scenario, TerminalId, preset};
use bentpipe_units::{BitRate, ByteCount};

use common::{origin, seed};

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
        ("s1", 512, 512, 293),
        ("m1", 100_000, 20_000, 300),
        ("cnes-geo", 10_000, 10_000, 250),
        ("cnes-geo-loss", 10_000, 10_000, 250),
    ] {
        let link = read(name).link_config().unwrap();
        let rates = [&link.forward_link, &link.return_link].map(|pipe| pipe.rate);
        assert_eq!(
            rates,
            [forward, back].map(BitRate::kilobits_per_second),
            "{name}"
        );
        assert_eq!(
            link.forward_link.one_way_delay,
            Duration::from_millis(millis),
            "{name}"
        );
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
    let r1 = read("r1").link_config().unwrap().forward_link;
    let ladder: Vec<_> = (0..8)
        .map(|rung| r1.rate_at(SECOND * (rung * 10 + 5)).as_u64() / 1_000_000)
        .collect();
    assert_eq!(ladder, [50, 35, 20, 10, 5, 10, 20, 50]);
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

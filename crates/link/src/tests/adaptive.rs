//! Adaptive coding over a link budget: the staircase of MODCODs, losses about a threshold, outages at an edge.

use std::time::{Duration, Instant};

use crate::{DropCause, EventKind, Link};
use bentpipe_units::Decibel;

use super::common::origin;
use super::{drain, gateway, header, made};

const OWD: Duration = Duration::from_millis(250);

/// 40 Mbaud, 250 ms, so much C/N on the downlink, and no noise on the uplink.
fn text(downlink: f64, rest: &str) -> String {
    format!(
        "[scenario]\nname = \"acm\"\nseed = 3\n[orbit]\nmodel = \"constant\"\none_way_delay = \"250 ms\"\n\
         [return]\nstandard = \"cbr\"\nbit_rate = \"5 Mbit/s\"\n\
         [forward]\nstandard = \"dvb-s2\"\nsymbol_rate = \"40 Mbaud\"\n[link_budget]\n\
         clear_sky_uplink_cn = \"1000 dB\"\nclear_sky_downlink_cn = \"{downlink} dB\"\n{rest}\n"
    )
}

/// The paper's link: 20 dB up, 20 dB down, margin and selection of OpenSAND, 6 dB more rain from 10 s to 20 s.
fn opensand(seed: u64) -> String {
    let rest = "[errors]\nmodel = \"gate\"\n[acm]\nmargin = \"1 dB\"\nhysteresis = \"0 dB\"\nreport = \"required_esn0\"\n\
        select = \"threshold\"\n[attenuation.forward_downlink]\nmodel = \"on_off\"\npeak = \"6 dB\"\nstart = \"10 s\"\n\
        on = \"10 s\"\noff = \"10 s\"\n";
    text(20.0, rest)
        .replace("1000 dB", "20 dB")
        .replace("seed = 3", &format!("seed = {seed}"))
}

fn forward(link: &mut Link<u32>, now: Instant) -> (u8, f64) {
    let probe = link.probe(now);
    let forward = &probe.terminals[0].forward_link;
    let capacity = forward.capacity.as_u64() as f64 / 1e6;
    (forward.modcod.expect("it has one"), capacity)
}

/// Threshold and efficiency as EN 302 307-1 table 13 prints them, of those worth a C/N of their own.
const STAIRS: [(u8, f64, f64); 22] = [
    (1, -2.35, 0.490243),
    (2, -1.24, 0.656448),
    (3, -0.30, 0.789412),
    (4, 1.00, 0.988858),
    (5, 2.23, 1.188304),
    (6, 3.10, 1.322253),
    (7, 4.03, 1.487473),
    (8, 4.68, 1.587196),
    (9, 5.18, 1.654663),
    (12, 5.50, 1.779991),
    (11, 6.42, 1.788612),
    (13, 6.62, 1.980636),
    (14, 7.91, 2.228124),
    (18, 8.97, 2.637201),
    (19, 10.21, 2.966728),
    (20, 11.03, 3.165623),
    (21, 11.61, 3.300184),
    (24, 12.73, 3.703295),
    (25, 13.64, 3.951571),
    (26, 14.28, 4.119540),
    (27, 15.69, 4.397854),
    (28, 16.05, 4.453027),
];

#[test]
fn the_staircase_of_modcods() {
    for tenths in -30..=180 {
        let cn = f64::from(tenths) / 10.0;
        let step = STAIRS.iter().rev().find(|step| step.1 <= cn);
        let (modcod, _, efficiency) = step.unwrap_or(&STAIRS[0]);
        let start = origin();
        let (used, capacity) = forward(&mut made(&text(cn, ""), start), start);
        assert_eq!(used, *modcod, "{cn} dB");
        assert!((capacity / (40.0 * efficiency) - 1.0).abs() < 1e-6);
    }
}

#[test]
fn frames_are_lost_with_the_probability_of_the_curve() {
    // MODCOD 20 at 11.03 dB: 1e-7, 35 decades a decibel more below.
    for (below, probability) in [
        (0.0, 1e-7),
        (0.12, 1.5849e-3),
        (0.15, 1.7783e-2),
        (0.18, 0.19953),
        (0.19, 0.44668),
        (0.2, 1.0),
        (1.0, 1.0),
    ] {
        let table = text(11.03 - below, "").replace(
            "symbol_rate",
            "mode = \"ccm\"\nmodcods = \"20\"\nsymbol_rate",
        );
        let start = origin();
        let mut link = made(&table, start);
        let (count, mut arrived) = (100_000, 0usize);
        // Each has a frame of its own.
        for packet in 0..count {
            let now = start + Duration::from_millis(1) * packet;
            link.handle_packet(now, gateway(0), header(100, 0), packet);
            while link.poll_output(now).is_some() {
                arrived += 1;
            }
        }
        let lost = f64::from(count) - (arrived as f64 + drain(&mut link).len() as f64);
        let (mean, spread) = (
            f64::from(count) * probability,
            (f64::from(count) * probability * (1.0 - probability)).sqrt(),
        );
        assert!(
            (lost - mean).abs() <= 2.576 * spread + 0.5,
            "{below} dB: {lost} instead of {mean}"
        );
    }
}

/// What a fade at 10 s does to 20 Mbit/s: the losses' first and last instant, and when the gateway learned of it.
fn edge(seed: u64) -> (Duration, Duration, Duration, u8) {
    let start = origin();
    let mut link = made(&opensand(seed), start);
    assert_eq!(forward(&mut link, start).0, 26);
    let (mut first, mut last, mut learned, mut modcod) = (None, Duration::ZERO, None, 0);
    for packet in 0..23_000 {
        let now = start + Duration::from_micros(560) * packet;
        link.handle_packet(now, gateway(0), header(1428, 0), packet);
        while link.poll_output(now).is_some() {}
        while let Some(event) = link.poll_event() {
            let at = event.at - start;
            if let EventKind::Dropped { cause, .. } = event.kind {
                assert_eq!(cause, DropCause::Channel);
                first.get_or_insert(at);
                last = at;
            }
            if let EventKind::Modcod { from, to, cn } = event.kind {
                assert_eq!(from, 26);
                assert!((cn - Decibel::new(13.03)).as_f64().abs() < 0.005);
                modcod = to;
                assert_eq!(learned.replace(at), None);
            }
        }
    }
    (
        first.expect("losses"),
        last,
        learned.expect("a report"),
        modcod,
    )
}

#[test]
fn an_edge_is_an_outage_of_the_wait_and_two_delays() {
    let fade = Duration::from_secs(10);
    let mut waits = Vec::new();
    for seed in 1..=8 {
        let (first, last, learned, modcod) = edge(seed);
        assert_eq!(modcod, 21);
        let wait = learned - OWD - fade;
        let outage = last - first;
        let expected = wait + OWD * 2;
        assert!(first >= fade && first < fade + Duration::from_millis(2));
        assert!(
            outage.abs_diff(expected) < Duration::from_millis(10),
            "{outage:?} {expected:?}"
        );
        assert!(wait < Duration::from_secs(1));
        waits.push(wait);
    }
    // The place in the period is the seed's.
    let spread = *waits.iter().max().unwrap() - *waits.iter().min().unwrap();
    assert!(spread > Duration::from_millis(300), "{waits:?}");
}

#[test]
fn figures_of_opensand() {
    let start = origin();
    let mut link = made(&opensand(1), start);
    let (modcod, capacity) = forward(&mut link, start);
    assert_eq!(modcod, 26);
    assert!((capacity - 164.8).abs() < 0.05, "{capacity}");
    let without_margin = opensand(1).replace("margin = \"1 dB\"\n", "");
    let (modcod, capacity) = forward(&mut made(&without_margin, start), start);
    assert_eq!(modcod, 28);
    assert!((capacity - 178.1).abs() < 0.05, "{capacity}");
}

#[test]
fn rain_at_one_terminal_is_no_rain_at_another() {
    let rest = "[[terminal]]\nname = \"dry\"\n[[terminal]]\nname = \"wet\"\nextra_attenuation = \"8 dB\"\n";
    let start = origin();
    let mut link = made(&text(17.0, rest), start);
    let probe = link.probe(start);
    let modcods: Vec<_> = probe
        .terminals
        .iter()
        .map(|terminal| terminal.forward_link.modcod)
        .collect();
    assert_eq!(modcods, [Some(28), Some(18)]);
}

#[test]
fn hysteresis_holds_back_a_flickering_modcod() {
    // Up and down by 0.2 dB about the threshold of MODCOD 26.
    let rest = "[acm]\nreport_period = \"100 ms\"\nhysteresis = \"H dB\"\n[attenuation.forward_downlink]\n\
        model = \"on_off\"\npeak = \"0.2 dB\"\non = \"1 s\"\noff = \"1 s\"\n";
    let changes = |hysteresis: &str| {
        let start = origin();
        let mut link = made(&text(14.38, &rest.replace("H dB", hysteresis)), start);
        link.probe(start + Duration::from_secs(60));
        let mut count = 0;
        while let Some(event) = link.poll_event() {
            count += u32::from(matches!(event.kind, EventKind::Modcod { .. }));
        }
        count
    };
    assert_eq!(changes("0 dB"), 59);
    assert!(changes("0.3 dB") <= 1);
}

//! The forward link's DVB-S2 and the return link's DVB-RCS2 against the standards' tables, in virtual time.

use std::time::Duration;

use anyhow::Result;
use bentpipe_link::{EventKind, Way};

use super::bench::Bench;
use super::row::{Row, binomial_interval, quantile};

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

/// EN 302 307-1 table 13: Es/N0 in dB and bits per symbol of MODCOD 1 to 28, normal frames without pilots.
const MODCODS: [(f64, f64); 28] = [
    (-2.35, 0.490243),
    (-1.24, 0.656448),
    (-0.30, 0.789412),
    (1.00, 0.988858),
    (2.23, 1.188304),
    (3.10, 1.322253),
    (4.03, 1.487473),
    (4.68, 1.587196),
    (5.18, 1.654663),
    (6.20, 1.766451),
    (6.42, 1.788612),
    (5.50, 1.779991),
    (6.62, 1.980636),
    (7.91, 2.228124),
    (9.35, 2.478562),
    (10.69, 2.646012),
    (10.98, 2.679207),
    (8.97, 2.637201),
    (10.21, 2.966728),
    (11.03, 3.165623),
    (11.61, 3.300184),
    (12.89, 3.523143),
    (13.13, 3.567342),
    (12.73, 3.703295),
    (13.64, 3.951571),
    (14.28, 4.119540),
    (15.69, 4.397854),
    (16.05, 4.453027),
];

/// EN 301 545-2 table A-1 and TR 101 545-4: Es/N0 in dB and payload bytes of waveforms 3 to 12 (536 symbols) and 13 to
/// 22 (1616 symbols).
const WAVEFORMS: [(f64, u32); 20] = [
    (0.22, 38),
    (2.34, 59),
    (4.29, 85),
    (5.36, 96),
    (6.68, 108),
    (8.08, 115),
    (9.31, 130),
    (10.82, 144),
    (11.17, 175),
    (12.56, 194),
    (-0.51, 123),
    (1.71, 188),
    (3.69, 264),
    (4.73, 298),
    (5.94, 333),
    (7.49, 355),
    (8.77, 400),
    (10.23, 444),
    (10.72, 539),
    (12.04, 599),
];

/// All rows.
pub(super) fn rows(quick: bool) -> Result<Vec<Row>> {
    let mut rows = vec![thresholds()?, staircase(quick)?, waveforms()?];
    for bytes in [100, 576, 1400] {
        rows.push(goodput(bytes)?);
    }
    for below in [0.12, 0.15, 0.18] {
        rows.push(frame_errors(below, if quick { 20_000 } else { 100_000 })?);
    }
    rows.extend(departures()?);
    rows.push(edge()?);
    Ok(rows)
}

/// A forward link of 40 Mbaud with so much C/N and no other noise.
fn forward(cn: f64, keys: &str, tables: &str) -> String {
    format!(
        "[scenario]\nname = \"self-test\"\nseed = 3\n[orbit]\nmodel = \"constant\"\none_way_delay = \"250 ms\"\n\
         [return]\nstandard = \"cbr\"\nbit_rate = \"5 Mbit/s\"\n\
         [forward]\nstandard = \"dvb-s2\"\nsymbol_rate = \"40 Mbaud\"\n{keys}\n[link_budget]\n\
         clear_sky_uplink_cn = \"1000 dB\"\nclear_sky_downlink_cn = \"{cn:.2} dB\"\n{tables}\n"
    )
}

/// True if a packet sent with one MODCOD alone arrives at this C/N.
fn closes(id: usize, cn: f64) -> Result<bool> {
    let keys = format!("mode = \"ccm\"\nmodcods = \"{id}\"");
    let mut link = Bench::new(&forward(cn, &keys, "[errors]\nmodel = \"gate\""))?;
    link.send(Duration::ZERO, Way::Forward, 100);
    Ok(!link.arrivals(SECOND).is_empty())
}

fn thresholds() -> Result<Row> {
    let mut exact = 0;
    for (index, (threshold, _)) in MODCODS.iter().enumerate() {
        let id = index + 1;
        exact += u32::from(closes(id, *threshold)? && !closes(id, threshold - 0.01)?);
    }
    let case = "thresholds of DVB-S2, to 0.01 dB";
    Ok(Row::within(
        "MODCODs",
        case,
        f64::from(exact),
        28.0..=28.0,
        "of 28",
        0,
    ))
}

/// Adaptive coding takes the most efficient MODCOD that closes, whatever the C/N.
fn staircase(quick: bool) -> Result<Row> {
    let step = if quick { 5 } else { 1 };
    let (mut steps, mut right, mut before) = (0, 0, 0.0);
    for tenths in (-30..=180).step_by(step) {
        let cn = f64::from(tenths) / 10.0;
        let mut link = Bench::new(&forward(cn, "", ""))?;
        let probe = link.probe(Duration::ZERO);
        let capacity = probe.terminals[0].forward_link.capacity.as_u64() as f64 / 40e6;
        let closing = MODCODS.iter().filter(|(threshold, _)| *threshold <= cn);
        let best = closing
            .map(|(_, efficiency)| *efficiency)
            .fold(MODCODS[0].1, f64::max);
        steps += 1;
        right += u32::from((capacity / best - 1.0).abs() <= 0.005 && capacity >= before);
        before = capacity;
    }
    let case = "staircase, C/N -3 to 18 dB: efficiency and order";
    let all = f64::from(steps);
    Ok(Row::within(
        "MODCODs",
        case,
        f64::from(right),
        all..=all,
        "steps",
        0,
    ))
}

/// Goodput of a full carrier of MODCOD 28 with packets of this size: whole frames, less what GSE adds.
fn goodput(bytes: u64) -> Result<Row> {
    // (58192 - 80) bits of a frame's data field in 13050 symbols.
    let (payload, frames) = (7264.0, 40e6 / 13_050.0);
    // A header of 10 bytes; a packet is cut at the end of each frame: 13, 3 and a CRC of 4 instead.
    let per_packet = bytes as f64 + 10.0;
    let expected = frames * (payload - 10.0) / per_packet * bytes as f64 * 8.0 / 1e6;
    let mut link = Bench::new(&forward(17.0, "", ""))?;
    let goodput = super::opensand::saturate(&mut link, Way::Forward, bytes, 200e6, 4)?;
    Ok(Row::within(
        "rate",
        format!("MODCOD 28, packets of {bytes} B in GSE"),
        goodput,
        expected * 0.995..=expected * 1.005,
        "Mbit/s",
        3,
    ))
}

/// A return link of 7.4 Mbaud with slots of its own, so much C/N on the uplink, and one waveform.
fn waveform(id: usize, cn: f64) -> Result<Bench> {
    let symbols = if id < 13 { 536 } else { 1616 };
    Bench::new(&format!(
        "[scenario]\nname = \"self-test\"\nseed = 3\n[orbit]\nmodel = \"constant\"\none_way_delay = \"250 ms\"\n\
         [forward]\nstandard = \"cbr\"\nbit_rate = \"5 Mbit/s\"\n\
         [return]\nstandard = \"dvb-rcs2\"\nsymbol_rate = \"7.4 Mbaud\"\naccess = \"dedicated\"\n\
         waveforms = \"{id}\"\nburst_symbols = {symbols}\n[errors]\nmodel = \"gate\"\n\
         [link_budget]\nclear_sky_uplink_cn = \"{cn:.2} dB\"\nclear_sky_downlink_cn = \"1000 dB\"\n"
    ))
}

fn waveforms() -> Result<Row> {
    let mut exact = 0;
    for (index, (threshold, payload)) in WAVEFORMS.iter().enumerate() {
        let id = index + 3;
        let arrives = |cn: f64| -> Result<bool> {
            let mut link = waveform(id, cn)?;
            link.send(MILLISECOND, Way::Return, 30);
            Ok(!link.arrivals(SECOND * 2).is_empty())
        };
        let capacity = waveform(id, *threshold)?.probe(SECOND).terminals[0]
            .return_link
            .capacity;
        // Whole slots of a superframe, each with the payload of the standard.
        let symbols = if id < 13 { 536.0 } else { 1616.0 };
        let slots = (7.4e6 * 0.0265_f64 / symbols).floor();
        let expected = slots * f64::from(*payload) * 8.0 / 0.0265;
        let right = (capacity.as_u64() as f64 / expected - 1.0).abs() <= 0.005;
        exact += u32::from(right && arrives(*threshold)? && !arrives(threshold - 0.01)?);
    }
    let case = "thresholds and payloads of DVB-RCS2";
    Ok(Row::within(
        "MODCODs",
        case,
        f64::from(exact),
        20.0..=20.0,
        "of 20",
        0,
    ))
}

/// Frames of MODCOD 20 below its threshold: 1e-7, and 35 decades more per decibel.
fn frame_errors(below: f64, count: u64) -> Result<Row> {
    let expected = 1e-7 * 10f64.powf(35.0 * below);
    let keys = "mode = \"ccm\"\nmodcods = \"20\"";
    let mut link = Bench::new(&forward(MODCODS[19].0 - below, keys, ""))?;
    let mut arrived = 0u64;
    for packet in 0..count {
        let at = MILLISECOND * packet as u32;
        link.send(at, Way::Forward, 100);
        while link.arrival(at).is_some() {
            arrived += 1;
        }
    }
    arrived += link.arrivals(MILLISECOND * count as u32 + SECOND).len() as u64;
    let lost = (count - arrived) as f64 / count as f64 * 100.0;
    let interval = binomial_interval(count, expected);
    let range = interval.start() * 100.0..=interval.end() * 100.0;
    let case = format!("{count} frames, {below:.2} dB below the threshold of 20");
    Ok(Row::within("PER", case, lost, range, "%", 3))
}

/// Half of what MODCOD 28 carries, in equal distances.
fn departures() -> Result<Vec<Row>> {
    const FRAME_MS: f64 = 13_050.0 / 40e6 * 1e3;
    let mut link = Bench::new(&forward(17.0, "", ""))?;
    // 1500 B every 135 µs are 89 Mbit/s.
    for packet in 0..20_000u32 {
        link.send(Duration::from_micros(135) * packet, Way::Forward, 1500);
    }
    let arrivals = link.arrivals(SECOND * 10);
    let pairs = arrivals.windows(2);
    let mut gaps: Vec<_> = pairs
        .map(|pair| (pair[1].at - pair[0].at).as_secs_f64() * 1e3)
        .collect();
    gaps.sort_by(f64::total_cmp);
    let (p99, most) = (quantile(&gaps, 0.99), quantile(&gaps, 1.0));
    Ok(vec![
        Row::within(
            "inter-departure",
            "half load, frames of 0.326 ms: p99",
            p99,
            0.0..=FRAME_MS + 0.2,
            "ms",
            3,
        ),
        Row::within(
            "inter-departure",
            "half load: longest gap",
            most,
            0.0..=2.0 * FRAME_MS,
            "ms",
            3,
        ),
    ])
}

/// Six decibels of rain at once: lost until the gateway knows and has sent with another MODCOD.
fn edge() -> Result<Row> {
    let outages = super::opensand::outages("")?;
    let errors = outages.iter().map(|outage| outage.error() * 1e3);
    let worst = errors.fold(0.0f64, |worst, error| {
        if error.abs() > worst.abs() {
            error
        } else {
            worst
        }
    });
    Ok(Row::within(
        "ACM edge",
        "6 dB, 40 phases: outage less wait and 2 delays",
        worst,
        -10.0..=10.0,
        "ms",
        1,
    ))
}

/// Effects of a 6 dB edge on the link: when it was learned, and the losses' first and last instant.
pub(super) fn losses(
    link: &mut Bench,
    until: Duration,
) -> (Option<Duration>, Option<(Duration, Duration)>) {
    let (mut learned, mut span) = (None, None);
    for packet in 0..u32::MAX {
        let at = Duration::from_micros(560) * packet;
        if at > until {
            break;
        }
        link.send(at, Way::Forward, 1428);
        while link.arrival(at).is_some() {}
        while let Some((when, event)) = link.event() {
            match event.kind {
                EventKind::Modcod { .. } => learned = learned.or(Some(when)),
                EventKind::Dropped { .. } => {
                    span = Some((span.map_or(when, |(first, _)| first), when));
                }
                _ => {}
            }
        }
    }
    (learned, span)
}

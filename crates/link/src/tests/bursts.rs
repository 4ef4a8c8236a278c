//! The DVB-RCS2 return link: how much it carries, how long the first packet takes, what noise destroys.

use std::time::{Duration, Instant};

use crate::{EventKind, Files, Link, Port, TerminalId, Way};

use super::common::origin;
use super::{header, made, read};

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// The paper's return link over 250 ms, and extra tables.
fn link(access: &str, extra: &str, start: Instant) -> Link<u32> {
    let text = format!(
        "[scenario]\nname = \"return\"\nseed = 5\n[orbit]\nmodel = \"constant\"\none_way_delay = \"250 ms\"\n\
         [forward]\nstandard = \"cbr\"\nbit_rate = \"100 Mbit/s\"\n\
         [return]\nstandard = \"dvb-rcs2\"\nsymbol_rate = \"7.4 Mbaud\"\nwaveforms = \"3-12\"\n{access}\n{extra}"
    );
    made(&text, start)
}

const PAPER: &str =
    "cra = \"100 kbit/s\"\nrbdc_max = \"5120 kbit/s\"\nmsl = 23\nl2_header = \"14 B\"";
const BUDGET: &str =
    "[link_budget]\nclear_sky_uplink_cn = \"20 dB\"\nclear_sky_downlink_cn = \"20 dB\"\n";

/// UDP goodput in Mbit/s of 1400 byte datagrams at `offered` Mbit/s, in the last 30 of 40 seconds.
fn goodput(link: &mut Link<u32>, start: Instant, offered: f64) -> f64 {
    let gap = Duration::from_secs_f64(1400.0 * 8.0 / (offered * 1e6));
    let end = start + SECOND * 40;
    let mut now = start;
    let mut arrived = 0u32;
    for packet in 0.. {
        now += gap;
        if now > end {
            break;
        }
        link.handle_packet(
            now,
            Port::Terminal(TerminalId::new(0)),
            header(1428, 0),
            packet,
        );
        while let Some(delivery) = link.poll_output(now) {
            arrived += u32::from(delivery.at >= start + SECOND * 10);
        }
    }
    f64::from(arrived) * 1400.0 * 8.0 / 30e6
}

#[test]
fn the_papers_return_link_carries_what_was_measured() {
    let start = origin();
    // OpenSAND: 4.74 Mbit/s, with bursts that hold 15 % too much, one packet each.
    let ticks = format!("{PAPER}\ntiming = \"opensand_ticks\"");
    let clumps = goodput(&mut link(&ticks, BUDGET, start), start, 8.0);
    assert!((clumps / 4.74 - 1.0).abs() < 0.02, "{clumps}");
    // The granted 5.22 Mbit/s of burst payload, without labels, headers of fragments, padding, Ethernet, IP and UDP.
    let real = goodput(&mut link(PAPER, BUDGET, start), start, 8.0);
    let expected = 5.22 * 189.0 / 194.0 * 1400.0 / 1452.0;
    assert!((real / expected - 1.0).abs() < 0.01, "{real} {expected}");
    println!("return goodput: {clumps:.2} Mbit/s in ticks, {real:.2} without");
}

#[test]
fn a_carrier_of_ones_own_is_filled() {
    let start = origin();
    let text = "access = \"dedicated\"";
    let all = goodput(&mut link(text, BUDGET, start), start, 30.0);
    let expected = 365.0 * 194.0 * 8.0 / 0.0265 / 1e6 * 189.0 / 194.0 * 1400.0 / 1438.0;
    assert!((all / expected - 1.0).abs() < 0.005, "{all} {expected}");
    // 8 dB less on the uplink are 11.73 dB: waveform 11 of 175 bytes.
    let rain =
        format!("{BUDGET}[attenuation.return_uplink]\nmodel = \"constant\"\nvalue = \"8 dB\"\n");
    let less = goodput(&mut link(text, &rain, start), start, 30.0);
    let expected = all * (175.0 - 5.0) / 189.0;
    assert!((less / expected - 1.0).abs() < 0.01, "{less} {expected}");
}

/// The round trip of a packet that a terminal sends at `at` and the gateway answers at once.
fn round_trip(link: &mut Link<u32>, at: Instant) -> Duration {
    link.handle_packet(at, Port::Terminal(TerminalId::new(0)), header(98, 0), 0);
    loop {
        let wakeup = link.poll_timeout().expect("the packet is on its way");
        while let Some(delivery) = link.poll_output(wakeup) {
            match delivery.to {
                Port::Gateway { terminal } => {
                    let answer = Port::Gateway { terminal };
                    link.handle_packet(delivery.at, answer, header(98, 0), 1);
                }
                Port::Terminal(_) => return delivery.at - at,
            }
        }
    }
}

#[test]
fn the_first_packet_pays_for_its_request() {
    let start = origin();
    let mut link = link("rbdc_max = \"5120 kbit/s\"\nmsl = 23", BUDGET, start);
    let mut round_trips: Vec<_> = (1..=100u32)
        .map(|ping| {
            round_trip(
                &mut link,
                start + SECOND * 5 * ping + MILLISECOND * (ping * 97 % 1007),
            )
        })
        .collect();
    round_trips.sort();
    // 0.5 s through space, 23 superframes from request to grant, up to a second to the request. OpenSAND: 1.13 to 1.92 s.
    assert!(round_trips[0] >= MILLISECOND * 1109 && round_trips[0] < MILLISECOND * 1160);
    assert!(round_trips[99] > MILLISECOND * 2050 && round_trips[99] < MILLISECOND * 2150);
    let within = round_trips
        .iter()
        .filter(|rtt| **rtt < MILLISECOND * 1920)
        .count();
    assert!((75..=87).contains(&within), "{within}");
    println!(
        "first packet after idle: {:?} to {:?}",
        round_trips[0], round_trips[99]
    );
    // The next one is in the grant that is still there.
    let at = start + SECOND * 600;
    let first = round_trip(&mut link, at);
    let second = round_trip(&mut link, at + first + MILLISECOND * 50);
    assert!(second < MILLISECOND * 530, "{second:?}");
}

#[test]
fn capacity_that_is_always_there_needs_no_request() {
    let start = origin();
    let mut link = link(PAPER, BUDGET, start);
    let first = round_trip(&mut link, start + SECOND);
    assert!(first < MILLISECOND * 530, "{first:?}");
    let mut kinds = Vec::new();
    while let Some(event) = link.poll_event() {
        assert_eq!(event.way, Way::Return);
        kinds.push(event.kind);
    }
    assert!(kinds.contains(&EventKind::Waveform { waveform: Some(12) }));
    assert!(
        !kinds
            .iter()
            .any(|kind| matches!(kind, EventKind::Requested { .. }))
    );
}

#[test]
fn ticks_make_round_trips_of_505_to_538_milliseconds() {
    let start = origin();
    let text = format!(
        "[scenario]\nname = \"ticks\"\nseed = 5\n[orbit]\nmodel = \"constant\"\none_way_delay = \"250 ms\"\n{BUDGET}\
         [forward]\nstandard = \"dvb-s2\"\nsymbol_rate = \"40 Mbaud\"\ntiming = \"opensand_ticks\"\n\
         [return]\nstandard = \"dvb-rcs2\"\nsymbol_rate = \"40 Mbaud\"\nwaveforms = \"3-12\"\ncra = \"3 Mbit/s\"\n\
         timing = \"opensand_ticks\"\n"
    );
    let mut link = made(&text, start);
    let ping = |number: u32| {
        start + SECOND * number + MILLISECOND.mul_f64(f64::from(number * 7919 % 26_500) / 1000.0)
    };
    let mut round_trips: Vec<_> = (1..=200)
        .map(|number| round_trip(&mut link, ping(number)).as_secs_f64() * 1e3)
        .collect();
    round_trips.sort_by(f64::total_cmp);
    let mean = round_trips.iter().sum::<f64>() / 200.0;
    let [least, most] = [round_trips[0], round_trips[199]];
    println!("round trips in ticks: {least:.1}/{mean:.1}/{most:.1} ms");
    // Measured: 505.0/521.4/538.6.
    assert!((500.0..507.0).contains(&least), "{least}");
    assert!((mean - 521.4).abs() < 3.5, "{mean}");
    assert!((532.0..541.0).contains(&most), "{most}");
}

#[test]
fn noise_destroys_bursts_as_their_curve_says() {
    // Fades of 0.5 s, shorter than the way from the gateway's measurement to the burst: the waveform is still 12.
    // Decades of burst error ratio per dB: 5.5, from 1e-5 at 12.56 dB on.
    for below in [0.3, 0.5, 0.7, 1.5] {
        let start = origin();
        let peak = 20.0 - (12.56 - below);
        let extra = format!(
            "[link_budget]\nclear_sky_uplink_cn = \"20 dB\"\nclear_sky_downlink_cn = \"200 dB\"\n\
             [attenuation.return_uplink]\nmodel = \"on_off\"\npeak = \"{peak} dB\"\nstart = \"5 s\"\non = \"500 ms\"\noff = \"4500 ms\"\n"
        );
        let mut link = link("access = \"dedicated\"", &extra, start);
        // One packet of 187 bytes fills a burst; ten a millisecond do not fill the carrier.
        let mut sent = [0u32; 2];
        let mut lost = [0u32; 2];
        // The middle of the fade: packets wait for their burst, and are on the way.
        let faded = |received: Duration| {
            let into = received.as_secs_f64() % 5.0;
            received > SECOND * 5 && (0.02..0.48).contains(&into)
        };
        for packet in 0..400_000u32 {
            let now = start + Duration::from_micros(100) * packet;
            link.handle_packet(
                now,
                Port::Terminal(TerminalId::new(0)),
                header(187, 0),
                packet,
            );
            while let Some(delivery) = link.poll_output(now) {
                sent[usize::from(faded(delivery.at - start))] += 1;
            }
            while let Some(event) = link.poll_event() {
                if matches!(event.kind, EventKind::Dropped { .. }) {
                    let fade = usize::from(faded(event.at - start));
                    sent[fade] += 1;
                    lost[fade] += 1;
                }
            }
        }
        let expected = (1e-5 * 10f64.powf(5.5 * below)).min(1.0);
        let count = f64::from(sent[1]);
        let deviation = (count * expected * (1.0 - expected)).sqrt();
        let difference = (f64::from(lost[1]) - count * expected).abs();
        assert!(count > 20_000.0, "{count}");
        assert!(
            difference <= 2.58 * deviation + 1.0,
            "{below} dB: {} of {count}",
            lost[1]
        );
    }
}

#[test]
fn terminals_share_what_all_want() {
    let start = origin();
    let terminals = "[queue]\nlimit = \"20 MB\"\n[[terminal]]\nname = \"a\"\n[[terminal]]\nname = \"b\"\nrbdc_max = \"15 Mbit/s\"\n\
        [[terminal]]\nname = \"c\"\nrbdc_max = \"15 Mbit/s\"\n";
    let mut link = link("rbdc_max = \"5 Mbit/s\"", terminals, start);
    let mut arrived = [0u32; 3];
    for step in 0..40_000u32 {
        let now = start + MILLISECOND * step;
        for terminal in 0..3 {
            for _ in 0..2 {
                link.handle_packet(
                    now,
                    Port::Terminal(TerminalId::new(terminal)),
                    header(1400, 0),
                    step,
                );
            }
        }
        while let Some(delivery) = link.poll_output(now) {
            if let Port::Gateway { terminal } = delivery.to
                && delivery.at > start + SECOND * 10
            {
                arrived[terminal.index()] += 1;
            }
        }
    }
    let [a, b, c] = arrived.map(|packets| f64::from(packets) * 1400.0 * 8.0 / 30e6);
    // 21.4 Mbit/s of payload for 5 + 15 + 15 asked.
    assert!(
        (b / c - 1.0).abs() < 0.01 && (b / a - 3.0).abs() < 0.1,
        "{a} {b} {c}"
    );
    let total = 365.0 * 194.0 * 8.0 / 0.0265 / 1e6 * 189.0 / 194.0;
    assert!(
        ((a + b + c) / total - 1.0).abs() < 0.02,
        "{} of {total}",
        a + b + c
    );
    let probe = link.probe(start + SECOND * 40);
    assert_eq!(probe.terminals[1].return_link.modcod, Some(12));
    let granted = probe.terminals[1].return_link.capacity.as_u64() as f64 / 1e6;
    assert!((granted / b - 1.04).abs() < 0.03, "{granted}");
}

#[test]
fn the_same_arrivals_give_the_same_link() {
    let run = |polls: u32| {
        let start = origin();
        let extra = format!(
            "{BUDGET}[attenuation.return_uplink]\nmodel = \"triangular\"\npeak = \"8 dB\"\nperiod = \"20 s\"\n"
        );
        let mut link = link(
            "rbdc_max = \"5 Mbit/s\"\nrequest_loss = \"10 %\"\nlogon = \"cold\"",
            &extra,
            start,
        );
        let mut log = Vec::new();
        for step in 0..20_000u32 {
            let now = start + MILLISECOND * step;
            for poll in 1..polls {
                let _ = link.probe(now - MILLISECOND * poll / polls);
            }
            let size = 40 + u64::from(step * 7919 % 1400);
            link.handle_packet(
                now,
                Port::Terminal(TerminalId::new(0)),
                header(size, 0),
                step,
            );
            while let Some(delivery) = link.poll_output(now) {
                log.push(format!("{:?} {}", delivery.at - start, delivery.packet));
            }
            while let Some(event) = link.poll_event() {
                log.push(format!("{:?} {:?}", event.at - start, event.kind));
            }
        }
        log.sort();
        log
    };
    let once = run(1);
    assert!(once.len() > 5_000);
    assert_eq!(once, run(1));
}

#[test]
fn faults_name_their_key() {
    let start = "[scenario]\nname = \"x\"\nseed = 1\n[orbit]\nmodel = \"constant\"\none_way_delay = \"250 ms\"\n";
    let carrier = |standard: &str| {
        format!("standard = \"{standard}\"\nsymbol_rate = \"7.4 Mbaud\"\ncra = \"1 Mbit/s\"\n")
    };
    let good = carrier("dvb-rcs2");
    let forward = "[forward]\nstandard = \"cbr\"\nbit_rate = \"1 Mbit/s\"\n";
    for (text, key, problem) in [
        (
            format!("{forward}[return]\n{good}msl = 10\n"),
            "return.msl",
            "take 20 superframes",
        ),
        (
            format!("{forward}[return]\n{good}waveforms = \"12-3\"\n"),
            "return.waveforms",
            "from 3 to 22",
        ),
        (
            format!("{forward}[return]\n{good}waveforms = \"13\"\n"),
            "return.waveforms",
            "none for bursts of 536",
        ),
        (
            format!("{forward}[return]\n{good}burst_symbols = 500\n"),
            "return.burst_symbols",
            "536 or 1616",
        ),
        (
            format!("{forward}[return]\n{good}superframe = \"10 us\"\n"),
            "return.superframe",
            "too short",
        ),
        (
            format!("{forward}[return]\n{good}request_period = \"1 ms\"\n"),
            "return.request_period",
            "a superframe",
        ),
        (
            format!("{forward}[return]\n{good}rbdc_timeout = 0\n"),
            "return.rbdc_timeout",
            "is 0",
        ),
        (
            format!("{forward}[return]\n{good}label = \"5 B\"\n"),
            "return.label",
            "0 or 3",
        ),
        (
            format!("{forward}[return]\n{}", good.replace("1 Mbit/s", "0 bit/s")),
            "return.access",
            "nothing",
        ),
        (
            format!("[return]\nstandard = \"cbr\"\nbit_rate = \"1 Mbit/s\"\n[forward]\n{good}"),
            "forward.standard",
            "only [return]",
        ),
    ] {
        let error = read(&format!("{start}{text}"))
            .build(&Files::new())
            .unwrap_err();
        assert_eq!(error.key(), key, "{error}");
        assert!(error.problem().contains(problem), "{error}");
    }
}

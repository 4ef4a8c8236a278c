//! The DVB-S2 forward link: rates, timing, sharing, faults of its table.

use std::time::{Duration, Instant};

use crate::{Files, Link, ModcodSet, Port, TerminalId};

use super::common::origin;
use super::{drain, gateway, header, made, read};

/// 40 Mbaud, 250 ms; `forward` and the tables after it follow.
fn text(forward: &str) -> String {
    format!(
        "[scenario]\nname = \"s2\"\nseed = 3\n[orbit]\nmodel = \"constant\"\none_way_delay = \"250 ms\"\n\
         [return]\nstandard = \"cbr\"\nbit_rate = \"5 Mbit/s\"\n\
         [forward]\nstandard = \"dvb-s2\"\n{forward}\n"
    )
}

/// PLFRAME symbols and data-field bytes, by hand from EN 302 307-1 tables 5a and 11.
const FRAMES: [(u8, f64, f64); 6] = [
    (1, 32_490.0, 1991.0),
    (4, 32_490.0, 4016.0),
    (12, 21_690.0, 4826.0),
    (18, 16_290.0, 5370.0),
    (26, 13_050.0, 6720.0),
    (28, 13_050.0, 7264.0),
];

/// Bits of packets of `size` that have arrived per second, while `link` always has more to send.
fn goodput(link: &mut Link<u32>, start: Instant, size: u64, seconds: u32) -> f64 {
    let (from, until) = (
        start + Duration::from_millis(500),
        start + Duration::from_secs(seconds.into()),
    );
    let (mut now, mut bytes, mut last) = (start, 0, from);
    while now < until {
        while link.probe(now).terminals[0].forward_link.queues[0].packets < 400 {
            link.handle_packet(now, gateway(0), header(size, 0), 0);
        }
        now += Duration::from_millis(1);
        while let Some(delivery) = link.poll_output(now) {
            if delivery.at > from {
                bytes += delivery.size.as_u64();
                last = delivery.at;
            }
        }
    }
    bytes as f64 * 8.0 / (last - from).as_secs_f64()
}

#[test]
fn the_rate_is_that_of_the_closed_form() {
    // From 1 Mbit/s to 178 Mbit/s, most robust and most efficient.
    let carriers = [("2.041 Mbaud", 1), ("5 Mbaud", 4), ("40 Mbaud", 28)];
    for (symbol_rate, modcod) in carriers {
        for size in [100u64, 576, 1400] {
            let start = origin();
            let table = format!(
                "symbol_rate = \"{symbol_rate}\"\nmode = \"ccm\"\nmodcods = \"{modcod}\"\n[queue]\npackets = 500"
            );
            let mut link = made(&text(&table), start);
            let seconds = if modcod == 28 { 3 } else { 20 };
            let measured = goodput(&mut link, start, size, seconds);
            let frame = FRAMES.iter().find(|(id, ..)| *id == modcod).unwrap();
            let baud: f64 = symbol_rate.split(' ').next().unwrap().parse().unwrap();
            let frames_per_second = baud * 1e6 / frame.1;
            // A packet has 10 bytes of GSE; the one that a frame's end cuts has 13 + 3 + 4.
            let packets = (frame.2 - 10.0) / (size as f64 + 10.0);
            let expected = packets * size as f64 * 8.0 * frames_per_second;
            let ratio = measured / expected;
            assert!(
                (ratio - 1.0).abs() < 0.005,
                "{symbol_rate} {modcod} {size}: {measured} {expected}"
            );
        }
    }
}

#[test]
fn pilots_and_roll_off_cost_what_they_cost() {
    let capacity = |forward: &str| {
        let mut link = made(&text(forward), origin());
        link.probe(origin()).terminals[0]
            .forward_link
            .capacity
            .as_u64() as f64
    };
    let plain = capacity("symbol_rate = \"40 Mbaud\"");
    assert!(
        (plain / (40e6 * 4.453027) - 1.0).abs() < 1e-6,
        "178.1 Mbit/s: {plain}"
    );
    assert_eq!(capacity("bandwidth = \"50 MHz\"\nroll_off = 0.25"), plain);
    let pilots = capacity("symbol_rate = \"40 Mbaud\"\npilots = true");
    assert!((pilots / plain - 13_050.0 / 13_338.0).abs() < 1e-6);
}

#[test]
fn departures_follow_the_law_of_plframes() {
    let start = origin();
    let mut link = made(&text("symbol_rate = \"40 Mbaud\""), start);
    // Half of the capacity, as a constant stream of 1400-byte packets.
    let gap = Duration::from_nanos(125_800);
    for packet in 0..20_000 {
        let now = start + gap * packet;
        link.handle_packet(now, gateway(0), header(1400, 0), packet);
        while link.poll_output(now).is_some() {}
    }
    let frame = Duration::from_nanos(326_250);
    let delay = Duration::from_millis(250);
    let mut last = None;
    for (at, _, packet) in drain(&mut link) {
        let sojourn = at - (start + gap * packet) - delay;
        // Its own frame, and at most the rest of the one before.
        assert!(
            sojourn >= frame - Duration::from_nanos(1) && sojourn <= frame * 2,
            "{sojourn:?}"
        );
        if let Some(last) = last.replace(at) {
            let step: Duration = at - last;
            assert!(step.is_zero() || step >= frame - Duration::from_nanos(1));
            assert!(step <= frame * 2, "{step:?}");
        }
    }
    // One packet alone takes one frame.
    let alone = start + Duration::from_secs(60);
    link.handle_packet(alone, gateway(0), header(40, 0), 7);
    let arrived = drain(&mut link);
    assert_eq!(arrived[0].0, alone + delay + frame);
}

#[test]
fn frames_do_not_drift() {
    // 33.3 Mbaud do not divide a nanosecond: 391.89… µs per frame.
    let start = origin();
    let table = "symbol_rate = \"33.3 Mbaud\"\n[queue]\npackets = 200000";
    let mut link = made(&text(table), start);
    // The first leaves alone; then two of 3622 and 10 bytes fill a frame.
    for packet in 0..199_999 {
        link.handle_packet(start, gateway(0), header(3622, 0), packet);
    }
    let arrived = drain(&mut link);
    let last = arrived.last().unwrap().0 - start - Duration::from_millis(250);
    let expected = 100_000.0 * 13_050.0 / 33.3e6;
    assert!((last.as_secs_f64() - expected).abs() < 1e-8, "{last:?}");
}

#[test]
fn terminals_with_their_own_modcods_get_equal_shares() {
    let start = origin();
    let table = "symbol_rate = \"10 Mbaud\"\nmode = \"vcm\"\n[queue]\npackets = 5000\n\
        [[terminal]]\nname = \"a\"\nmodcod = 28\n[[terminal]]\nname = \"b\"\nmodcod = 4\n[[terminal]]\nname = \"c\"\nmodcod = 28";
    let mut link = made(&text(table), start);
    for packet in 0..5_000 {
        for terminal in 0..3 {
            link.handle_packet(start, gateway(terminal), header(1000, 0), packet);
        }
    }
    let mut bytes = [0u64; 3];
    while let Some(delivery) = link.poll_output(start + Duration::from_millis(2250)) {
        let Port::Terminal(terminal) = delivery.to else {
            panic!("{delivery:?}")
        };
        bytes[terminal.index()] += delivery.size.as_u64();
    }
    // x bytes each: 2x at 4.453 bit per symbol and x at 0.989 in 20 million symbols.
    let each = 20e6 / (2.0 / 4.453 + 1.0 / 0.9889) / 8.0 * 0.99;
    for share in bytes {
        assert!((share as f64 / each - 1.0).abs() < 0.02, "{bytes:?} {each}");
    }
    let probe = link.probe(start + Duration::from_secs(3));
    let modcods: Vec<_> = probe
        .terminals
        .iter()
        .map(|terminal| terminal.forward_link.modcod)
        .collect();
    assert_eq!(modcods, [Some(28), Some(4), Some(28)]);
}

#[test]
fn the_background_takes_its_share() {
    let start = origin();
    let share = |background: &str| {
        let table = format!(
            "symbol_rate = \"40 Mbaud\"\n[queue]\npackets = 500\n[background]\n{background}"
        );
        goodput(&mut made(&text(&table), start), start, 1400, 3) / 176.4e6
    };
    // 60 of 176 Mbit/s are not ours; a load above its share is cut to it, alone or as forty terminals.
    let some = share("forward = \"60 Mbit/s\"");
    assert!((some - (1.0 - 60.0 / 176.5)).abs() < 0.02, "{some}");
    let half = share("forward = \"170 Mbit/s\"");
    assert!((half - 0.5).abs() < 0.02, "{half}");
    let forty = share("forward = \"170 Mbit/s\"\nterminals = 39");
    assert!((forty - (1.0 - 170.0 / 176.5)).abs() < 0.01, "{forty}");
}

#[test]
fn the_background_does_not_depend_on_polling() {
    let start = origin();
    let run = |polls: bool| {
        let table = "symbol_rate = \"1 Mbaud\"\n[background]\nforward = \"4 Mbit/s\"";
        let mut link = made(&text(table), start);
        let mut arrived = Vec::new();
        for packet in 0..200u32 {
            let now = start + Duration::from_millis(97) * packet * (1 + packet / 150 * 20);
            if polls {
                link.probe(now - Duration::from_millis(50).min(now - start));
            }
            link.handle_packet(now, gateway(0), header(700, 0), packet);
            while let Some(delivery) = link.poll_output(now) {
                arrived.push(delivery);
            }
        }
        arrived
    };
    let arrived = run(false);
    assert!(arrived.len() > 150);
    assert_eq!(arrived, run(true));
}

#[test]
fn ticks_are_those_of_opensand() {
    let start = origin();
    let ticks = "bandwidth = \"54 MHz\"\nroll_off = 0.35\ntiming = \"opensand_ticks\"\nl2_header = \"14 B\"\n[queue]\npackets = 6000";
    // UDP of 1400 bytes: 171.7 Mbit/s by OpenSAND's own arithmetic, of IP packets of 1428 bytes.
    let mut link = made(&text(ticks), start);
    let measured = goodput(&mut link, start, 1428, 5) * 1400.0 / 1428.0;
    assert!((measured / 171.7e6 - 1.0).abs() < 0.005, "{measured}");
    // 20 Mbit/s leave in clumps, ten milliseconds apart.
    let mut link = made(&text(ticks), start);
    for packet in 0..1786 {
        let now = start + Duration::from_nanos(559_910) * packet;
        link.handle_packet(now, gateway(0), header(1428, 0), packet);
    }
    let arrived = drain(&mut link);
    let mut clumps: Vec<(Instant, u32)> = Vec::new();
    for (at, _, _) in arrived {
        match clumps.last_mut() {
            Some((instant, count)) if *instant == at => *count += 1,
            _ => clumps.push((at, 1)),
        }
    }
    for pair in clumps[1..clumps.len() - 1].windows(2) {
        assert_eq!(pair[1].0 - pair[0].0, Duration::from_millis(10));
        assert!((17..=18).contains(&pair[0].1), "{pair:?}");
    }
    // The wait for the tick is 0 to 10 ms, and polling adds up to 2 ms.
    let mut link = made(&text(ticks), start);
    let mut sum = Duration::ZERO;
    for packet in 0..1000 {
        let now = start + Duration::from_micros(101_377) * packet;
        link.handle_packet(now, gateway(0), header(84, 0), packet);
        let (at, _, _) = drain(&mut link)[0];
        let wait = at - now - Duration::from_millis(250);
        assert!(wait < Duration::from_millis(12), "{wait:?}");
        sum += wait;
    }
    let mean = (sum / 1000).as_secs_f64() * 1e3;
    assert!((4.9..7.1).contains(&mean), "{mean}");
}

#[test]
fn an_scpc_return_link_is_a_carrier_too() {
    let text = text("symbol_rate = \"40 Mbaud\"").replace(
        "standard = \"cbr\"\nbit_rate = \"5 Mbit/s\"",
        "standard = \"dvb-s2\"\nsymbol_rate = \"1.5 Mbaud\"\nmode = \"ccm\"\nmodcods = \"4\"",
    );
    let start = origin();
    let mut link = made(&text, start);
    let terminal = Port::Terminal(TerminalId::new(0));
    link.handle_packet(start, terminal, header(1400, 0), 1);
    let arrived = drain(&mut link);
    let frame = Duration::from_micros(21_660);
    assert_eq!(arrived[0].0, start + Duration::from_millis(250) + frame);
    assert_eq!(arrived[0].1, gateway(0));
}

#[test]
fn faults_have_a_key() {
    let rate = "symbol_rate = \"40 Mbaud\"\n";
    for (forward, key) in [
        ("", "forward"),
        ("bandwidth = \"50 MHz\"", "forward"),
        (&format!("{rate}roll_off = 0.2"), "forward"),
        ("symbol_rate = \"1 baud\"", "forward.symbol_rate"),
        (&format!("{rate}mode = \"ccm\""), "forward.modcods"),
        (&format!("{rate}mode = \"vcm\""), "forward.mode"),
        (
            &format!("{rate}mode = \"vcm\"\n[[terminal]]\nname = \"a\""),
            "terminal.0.modcod",
        ),
        (
            &format!(
                "{rate}mode = \"vcm\"\nmodcods = \"1-4\"\n[[terminal]]\nname = \"a\"\nmodcod = 5"
            ),
            "terminal.0.modcod",
        ),
        (&format!("{rate}label = \"5 B\""), "forward.label"),
        (&format!("{rate}l2_header = \"1 kB\""), "forward.l2_header"),
        (&format!("{rate}[acm]\nmargin = \"-1 dB\""), "acm.margin"),
        (
            &format!("{rate}[acm]\nreport_period = \"0 s\""),
            "acm.report_period",
        ),
        (
            &format!("{rate}[background]\nforward = \"1 Mbit/s\"\nterminals = 0"),
            "background.terminals",
        ),
        (
            &format!("{rate}[background]\nforward = \"1 Mbit/s\"\nmodcod = 29"),
            "background.modcod",
        ),
    ] {
        let error = read(&text(forward)).build(&Files::new()).unwrap_err();
        assert_eq!(error.key(), key, "{forward}: {error}");
    }
    for (forward, word) in [
        (
            &format!("{rate}modcods = \"0-28\""),
            "write numbers from 1 to 28",
        ),
        (&format!("{rate}modcod = \"1\""), "modcods"),
        (&format!("{rate}mode = \"acn\""), "vcm"),
    ] {
        let error = toml::from_str::<crate::Scenario>(&text(forward)).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    }
    assert_eq!("1-28".parse(), Ok(ModcodSet::ALL));
}

#[test]
fn queues_hold_what_they_say() {
    let start = origin();
    let table = "symbol_rate = \"4 Mbaud\"\n[queue]\nlimit = \"100 kB\"";
    // A burst of twice the limit: the first packet leaves at once, and the limit waits.
    let mut link = made(&text(table), start);
    for packet in 0..200 {
        link.handle_packet(start, gateway(0), header(1000, 0), packet);
    }
    let dropped = |link: &mut Link<u32>, now| {
        link.probe(now).terminals[0]
            .forward_link
            .counters
            .dropped_queue
    };
    assert_eq!(dropped(&mut link, start), 99);
    drain(&mut link);
    // A load of one and a half: whoever waits has the limit before it, and no more.
    let start = start + Duration::from_secs(10);
    let gap = Duration::from_nanos((8000.0 / (17.81e6 * 1.5) * 1e9) as u64);
    let mut longest = Duration::ZERO;
    let mut sent = Vec::new();
    for packet in 0..10_000u32 {
        let now = start + gap * packet;
        sent.push(now);
        link.handle_packet(now, gateway(0), header(1000, 0), packet);
        while let Some(delivery) = link.poll_output(now) {
            longest = longest.max(delivery.at - sent[delivery.packet as usize]);
        }
    }
    let sojourn = (longest - Duration::from_millis(250)).as_secs_f64();
    // 100 packets of 1010 bytes at 17.81 Mbit/s, and up to two frames of 3.26 ms.
    let expected = 100.0 * 1010.0 * 8.0 / 17.81e6;
    assert!(
        (expected..expected * 1.01 + 0.0066).contains(&sojourn),
        "{sojourn} {expected}"
    );
}

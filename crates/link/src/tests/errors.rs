//! Losses by chance: shares, units, traces; and that a run repeats byte for byte.

use std::path::PathBuf;
use std::time::Duration;

use crate::{Files, Link, PacketHeader, Scenario};

use super::common::origin;
use super::{drain, gateway, header, made, read};

fn text(forward: &str, rest: &str) -> String {
    format!(
        "[scenario]\nname = \"e\"\nseed = 5\n[orbit]\nmodel = \"constant\"\none_way_delay = \"20 ms\"\n\
         [forward]\n{forward}\n[return]\nstandard = \"cbr\"\nbit_rate = \"5 Mbit/s\"\n\
         [queue]\npackets = 2000000\n{rest}\n"
    )
}

const CBR: &str = "standard = \"cbr\"\nbit_rate = \"100 Mbit/s\"";
const S2: &str = "standard = \"dvb-s2\"\nsymbol_rate = \"40 Mbaud\"";

/// Which of `count` packets of `size` arrive.
fn fates(link: &mut Link<u32>, count: u32, size: u64) -> Vec<bool> {
    let start = origin();
    for packet in 0..count {
        link.handle_packet(start, gateway(0), header(size, 0), packet);
    }
    let mut arrived = vec![false; count as usize];
    for (_, _, packet) in drain(link) {
        arrived[packet as usize] = true;
    }
    arrived
}

fn lost(fates: &[bool]) -> f64 {
    fates.iter().filter(|arrived| !**arrived).count() as f64
}

/// Whether `hits` of `trials` with probability `p` lie in the 99 % interval of their distribution.
fn plausible(hits: f64, trials: f64, p: f64) -> bool {
    (hits - trials * p).abs() <= 2.576 * (trials * p * (1.0 - p)).sqrt() + 0.5
}

#[test]
fn a_million_packets_lose_their_share() {
    let count = 1_000_000;
    for forward in [CBR, S2] {
        let rest = "[errors]\nmodel = \"iid\"\nrate = \"1 %\"";
        let fates = fates(&mut made(&text(forward, rest), origin()), count, 100);
        let losses = lost(&fates);
        assert!(plausible(losses, f64::from(count), 0.01), "{losses}");
        // Runs test: after a loss, another one is as likely as ever.
        let pairs = fates.windows(2).filter(|pair| !pair[0] && !pair[1]);
        let pairs = pairs.count() as f64;
        assert!(plausible(pairs, losses, 0.01), "{pairs} of {losses}");
    }
}

#[test]
fn bit_errors_lose_long_packets_and_repeat() {
    let errors = |rate: &str| {
        format!("[errors]\nmodel = \"bits\"\nrate = \"{rate}\"\ndirection = \"forward\"")
    };
    let count = 1_000_000;
    // 1 - (1 - rate)^(8 size)
    for (rate, size, p) in [
        ("1e-5", 40, 0.003_195),
        ("1e-5", 76, 0.006_062),
        ("1e-5", 256, 0.020_272),
        ("1e-5", 1500, 0.113_080),
        ("1e-6", 40, 0.000_320),
        ("1e-6", 76, 0.000_608),
        ("1e-6", 256, 0.002_046),
        ("1e-6", 1500, 0.011_928),
    ] {
        let fates = fates(&mut made(&text(CBR, &errors(rate)), origin()), count, size);
        // Of losses this rare 5 % are two standard deviations.
        let (losses, most) = (lost(&fates), if p < 0.003 { 0.1 } else { 0.05 });
        let off = losses / (f64::from(count) * p) - 1.0;
        assert!(off.abs() < most, "{rate}, {size} bytes: {losses} lost");
        assert!(plausible(losses, f64::from(count), p), "{losses}");
    }
    let rest = &errors("1e-5");
    let of_text = |rest: &str| fates(&mut made(&text(CBR, rest), origin()), 100_000, 1500);
    assert_eq!(of_text(rest), of_text(rest));
    // What codes correct has no wrong bits left.
    let error = read(&text(S2, rest)).build(&Files::new()).unwrap_err();
    assert_eq!(error.key(), "errors.model");
    assert!(error.problem().contains("[forward]"), "{error}");
    let back = rest.replace("forward", "return");
    read(&text(S2, &back)).build(&Files::new()).unwrap();
}

#[test]
fn units_are_hit_as_wholes() {
    let iid = |unit: &str| {
        format!(
            "[errors]\nmodel = \"iid\"\nrate = \"2 %\"\nunit = \"{unit}\"\ndirection = \"forward\""
        )
    };
    // Frames of 7264 bytes hold 65.4 packets of 101 and 10 bytes.
    let count = 300_000;
    let frames = fates(&mut made(&text(S2, &iid("bbframe")), origin()), count, 101);
    let losses = lost(&frames);
    // One in 65 packets lies in two frames.
    let expected = 0.02 + 0.0196 / 65.4;
    let share = losses / f64::from(count);
    assert!((share / expected - 1.0).abs() < 0.1, "{share}");
    let bursts = frames.windows(2).filter(|pair| pair[0] && !pair[1]).count() as f64;
    let mean = losses / bursts;
    assert!((60.0..75.0).contains(&mean), "{mean}");
    // A packet of 20,000 bytes lies in 3.75 frames on average, each of which takes it along.
    let large = fates(
        &mut made(&text(S2, &iid("bbframe")), origin()),
        20_000,
        20_000,
    );
    let frames = (1.0 - lost(&large) / 20_000.0).ln() / 0.98f64.ln();
    assert!((3.4..4.1).contains(&frames), "{frames}");
    // 20,000-byte packets are cut into GSE packets, each of which may be lost: 4097 bytes at most, and by frames.
    let large = fates(&mut made(&text(S2, &iid("gse")), origin()), 20_000, 20_000);
    let share = lost(&large) / 20_000.0;
    let pieces = (1.0 - share).ln() / 0.98f64.ln();
    assert!((5.0..9.0).contains(&pieces), "{pieces}");
    let packets = fates(&mut made(&text(S2, &iid("ip")), origin()), 20_000, 20_000);
    assert!(plausible(lost(&packets), 20_000.0, 0.02));
}

/// What offload left in one piece is lost in one piece, over frames as over single packets; what came alone, alone.
#[test]
fn trains_share_their_fate() {
    let rest = "[errors]\nmodel = \"iid\"\nrate = \"2 %\"\nunit = \"offload\"";
    let count: u32 = 120_000;
    for forward in [CBR, S2] {
        let mut link = made(&text(forward, rest), origin());
        // Trains of three, and after each a packet of its own.
        for packet in 0..count {
            let train = (packet % 4 < 3).then_some(u64::from(packet / 4));
            let header = PacketHeader {
                train,
                ..header(500, 0)
            };
            link.handle_packet(origin(), gateway(0), header, packet);
        }
        let mut arrived = vec![false; count as usize];
        for (_, _, packet) in drain(&mut link) {
            arrived[packet as usize] = true;
        }
        let trains: Vec<_> = arrived.chunks(4).map(|train| train[0]).collect();
        let alone: Vec<_> = arrived.chunks(4).map(|train| train[3]).collect();
        for (train, first) in arrived.chunks(4).zip(&trains) {
            assert!(train[..3].iter().all(|packet| packet == first));
        }
        for fates in [&trains, &alone] {
            assert!(plausible(lost(fates), f64::from(count / 4), 0.02));
        }
        let both = arrived
            .chunks(4)
            .filter(|train| !train[0] && !train[3])
            .count() as f64;
        assert!(plausible(both, f64::from(count / 4), 0.0004), "{both}");
    }
}

#[test]
fn bursts_have_their_length() {
    let rest = "[errors]\nmodel = \"gilbert_elliott\"\nrate = \"2 %\"\nmean_burst = 8.0";
    let fates = fates(&mut made(&text(S2, rest), origin()), 1_000_000, 100);
    let losses = lost(&fates);
    assert!((losses / 20_000.0 - 1.0).abs() < 0.06, "{losses}");
    let bursts = fates.windows(2).filter(|pair| pair[0] && !pair[1]).count() as f64;
    assert!((losses / bursts / 8.0 - 1.0).abs() < 0.06);
}

#[test]
fn a_trace_is_replayed() {
    let rest = "[errors]\nmodel = \"trace\"\nfile = \"losses.txt\"";
    let scenario = read(&text(S2, rest));
    let file = PathBuf::from("losses.txt");
    assert_eq!(scenario.files(), std::slice::from_ref(&file));
    let build = |record: Option<&str>| {
        let files = record.map(|record| (file.clone(), record.to_owned()));
        scenario.build(&Files::from_iter(files))
    };
    let model = build(Some("# recorded\n0 1 0\n00\n")).unwrap();
    let fates = fates(&mut Link::new(&model, origin()), 10, 500);
    let second = |index: usize| index % 5 != 1;
    assert_eq!(fates, (0..10).map(second).collect::<Vec<_>>());
    for (record, word) in [
        (None, "was not read"),
        (Some("# nothing"), "0 units"),
        (Some("0\n01x"), "losses.txt:2 has `x`"),
    ] {
        let error = build(record).unwrap_err();
        assert_eq!(error.key(), "errors.file");
        assert!(error.to_string().contains(word), "{error}");
    }
    let unit = "[errors]\nmodel = \"iid\"\nrate = \"1 %\"\nunit = \"bbframe\"";
    let scenario: Scenario = read(&text(CBR, unit));
    let error = scenario.build(&Files::new()).unwrap_err();
    assert_eq!(error.key(), "errors.unit");
}

#[test]
fn a_run_repeats_byte_for_byte() {
    let run = |seed: u32| {
        let rest = "[errors]\nmodel = \"gilbert_elliott\"\nrate = \"3 %\"\nmean_burst = 2.0\nunit = \"gse\"\ndirection = \"forward\"\n\
            [[terminal]]\nname = \"a\"\n[[terminal]]\nname = \"b\"\n[background]\nforward = \"5 Mbit/s\"";
        let text = text(&S2.replace("40 M", "4 M"), rest)
            .replace("seed = 5", &format!("seed = {seed}"))
            .replace("2000000", "20\ndiscipline = \"codel\"");
        let start = origin();
        let mut link = made(&text, start);
        let mut log = String::new();
        for packet in 0..20_000u32 {
            let now =
                start + Duration::from_micros(397) * packet + Duration::from_nanos(packet.into());
            let size = u64::from(packet % 37) * 40 + 40;
            let terminal = (packet % 3 / 2) as usize;
            link.handle_packet(now, gateway(terminal), header(size, 0), packet);
            while let Some(delivery) = link.poll_output(now) {
                log += &format!(
                    "{:?} {:?} {}\n",
                    delivery.at - start,
                    delivery.to,
                    delivery.packet
                );
            }
            while let Some(event) = link.poll_event() {
                log += &format!(
                    "{:?} {:?} {:?}\n",
                    event.at - start,
                    event.terminal,
                    event.kind
                );
            }
        }
        log
    };
    let log = run(5);
    for word in ["QueueFull", "Codel", "Channel", "Terminal"] {
        assert!(log.contains(word), "{word}");
    }
    assert!(log == run(5));
    assert!(log != run(6));
}

//! Delays that change: steps of a trace, overtaking, what handovers hold back and lose, terminals at different places.

use std::time::{Duration, Instant};

use crate::{DropCause, EventKind, Files, Link};
use bentpipe_units::BitRate;

use super::common::origin;
use super::{drain, gateway, header, read};

const LINK: &str = r#"
[scenario]
name = "space"
seed = 3
[forward]
standard = "cbr"
bit_rate = "12 Mbit/s"
[return]
standard = "cbr"
bit_rate = "12 Mbit/s"
"#;

/// A delay that falls from 40 to 20 ms after a second and rises to 60 ms after two.
const TRACE: &str = "0 40\n1 20\n2 60\n";

fn made(extra: &str, start: Instant) -> Link<u32> {
    let files = Files::from([("delays.csv".into(), TRACE.to_owned())]);
    let scenario = read(&format!("{LINK}{extra}"));
    let model = scenario.build(&files);
    Link::new(&model.unwrap_or_else(|error| panic!("{error}")), start)
}

/// Sends a packet of 1 ms each 10 ms for three seconds; when each arrives, in the order of arrival.
fn arrivals(link: &mut Link<u32>, start: Instant) -> Vec<(u32, Duration)> {
    let mut arrived = Vec::new();
    for packet in 0..300 {
        let now = start + Duration::from_millis(10) * packet;
        while let Some(delivery) = link.poll_output(now) {
            arrived.push((delivery.packet, delivery.at - start));
        }
        link.handle_packet(now, gateway(0), header(1500, 0), packet);
    }
    let rest = drain(link).into_iter();
    arrived.extend(rest.map(|(at, _, packet)| (packet, at - start)));
    arrived
}

/// The delay of the trace for a packet, and the millisecond that it takes to send.
fn expected(packet: u32) -> Duration {
    let sent = Duration::from_millis(10) * packet + Duration::from_millis(1);
    let delay = match sent.as_secs() {
        0 => 40,
        1 => 20,
        _ => 60,
    };
    sent + Duration::from_millis(delay)
}

#[test]
fn a_trace_is_followed_in_steps_and_in_order() {
    let start = origin();
    let mut link = made("[orbit]\nmodel = \"trace\"\nfile = \"delays.csv\"\n", start);
    let arrived = arrivals(&mut link, start);
    assert!(arrived.iter().map(|(packet, _)| *packet).eq(0..300));
    let mut latest = Duration::ZERO;
    for (packet, at) in arrived {
        // Where the delay falls, packets wait for those sent before.
        latest = latest.max(expected(packet));
        assert_eq!(at, latest, "{packet}");
    }
}

#[test]
fn packets_overtake_where_it_is_allowed() {
    let start = origin();
    let orbit = "[orbit]\nmodel = \"trace\"\nfile = \"delays.csv\"\nallow_reordering = true\n";
    let arrived = arrivals(&mut made(orbit, start), start);
    assert_eq!(arrived.len(), 300);
    assert!(!arrived.is_sorted_by_key(|(packet, _)| *packet));
    assert!(arrived.is_sorted_by_key(|(_, at)| *at));
    assert!(arrived.iter().all(|(packet, at)| *at == expected(*packet)));
}

#[test]
fn handovers_hold_packets_back_and_lose_some() {
    let start = origin();
    let orbit = "[orbit]\nmodel = \"starlink\"\nphase = \"1 s\"\njitter = \"0 ms\"\nminimum_hold = \"100 ms\"\n\
        maximum_hold = \"100 ms\"\nburst_probability = \"100 %\"\nminimum_burst = \"50 ms\"\nmaximum_burst = \"50 ms\"\n";
    let mut link = made(orbit, start);
    let arrived = arrivals(&mut link, start);
    // Ten packets are held for up to 100 ms and then sent, 1 ms each; while these leave and to the end of the 50 ms all is lost.
    let lost = 300 - arrived.len();
    assert!((13..=16).contains(&lost), "{lost}");
    let held =
        |at: &Duration| (Duration::from_millis(1030)..Duration::from_millis(1100)).contains(at);
    assert!(!arrived.iter().any(|(_, at)| held(at)));
    let mut causes = Vec::new();
    while let Some(event) = link.poll_event() {
        let EventKind::Dropped { cause, .. } = event.kind else {
            continue;
        };
        causes.push(cause);
    }
    assert_eq!(causes, vec![DropCause::Outage; lost]);
    let counters = link.probe(start + Duration::from_secs(9)).terminals[0]
        .forward_link
        .counters;
    assert_eq!(counters.dropped_outage, lost as u64);
}

#[test]
fn a_probe_says_what_an_epoch_has_of_the_rates() {
    let start = origin();
    for (share, rate) in [("0.5", 6), ("1.5", 18)] {
        let orbit = format!(
            "[orbit]\nmodel = \"starlink\"\nminimum_capacity = {share}\nmaximum_capacity = {share}\n"
        );
        let probe = made(&orbit, start).probe(start);
        let terminal = &probe.terminals[0];
        for way in [&terminal.forward_link, &terminal.return_link] {
            assert_eq!(way.capacity, BitRate::megabits_per_second(rate), "{share}");
        }
    }
}

#[test]
fn terminals_stand_where_they_say() {
    let text = "[orbit]\nmodel = \"geo\"\nsatellite_longitude = \"9 deg\"\n\
        terminal = { latitude = \"0 deg\", longitude = \"9 deg\" }\ngateway = { latitude = \"0 deg\", longitude = \"9 deg\" }\n\
        [[terminal]]\nname = \"below\"\n[[terminal]]\nname = \"north\"\n\
        station = { latitude = \"60 deg\", longitude = \"9 deg\" }\n";
    let mut link = made(text, origin());
    let probe = link.probe(origin());
    let delays = probe
        .terminals
        .iter()
        .map(|terminal| terminal.forward_link.one_way_delay.get());
    let delays: Vec<_> = delays.map(|delay| delay.as_secs_f64() * 1e3).collect();
    assert!(
        (delays[0] - 238.74).abs() < 0.01 && (delays[1] - 250.3).abs() < 0.5,
        "{delays:?}"
    );
}

#[test]
fn a_link_budget_shows_in_the_probes() {
    let text = "[orbit]\nmodel = \"constant\"\none_way_delay = \"250 ms\"\n[link_budget]\nclear_sky_uplink_cn = \"20 dB\"\n\
        clear_sky_downlink_cn = \"20 dB\"\n[attenuation.forward_downlink]\nmodel = \"on_off\"\npeak = \"6 dB\"\n\
        start = \"10 s\"\non = \"5 s\"\noff = \"5 s\"\n";
    let start = origin();
    let mut link = made(text, start);
    let mut cn = |seconds: u64| {
        let probe = link.probe(start + Duration::from_secs(seconds));
        let terminal = &probe.terminals[0];
        [&terminal.forward_link, &terminal.return_link].map(|way| way.cn.unwrap().as_f64())
    };
    assert!(cn(9).iter().all(|cn| (cn - 16.99).abs() < 0.005));
    let [forward, back] = cn(12);
    assert!((forward - 13.03).abs() < 0.005 && (back - 16.99).abs() < 0.005);
}

#[test]
fn faults_name_their_key() {
    let walker = "[orbit]\nmodel = \"walker\"\nsatellites = 66\nplanes = 6\nphasing = 3\naltitude = \"780 km\"\n\
        inclination = \"86.4 deg\"\npattern = \"star\"\ninter_satellite_links = true\n\
        terminal = { latitude = \"35 deg\", longitude = \"-40 deg\" }\ngateway = { latitude = \"51 deg\", longitude = \"0 deg\" }\n";
    let constant = "[orbit]\nmodel = \"constant\"\none_way_delay = \"1 ms\"\n";
    for (text, key, problem) in [
        (
            "[orbit]\nmodel = \"trace\"\nfile = \"none.csv\"\n".to_owned(),
            "orbit.file",
            "not read",
        ),
        (
            walker.replace("planes = 6", "planes = 7"),
            "orbit.planes",
            "cannot be spread evenly",
        ),
        (
            walker.replace("= 66", "= 0"),
            "orbit.satellites",
            "1 to 20000",
        ),
        (
            walker.replace("780 km", "780 m"),
            "orbit.altitude",
            "not in space",
        ),
        (
            format!(
                "{constant}[attenuation.return_uplink]\nmodel = \"constant\"\nvalue = \"3 dB\"\n"
            ),
            "attenuation.return_uplink",
            "[link_budget]",
        ),
        (
            format!(
                "{constant}[link_budget]\nclear_sky_uplink_cn = \"9 dB\"\nclear_sky_downlink_cn = \"9 dB\"\n\
                 [attenuation.return_uplink]\nmodel = \"constant\"\nvalue = \"-3 dB\"\n"
            ),
            "attenuation.return_uplink.value",
            "a fade has 0 to 100 dB",
        ),
    ] {
        let scenario = read(&format!("{LINK}{text}"));
        let error = scenario.build(&Files::new()).unwrap_err();
        assert_eq!(error.key(), key);
        assert!(error.problem().contains(problem), "{error}");
    }
}

#[test]
fn a_recorded_rate_lets_packets_go_when_it_says() {
    let start = origin();
    let files = Files::from([("uplink.trace".into(), "10\n10\n25\n100\n".to_owned())]);
    let text = LINK.replacen(
        "standard = \"cbr\"\nbit_rate = \"12 Mbit/s\"",
        "standard = \"mahimahi\"\nfile = \"uplink.trace\"",
        1,
    );
    let text = format!("{text}[orbit]\nmodel = \"constant\"\none_way_delay = \"20 ms\"\n");
    let scenario = read(&text);
    assert_eq!(scenario.files(), [std::path::PathBuf::from("uplink.trace")]);
    let model = scenario
        .build(&files)
        .unwrap_or_else(|error| panic!("{error}"));
    let mut link = Link::new(&model, start);
    for packet in 0..6 {
        link.handle_packet(start, gateway(0), header(1500, 0), packet);
    }
    let arrived = drain(&mut link).into_iter();
    let arrived: Vec<_> = arrived.map(|(at, ..)| (at - start).as_millis()).collect();
    // 480 kbit/s: the queue has its least size and takes ten.
    assert_eq!(arrived, [30, 30, 45, 120, 130, 130]);
    let capacity = link.probe(start).terminals[0].forward_link.capacity;
    assert_eq!(capacity, BitRate::kilobits_per_second(480));
}

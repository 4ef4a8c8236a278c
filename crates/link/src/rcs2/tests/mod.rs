//! Access to the return link: how long it takes, how much it gives, to whom.

mod rig;

use std::collections::BTreeMap;
use std::time::Duration;

use bentpipe_units::{BitRate, ByteCount, Ratio};

use super::controller::Contract;
use crate::attenuation::Attenuation;
use crate::event::EventKind;
use rig::{GEO, MSL, PERIOD, Rig, SECOND, SUPERFRAME, contract, kbit, model};

fn near(value: f64, expected: f64, share: f64) {
    assert!(
        (value / expected - 1.0).abs() < share,
        "{value} instead of {expected}"
    );
}

#[test]
fn the_first_packet_waits_for_its_request_and_its_grant() {
    let model = model(&[contract(0, 5120)]);
    let mut delays: Vec<f64> = Vec::new();
    for sample in 0..400u32 {
        let mut rig = Rig::new(&model);
        let at = SECOND * 3 + SECOND.mul_f64(f64::from(sample * 977 % 1007) / 1000.0);
        rig.run(at);
        rig.offer(at, 0, 98);
        let start = rig.step(SECOND * 10).unwrap();
        delays.push((start - at).as_secs_f64());
    }
    delays.sort_by(f64::total_cmp);
    // Up to a period until the control burst; then exactly the scheduling latency, and a lone slot is in the middle of
    // its superframe.
    let period = (SUPERFRAME * PERIOD as u32).as_secs_f64();
    let least = (SUPERFRAME * MSL as u32 + SUPERFRAME / 2).as_secs_f64();
    let distance = delays.iter().enumerate().map(|(index, delay)| {
        let model = ((delay - least) / period).clamp(0.0, 1.0);
        (model - index as f64 / 400.0)
            .abs()
            .max((model - (index + 1) as f64 / 400.0).abs())
    });
    // Kolmogorov and Smirnov, p = 0.01.
    let distance = distance.fold(0.0, f64::max);
    assert!(distance < 1.63 / 20.0, "{distance}");
    // With both ways through space: 1.1 s and up to a second more. OpenSAND was seen to take 1.13 to 1.92 s.
    let round_trips = [delays[0], delays[399]].map(|delay| delay + 0.5);
    assert!(
        round_trips[0] > 1.1 && round_trips[1] < 2.15,
        "{round_trips:?}"
    );
}

#[test]
fn a_rate_is_granted_up_to_its_ceiling() {
    let mut rig = Rig::new(&model(&[contract(100, 5120)]));
    near(rig.saturated(SECOND * 5, SECOND * 60)[0], 5.22e6, 0.01);
    // Continuous assignment alone, whose slots are no round number per superframe.
    let mut rig = Rig::new(&model(&[contract(100, 0)]));
    near(rig.saturated(SECOND * 5, SECOND * 60)[0], 100e3, 0.01);
    // OpenSAND rounds each part up: 2 and 77 slots of 223 bytes.
    let mut ticks = model(&[contract(100, 5120)]);
    ticks.sharing.opensand = true;
    near(
        Rig::new(&ticks).saturated(SECOND * 5, SECOND * 60)[0],
        79.0 * 223.0 * 8.0 / 0.0265,
        0.01,
    );
}

#[test]
fn a_carrier_is_shared_in_proportion_to_what_was_asked() {
    // 21.4 Mbit/s for 4 + 8 + 16 of rates and 1 each of continuous assignment.
    let contracts = [
        contract(1000, 4000),
        contract(1000, 8000),
        contract(1000, 16_000),
    ];
    let total = 365.0 * 194.0 * 8.0 / SUPERFRAME.as_secs_f64();
    let mut rig = Rig::new(&model(&contracts));
    let rates = rig.saturated(SECOND * 5, SECOND * 60);
    let share = (total - 3e6) / 28e6;
    for (rate, asked) in rates.iter().zip([4e6, 8e6, 16e6]) {
        near(*rate, 1e6 + asked * share, 0.01);
    }
    near(rates.iter().sum(), total, 0.002);
    // Others, who ask for as much as the three together.
    let mut busy = model(&contracts);
    busy.sharing.background = 28e6 / total * 365.0;
    let rates = Rig::new(&busy).saturated(SECOND * 5, SECOND * 60);
    near(rates[1], 1e6 + 8e6 * share / 2.0, 0.02);
}

#[test]
fn volumes_and_what_is_left_are_granted_too() {
    let mut volume = Contract {
        vbdc_max: ByteCount::new(500_000),
        ..Contract::default()
    };
    let mut rig = Rig::new(&model(&[volume, Contract::default()]));
    rig.offer(SECOND, 0, 100_000);
    rig.run(SECOND * 4);
    assert_eq!((rig.backlog[0], rig.sent[0]), (0, 100_000));
    let asked: Vec<_> = rig
        .notes
        .iter()
        .filter_map(|(_, _, kind)| match kind {
            EventKind::Requested { vbdc, .. } => Some(vbdc.as_u64()),
            _ => None,
        })
        .collect();
    assert_eq!(asked, [100_000]);
    // What nobody asks for goes to those who may have it, in equal parts.
    volume.fca = true;
    let mut rig = Rig::new(&model(&[volume, Contract::default(), volume]));
    let rates = rig.saturated(SECOND * 5, SECOND * 20);
    let total = 365.0 * 194.0 * 8.0 / SUPERFRAME.as_secs_f64();
    assert_eq!(rates[1], 0.0);
    near(rates[0], total / 2.0, 0.01);
    near(rates[2], total / 2.0, 0.01);
}

#[test]
fn dedicated_capacity_is_there_at_once() {
    let mut dedicated = model(&[Contract::default(), Contract::default()]);
    dedicated.sharing.dedicated = true;
    let mut rig = Rig::new(&dedicated);
    rig.offer(SECOND, 0, 98);
    assert!(rig.step(SECOND * 2).unwrap() - SECOND < SUPERFRAME);
    let rates = Rig::new(&dedicated).saturated(SECOND, SECOND * 20);
    near(rates[0], rates[1], 0.001);
    near(
        rates[0] + rates[1],
        365.0 * 194.0 * 8.0 / SUPERFRAME.as_secs_f64(),
        0.001,
    );
}

#[test]
fn a_grant_ends_when_nobody_asks_again() {
    let mut rig = Rig::new(&model(&[contract(0, 5120)]));
    rig.offer(SECOND, 0, 10_000);
    rig.run(SECOND * 10);
    let grants: Vec<_> = rig
        .notes
        .iter()
        .filter_map(|(at, _, kind)| match kind {
            EventKind::Granted { bit_rate } => Some((*at, *bit_rate)),
            _ => None,
        })
        .collect();
    let (begun, rate) = grants[0];
    let (ended, nothing) = *grants.last().unwrap();
    assert!(rate >= kbit(160) && nothing == BitRate::default());
    // The request of the next period may still ask for what was left.
    let lasted = (ended - begun).as_secs_f64();
    assert!((1.0..2.2).contains(&lasted), "{lasted}");
}

#[test]
fn a_lost_request_costs_a_period() {
    let mut lossy = model(&[contract(0, 5120)]);
    lossy.request_loss = Ratio::new(0.5).unwrap();
    let mut delays = Vec::new();
    let mut rig = Rig::new(&lossy);
    for sample in 1..200u32 {
        let at = SECOND * 20 * sample + SUPERFRAME * (sample % 38);
        rig.run(at);
        rig.offer(at, 0, 98);
        delays.push((rig.step(at + SECOND * 19).unwrap() - at).as_secs_f64());
    }
    let requests = rig.notes.iter().filter_map(|(_, _, kind)| match kind {
        EventKind::Requested { lost, .. } => Some(*lost),
        _ => None,
    });
    let (lost, arrived): (Vec<bool>, Vec<bool>) = requests.partition(|lost| *lost);
    assert_eq!(arrived.len(), 199);
    assert!((140..270).contains(&lost.len()), "{}", lost.len());
    // A mean of 1.13 s without loss, and of one period more with it.
    near(delays.iter().sum::<f64>() / 199.0, 1.13 + 1.0, 0.1);
}

#[test]
fn terminals_log_on_before_they_send() {
    let mut cold = model(&[contract(100, 5120), contract(100, 5120)]);
    cold.cold = true;
    let mut rig = Rig::new(&cold);
    rig.offer(Duration::ZERO, 0, 98);
    let start = rig.step(SECOND * 10).unwrap();
    let logons: Vec<_> = rig
        .notes
        .iter()
        .filter(|(_, _, kind)| *kind == EventKind::LoggedOn)
        .collect();
    assert_eq!(logons.len(), 2);
    // A control burst up, the answer down; then a grant can be used.
    let (at, ..) = logons[0];
    assert!((GEO * 2..GEO * 2 + SUPERFRAME * 2).contains(at), "{at:?}");
    assert!(start > *at && start < *at + SECOND / 4, "{start:?}");
}

#[test]
fn rain_changes_the_waveform_and_then_ends_the_session() {
    // 20 dB and 20 dB are 16.99; 9 dB less on the uplink are 10.67: waveform 9 (9.31), not yet 10 (10.82).
    let rain = |peak| Attenuation::OnOff {
        peak,
        start: SECOND * 10,
        on: SECOND * 20,
        off: SECOND * 1000,
    };
    let mut rig = Rig::fading(&model(&[contract(1000, 0)]), rain(9.0));
    rig.run(SECOND * 60);
    let waveforms = |rig: &Rig| -> Vec<_> {
        let notes = rig.notes.iter().filter_map(|(_, _, kind)| match kind {
            EventKind::Waveform { waveform } => Some(*waveform),
            _ => None,
        });
        notes.collect()
    };
    assert_eq!(waveforms(&rig), [Some(12), Some(9), Some(12)]);
    let mut rig = Rig::fading(&model(&[contract(1000, 0)]), rain(40.0));
    rig.run(SECOND * 60);
    assert_eq!(waveforms(&rig), [Some(12), None, Some(12)]);
    let times: BTreeMap<&str, Duration> = rig
        .notes
        .iter()
        .filter_map(|(at, _, kind)| match kind {
            EventKind::LoggedOff => Some(("off", *at)),
            EventKind::LoggedOn => Some(("on", *at)),
            _ => None,
        })
        .collect();
    assert!(
        (SECOND * 15..SECOND * 16).contains(&times["off"]),
        "{times:?}"
    );
    assert!(
        (SECOND * 30..SECOND * 32).contains(&times["on"]),
        "{times:?}"
    );
}

#[test]
fn the_same_seed_gives_the_same_notes() {
    let mut lossy = model(&[contract(0, 5120), contract(64, 2048)]);
    lossy.request_loss = Ratio::new(0.2).unwrap();
    let notes = || {
        let mut rig = Rig::new(&lossy);
        for second in 0..60u32 {
            let at = SECOND * second;
            rig.run(at);
            rig.offer(at, (second % 2) as usize, u64::from(second) * 10_000);
        }
        rig.run(SECOND * 70);
        (rig.notes, rig.sent)
    };
    assert_eq!(notes(), notes());
}

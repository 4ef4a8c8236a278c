//! Whether a run is to be believed: what emulator, captures and counters say against its figures.

use anyhow::Result;

use super::bounds::Best;
use super::prepared::Prepared;
use crate::capture::CaptureReport;
use crate::contender::Carried;
use crate::experiment::Direction;
use crate::results::{Crossed, Outcome, Record};
use bentpipe_emulator::{EmulatorStats, Verdict};

/// Seconds by which a figure may be below the bound: clocks are read at other instants than packets leave.
const TOLERANCE_S: f64 = 0.002;

/// Evidence of a contender's work, besides its figures.
pub(super) struct Evidence<'a> {
    /// By captures at both ends of the satellite link.
    pub(super) crossed: &'a [CaptureReport],
    /// By captures on both LANs, where the contender reaches from host to host.
    pub(super) on_lans: &'a [CaptureReport],
    /// Content may be read in the tunnel.
    pub(super) readable: bool,
    /// Objects of pages are asked for beyond the link.
    pub(super) ahead: bool,
    /// Report of whoever it hands TCP to, if anybody counts.
    pub(super) carried: Option<Result<Option<Carried>>>,
}

/// Everything that speaks against the figures.
pub(super) fn judge(
    record: &mut Record,
    prepared: &Prepared,
    best: Option<Best>,
    stats: &EmulatorStats,
    evidence: &Evidence<'_>,
) {
    if let Verdict::Invalid(reasons) = &stats.verdict {
        record.doubts.extend(reasons.iter().cloned());
    }
    if let Some(best) = best {
        compare(record, prepared, &best, stats, evidence.ahead);
    }
    let content = match &record.outcome {
        Outcome::Measured { bytes, .. } => *bytes as f64 * prepared.least_carried(),
        _ => 0.0,
    };
    let delivered = match prepared.direction() {
        Direction::Down => stats.forward_link.delivered_bytes,
        Direction::Up => stats.return_link.delivered_bytes,
    };
    if (delivered.as_u64() as f64) < content {
        let text = format!("the link delivered {delivered}: the content went another way");
        record.doubts.push(text);
    }
    let carried = evidence.carried.as_ref();
    let doubt = carried.and_then(|carried| against_carrier(carried, content));
    record.doubts.extend(doubt);
    let seen = sum(evidence.on_lans);
    if seen.missed > 0 || seen.clear_packets > 0 || seen.marker_packets > 0 {
        record.doubts.push(format!(
            "on the LANs, outside of the VPN: {seen}; missed {}",
            seen.missed
        ));
    }
    look_at_link(record, evidence, content);
}

/// Notes the bound on the figures, and those that are below it.
fn compare(
    record: &mut Record,
    prepared: &Prepared,
    best: &Best,
    stats: &EmulatorStats,
    ahead: bool,
) {
    let direction = prepared.direction();
    match &prepared.limits(&best.limit(direction, stats), ahead)[..] {
        [one] => record.limit_s = Some(*one),
        several => record.limits_s = several.to_vec(),
    }
    let least = prepared.limits(&best.lucky(direction, stats), ahead);
    let least = least.iter().cycle().map(|least| least - TOLERANCE_S);
    let mut figures = record.seconds().iter().zip(least);
    if let Some((wrong, least)) = figures.find(|(seconds, least)| *seconds < least) {
        let text = format!("{wrong:.3} s is less than the {least:.3} s that the link needs");
        record.doubts.push(text);
    }
}

/// Doubt about `content` bytes in the word of whoever was handed TCP, if there is one.
fn against_carrier(carried: &Result<Option<Carried>>, content: f64) -> Option<String> {
    match carried {
        Ok(None) => None,
        Ok(Some(Carried {
            by,
            bytes,
            past,
            all,
        })) => match all {
            false if *bytes > 0 => Some(format!(
                "{by} took in {bytes} bytes of a VPN that passes it by"
            )),
            true if (*bytes as f64) < content => Some(format!(
                "{by} carried {bytes} bytes: the content went around it"
            )),
            _ if *past > 0 => Some(format!("{past} packets went past {by}")),
            _ => None,
        },
        Err(error) => Some(format!("there is no knowing what was carried: {error:#}")),
    }
}

/// Looks at what crossed the satellite link besides `content` bytes in the tunnel.
fn look_at_link(record: &mut Record, evidence: &Evidence<'_>, content: f64) {
    // One end alone sees every byte of the tunnel; in clear may be what only one end sees.
    let Some(first) = evidence.crossed.first() else {
        return;
    };
    if (first.tunnel_bytes as f64) < content {
        let text = format!(
            "the tunnel carried {} bytes: the content went another way",
            first.tunnel_bytes
        );
        record.doubts.push(text);
    }
    let all = sum(evidence.crossed);
    if all.missed > 0 {
        let text = format!(
            "the capture missed {} packets: there is no knowing what crossed",
            all.missed
        );
        record.doubts.push(text);
    }
    if all.clear_packets > 0 || (all.marker_packets > 0 && !evidence.readable) {
        record.doubts.push(format!(
            "outside of the tunnel crossed {} packets, with readable content {}",
            all.clear_packets, all.marker_packets
        ));
    }
    record.crossed = Some(Crossed::from(&all));
}

/// Reports of several captures as one.
fn sum(reports: &[CaptureReport]) -> CaptureReport {
    let mut all = CaptureReport::default();
    reports.iter().for_each(|report| all += report.clone());
    all
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bentpipe_link::{Counters, Standard};
    use bentpipe_units::{BitRate, ByteCount, Seed, TimeSpan};

    use super::*;
    use crate::capture::ClearPacket;
    use crate::experiment::{ContentKind, RunKey, Task};
    use crate::results::Status;
    use bentpipe_emulator::Health;
    use bentpipe_emulator::scenario::preset;

    const BYTES: u64 = 1_000_000;

    /// A sound run: a file of 1 MB at 10 Mbit/s and a round trip of 500 ms.
    struct Case {
        seconds: f64,
        stats: EmulatorStats,
        crossed: [CaptureReport; 2],
        readable: bool,
        carried: Option<Carried>,
        on_lans: Vec<CaptureReport>,
        best: Best,
    }

    impl Case {
        fn sound() -> Self {
            let forward_link = Counters {
                delivered: 700,
                delivered_bytes: ByteCount::new(BYTES + 40_000),
                ..Counters::default()
            };
            let seen = CaptureReport {
                tunnel_packets: 700,
                tunnel_bytes: BYTES + 40_000,
                ..CaptureReport::default()
            };
            let rate = BitRate::megabits_per_second(10);
            Self {
                seconds: 1.5,
                stats: EmulatorStats {
                    scenario: "geo".into(),
                    seed: Seed::new(1),
                    duration: TimeSpan::from(Duration::from_secs(3)),
                    verdict: Verdict::Valid,
                    forward_link,
                    return_link: Counters::default(),
                    terminals: Vec::new(),
                    emulator: Health::default(),
                    behind_gateway: None,
                    file_fault: None,
                },
                crossed: [seen.clone(), seen],
                readable: false,
                carried: None,
                on_lans: Vec::new(),
                best: Best::new(Duration::from_millis(500), [rate, rate]),
            }
        }

        fn judged(&self) -> Record {
            let key = RunKey {
                contender: "c".into(),
                scenario: "s".into(),
                task: "t".into(),
                repeat: 1,
            };
            let measured = Outcome::Measured {
                seconds: vec![self.seconds],
                bytes: BYTES,
            };
            let mut record = Record::new(key, Seed::new(1), measured);
            let task = Task::Transfer {
                size: ByteCount::new(BYTES),
                direction: Direction::Down,
                warm_up: ByteCount::ZERO,
                cold: false,
                content: ContentKind::Binary,
            };
            let prepared = Prepared::new(task, Seed::new(1));
            judge(
                &mut record,
                &prepared,
                Some(self.best),
                &self.stats,
                &Evidence {
                    crossed: &self.crossed,
                    on_lans: &self.on_lans,
                    readable: self.readable,
                    ahead: false,
                    carried: Some(Ok(self.carried)),
                },
            );
            record
        }

        fn expect_doubt(change: impl FnOnce(&mut Self), text: &str) {
            let mut case = Self::sound();
            change(&mut case);
            let record = case.judged();
            assert_eq!(record.status(), Status::Invalid);
            assert!(record.remark().contains(text), "{}", record.remark());
        }
    }

    #[test]
    fn a_sound_run_has_its_limit_and_no_doubt() {
        let record = Case::sound().judged();
        assert_eq!(
            (record.status(), record.remark()),
            (Status::Valid, String::new())
        );
        // 0.5 s, and 8 Mbit in packets of which 1446 of 1500 bytes are content.
        let limit = record.limit_s.unwrap();
        assert!((limit - 1.3299).abs() < 0.001, "{limit}");
    }

    #[test]
    fn losses_raise_the_limit() {
        let mut case = Case::sound();
        case.stats.forward_link.dropped_channel = 700;
        case.seconds = 2.2;
        let limit = case.judged().limit_s.unwrap();
        assert!((limit - 2.1598).abs() < 0.001, "{limit}");
    }

    #[test]
    fn a_recorded_rate_bounds_by_its_delay_alone() {
        let mut scenario = preset("geo").unwrap();
        scenario.forward_link = Standard::Mahimahi {
            file: "fast-at-first.trace".into(),
        };
        let judged = |seconds| {
            let mut case = Case::sound();
            case.best = case.best.over(&scenario);
            case.seconds = seconds;
            case.judged()
        };
        // The mean needs 1.33 s.
        assert_eq!(judged(0.7).status(), Status::Valid);
        assert!((judged(0.7).limit_s.unwrap() - 1.33).abs() < 0.001);
        assert!(judged(0.4).remark().contains("less than the 0.498 s"));
    }

    #[test]
    fn whoever_leaks_is_not_believed() {
        let leak = |case: &mut Case| {
            case.crossed[1].clear_packets = 1;
            case.crossed[1].clear.push(ClearPacket {
                at: Duration::ZERO,
                what: "TCP".into(),
                marker: false,
            });
        };
        Case::expect_doubt(leak, "outside of the tunnel crossed 1 packets");
        let readable = |case: &mut Case| case.crossed[0].marker_packets = 3;
        Case::expect_doubt(readable, "readable content 3");
    }

    #[test]
    fn whoever_does_not_encrypt_may_be_read_in_its_own_packets() {
        let mut case = Case::sound();
        case.crossed[0].marker_packets = 3;
        case.readable = true;
        assert_eq!(case.judged().status(), Status::Valid);
        case.crossed[0].clear_packets = 1;
        assert_eq!(case.judged().status(), Status::Invalid);
    }

    #[test]
    fn a_splitter_that_was_bypassed_is_noticed() {
        let mut case = Case::sound();
        let carried = |bytes, past| {
            let by = "the splitter";
            Some(Carried {
                by,
                bytes,
                past,
                all: true,
            })
        };
        case.carried = carried(BYTES, 0);
        assert_eq!(case.judged().status(), Status::Valid);
        Case::expect_doubt(|case| case.carried = carried(1000, 0), "went around it");
        let past = |case: &mut Case| case.carried = carried(BYTES, 7);
        Case::expect_doubt(past, "7 packets went past the splitter");
    }

    #[test]
    fn a_vpn_of_the_hosts_is_to_pass_a_pep_by_and_is_all_that_the_lans_see() {
        let took = |case: &mut Case| {
            case.carried = Some(Carried {
                by: "the PEP",
                bytes: 1,
                past: 0,
                all: false,
            });
        };
        Case::expect_doubt(took, "the PEP took in 1 bytes of a VPN that passes it by");
        let lan = |case: &mut Case| {
            let seen = CaptureReport {
                marker_packets: 2,
                ..CaptureReport::default()
            };
            case.on_lans = vec![CaptureReport::default(), seen];
        };
        Case::expect_doubt(lan, "on the LANs, outside of the VPN");
    }

    #[test]
    fn content_that_went_another_way_is_noticed() {
        let idle = |case: &mut Case| case.crossed[0].tunnel_bytes = 20_000;
        Case::expect_doubt(idle, "the tunnel carried 20000 bytes");
        let around = |case: &mut Case| case.stats.forward_link.delivered_bytes = ByteCount::ZERO;
        Case::expect_doubt(around, "the link delivered 0 B");
    }

    #[test]
    fn a_link_or_capture_that_cannot_be_trusted_shows() {
        let busy = |case: &mut Case| case.stats.verdict = Verdict::Invalid(vec!["busy".into()]);
        Case::expect_doubt(busy, "busy");
        Case::expect_doubt(|case| case.seconds = 1.2, "less than the 1.328 s");
        Case::expect_doubt(|case| case.crossed[1].missed = 2, "missed 2 packets");
    }
}

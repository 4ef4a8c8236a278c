//! Cases are held to what they are there for: each finds the faults of relays that are wrong. Needs no root.

use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::Duration;

use anyhow::anyhow;
use bentpipe_testbed::route::{Place, Route};

use super::cases::{BULK, ENDS, LOSS, MANY, SILENCE, TRAPS};
use super::mixture;
use super::wrong::{self, Fault};

/// Each case, and the faults that it alone must be enough to find.
const FINDS: [(&str, &[Fault]); 13] = [
    (
        "digest_after_half_close",
        &[Fault::NoHalfClose, Fault::HoldsEnds, Fault::Corrupts],
    ),
    (
        "server_closes_first_and_still_receives",
        &[Fault::NoHalfClose, Fault::HoldsEnds],
    ),
    ("server_reset_is_a_reset", &[Fault::EndForReset]),
    (
        "client_reset_is_a_reset",
        &[Fault::EndForReset, Fault::LosesTail],
    ),
    (
        "client_end_is_an_end",
        &[Fault::NoHalfClose, Fault::HoldsEnds],
    ),
    (
        "refused_is_an_error",
        &[Fault::EndForRefusal, Fault::SilenceForRefusal],
    ),
    (
        "unreachable_is_an_error",
        &[Fault::EndForRefusal, Fault::SilenceForRefusal],
    ),
    ("banner_comes_first", &[Fault::WaitsForClient]),
    ("upload_digest", &[Fault::Corrupts]),
    ("thousand_at_once", &[Fault::Small]),
    ("silence_is_survived", &[Fault::Impatient]),
    (
        "every_byte_then_the_reset",
        &[Fault::EndForReset, Fault::LosesTail],
    ),
    (
        "answer_then_reset_while_uploading",
        &[Fault::EndForReset, Fault::LosesTail],
    ),
];

#[test]
fn every_case_finds_the_faults_it_is_there_for() {
    bentpipe_testbed::raise_file_limit();
    let mut wrong = Vec::new();
    thread::scope(|scope| {
        let mut checks = Vec::new();
        for case in [ENDS, TRAPS, MANY, BULK, SILENCE, LOSS].concat() {
            let Some((_, faults)) = FINDS.iter().find(|(name, _)| *name == case.name) else {
                continue;
            };
            for &fault in [Fault::None].iter().chain(*faults) {
                checks.push(scope.spawn(move || (case.name, fault, (case.run)(&loopback(fault)))));
            }
        }
        let expected: usize = FINDS.iter().map(|(_, faults)| faults.len() + 1).sum();
        assert_eq!(checks.len(), expected, "a case without a fault");
        for fault in [Fault::None, Fault::EndForReset, Fault::LosesTail] {
            checks.push(scope.spawn(move || {
                let failures = mixture::hold(&[loopback(fault)], 40, 20);
                let result = failures
                    .into_iter()
                    .next()
                    .map_or(Ok(()), |text| Err(anyhow!(text)));
                ("a mixture", fault, result)
            }));
        }
        for check in checks {
            let (case, fault, result) = check.join().expect("a verdict");
            match (fault, result) {
                (Fault::None, Err(error)) => {
                    wrong.push(format!("{case}: fails without a fault: {error:#}"));
                }
                (Fault::None, Ok(())) | (_, Err(_)) => {}
                (_, Ok(())) => wrong.push(format!("{case}: does not notice {fault:?}")),
            }
        }
    });
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// To servers on loopback, through a relay that is wrong.
fn loopback(fault: Fault) -> Route {
    Route {
        name: "loopback",
        user: Place::here(),
        web: Place::here(),
        server: Ipv4Addr::LOCALHOST.into(),
        // The kernel refuses to connect to it by itself.
        nobody: IpAddr::V4(Ipv4Addr::BROADCAST),
        patience: Duration::from_secs(5),
        silence: Duration::from_secs(3),
        detour: Some(Box::new(move |server| wrong::relay(fault, server))),
    }
}

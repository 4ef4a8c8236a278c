//! Findings at the other end of the tunnel.

use super::*;
use crate::authority::ValidityPhase;

fn with_reached(reached: HandshakeResult) -> impl FnOnce(&mut Facts) {
    move |facts| content(facts).side = SideFacts::Client(client(reached))
}

#[test]
fn the_servers_answer_decides() {
    use Level::Fail;
    must_find(
        with_reached(HandshakeResult::Shaken(TrialOutcome::UnknownClient)),
        Fail,
        "server",
        &["public_key = \"KEY=\"", "SIGHUP"],
    );
    must_find(
        with_reached(HandshakeResult::Shaken(TrialOutcome::WrongServer)),
        Fail,
        "server",
        &["another key", "pubkey"],
    );
    must_find(
        with_reached(HandshakeResult::Silent(Duration::from_secs(8))),
        Fail,
        "server",
        &["within 8 s", "UDP port 4433", "does not run"],
    );
    must_find(
        with_reached(HandshakeResult::TlsAlone(([192, 0, 2, 1], 443).into())),
        Level::Warn,
        "server",
        &["192.0.2.1:443 accepts TCP", "over TLS", "UDP port 4433"],
    );
    must_find(
        with_reached(HandshakeResult::Unsent(
            "what is sent to 192.0.2.1:4433 does not leave this machine: a firewall".into(),
        )),
        Fail,
        "server",
        &["does not leave this machine", "accept UDP to port 4433"],
    );
    must_find(
        with_reached(HandshakeResult::Unreachable("port unreachable".into())),
        Fail,
        "server",
        &["192.0.2.1:4433", "open UDP port 4433"],
    );
    must_find(
        with_reached(HandshakeResult::Shaken(TrialOutcome::ClosedByStranger(
            "go away".into(),
        ))),
        Fail,
        "server",
        &["without having shown", "go away"],
    );
}

#[test]
fn a_client_that_joins_need_not_be_known() {
    let mut facts = healthy();
    content(&mut facts).side = SideFacts::Client(ClientFacts {
        enrols: true,
        ..client(HandshakeResult::Shaken(TrialOutcome::UnknownClient))
    });
    assert!(judge(&facts).iter().all(|one| one.level == Level::Ok));
}

#[test]
fn a_ca_that_answers_for_nobody_is_a_warning() {
    let found = |authority| {
        let mut facts = healthy();
        content(&mut facts).side = SideFacts::Client(ClientFacts {
            authority: Some(authority),
            ..client(HandshakeResult::Shaken(TrialOutcome::UnknownClient))
        });
        let mut findings = judge(&facts);
        findings.retain(|one| one.area == "ca");
        let one = findings.pop().unwrap();
        (one.level, one.to_string())
    };
    let present = |phase, lacking: &[&str]| AuthorityFacts::Present {
        subject: "bentpipe local CA 2026-11-27".into(),
        expires: "2028-11-26".into(),
        phase,
        lacking: lacking.iter().map(ToString::to_string).collect(),
    };
    for (authority, level, word) in [
        (
            present(ValidityPhase::Good, &[]),
            Level::Ok,
            "until 2028-11-26",
        ),
        (present(ValidityPhase::Over, &[]), Level::Warn, "expired"),
        (
            present(ValidityPhase::NotYet, &[]),
            Level::Warn,
            "set the clock",
        ),
        (
            present(ValidityPhase::Good, &["a.example"]),
            Level::Warn,
            "not for a.example",
        ),
        (
            AuthorityFacts::Absent("/s/ca".into()),
            Level::Warn,
            "`bentpipe ca init`",
        ),
        (
            AuthorityFacts::Unfit("no key".into()),
            Level::Warn,
            "no key",
        ),
    ] {
        let (found, text) = found(authority);
        assert!(found == level && text.contains(word), "{text}");
    }
}

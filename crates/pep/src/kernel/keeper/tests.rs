//! When parts are put back, and what is told of it.

use bentpipe_sys::watch::Object;

use super::*;

fn fault(part: &str) -> KernelFault {
    KernelFault {
        part: part.into(),
        state: "is gone",
        object: Object::Rule,
        gravity: NoticeLevel::Error,
        settles: Duration::ZERO,
        of_others: false,
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a place to begin: only differences count"
)]
fn start() -> Instant {
    Instant::now()
}

/// Puts `part` back if it is due; the line of that.
fn meet(keeper: &mut Keeper, now: Instant, part: &str) -> Option<Line> {
    let faults = [fault(part)];
    match keeper.judge(now, &faults).is_empty() {
        true => None,
        false => keeper.mended(now, &faults[0], Some("\"nft\" (pid 7)".into()), &Ok(())),
    }
}

#[test]
fn what_is_taken_once_comes_back_at_once_and_is_told() {
    let (mut keeper, now) = (Keeper::default(), start());
    assert!(keeper.judge(now, &[]).is_empty() && keeper.report(now).is_empty());
    let (level, line) = meet(&mut keeper, now, "table").expect("at once");
    assert_eq!(level, NoticeLevel::Warn);
    assert!(
        line.contains("table is gone") && line.contains("\"nft\""),
        "{line}"
    );
    let later = now + Duration::from_secs(12);
    let report = keeper.report(later);
    assert_eq!((report[0].repairs_total, report[0].last_s), (1, Some(12)));
    assert_eq!(report[0].last_by.as_deref(), Some("\"nft\" (pid 7)"));
    assert_eq!(report[0].fault, None);
    assert_eq!(keeper.poll_timeout(), None);
}

#[test]
fn what_its_owner_takes_away_in_steps_is_left_alone() {
    let (mut keeper, start) = (Keeper::default(), start());
    let half = Duration::from_millis(500);
    let faults = [KernelFault {
        settles: half,
        ..fault("rule of the guard")
    }];
    let at = |millisecond| start + Duration::from_millis(millisecond);
    assert!(keeper.judge(at(0), &faults).is_empty());
    assert_eq!(keeper.poll_timeout(), Some(at(500)));
    // All of it is gone: nothing is missing any more.
    assert!(keeper.judge(at(100), &[]).is_empty());
    assert_eq!(keeper.poll_timeout(), None);
    assert!(keeper.judge(at(600), &faults).is_empty());
    assert!(keeper.judge(at(1000), &faults).is_empty());
    assert_eq!(keeper.judge(at(1100), &faults), [0]);
    keeper.mended(at(1100), &faults[0], None, &Ok(()));
    assert!(keeper.judge(at(1200), &faults).is_empty(), "taken again");
}

#[test]
fn lines_agree_in_number_with_what_they_are_about() {
    let lines = |part: &str, state| {
        let (mut keeper, now) = (Keeper::default(), start());
        let faults = [KernelFault {
            state,
            ..fault(part)
        }];
        let tries = (0..AT_ONCE).map(|_| {
            keeper.judge(now, &faults);
            keeper.mended(now, &faults[0], None, &Ok(()))
        });
        let lines: Vec<_> = tries.flatten().map(|(_, line)| line).collect();
        [lines[0].clone(), lines[lines.len() - 1].clone()]
    };
    let [first, last] = lines("addresses of bentpipe0", "are gone");
    let expected =
        "addresses of bentpipe0 are gone and were put back; another program changed them";
    assert_eq!(first, expected);
    for words in ["they are put back with waits", "leave them alone"] {
        assert!(last.contains(words), "{last}");
    }
    let [first, last] = lines("routing rule of bentpipe0", "is gone");
    assert!(
        first.ends_with("is gone and was put back; another program changed it"),
        "{first}"
    );
    assert!(last.contains(": it is put back with waits"), "{last}");
    let [first, _] = lines("settings of forwarding", "were changed");
    assert!(first.contains("were changed and were put back"), "{first}");
}

#[test]
fn nobody_is_blamed_for_what_somebody_else_did_before() {
    let (mut keeper, now) = (Keeper::default(), start());
    meet(&mut keeper, now, "table");
    let later = now + Duration::from_secs(60);
    let faults = [fault("table")];
    assert_eq!(keeper.judge(later, &faults), [0]);
    let (_, line) = keeper
        .mended(later, &faults[0], None, &Ok(()))
        .expect("a line");
    assert!(line.contains("another program"), "{line}");
    assert_eq!(keeper.report(later)[0].last_by, None);
}

#[test]
fn a_fight_is_told_once_and_does_not_spin() {
    let (mut keeper, start) = (Keeper::default(), start());
    let (mut repairs, mut errors) = (0, 0);
    // For ten minutes somebody takes it away within a millisecond.
    for millisecond in 0..600_000 {
        let now = start + Duration::from_millis(millisecond);
        if let Some((level, _)) = meet(&mut keeper, now, "table") {
            repairs += 1;
            errors += u32::from(level == NoticeLevel::Error);
        }
    }
    assert!((20..160).contains(&repairs), "{repairs} repairs");
    assert!((1..4).contains(&errors), "{errors} lines");
}

#[test]
fn one_part_in_a_fight_does_not_hold_up_another() {
    let (mut keeper, now) = (Keeper::default(), start());
    for _ in 0..AT_ONCE + 3 {
        meet(&mut keeper, now, "table");
    }
    let both = [fault("table"), fault("rules")];
    assert_eq!(keeper.judge(now, &both), [1]);
    assert!(keeper.poll_timeout().expect("it waits") > now);
}

#[test]
fn rare_thefts_are_met_at_once_for_ever() {
    let (mut keeper, mut now) = (Keeper::default(), start());
    for number in 0..1000 {
        assert!(meet(&mut keeper, now, "table").is_some(), "theft {number}");
        now += GRANTED_EVERY;
    }
}

#[test]
fn what_cannot_be_seen_is_no_health() {
    let (mut keeper, now) = (Keeper::default(), start());
    keeper.sees(Some("no netlink".into()));
    let report = keeper.report(now);
    assert_eq!(
        report[0].fault.as_deref(),
        Some("cannot be seen: no netlink")
    );
    keeper.sees(None);
    assert!(keeper.report(now).is_empty());
}

#[test]
fn what_cannot_be_put_back_is_told_once_and_shown() {
    let (mut keeper, now) = (Keeper::default(), start());
    let failed = Err("no nft".to_owned());
    let faults = [fault("table")];
    assert_eq!(keeper.judge(now, &faults), [0]);
    let told = keeper.mended(now, &faults[0], None, &failed);
    assert_eq!(told.expect("a line").0, NoticeLevel::Error);
    assert!(keeper.judge(now, &faults).is_empty());
    let later = keeper.poll_timeout().expect("another attempt");
    assert_eq!(keeper.judge(later, &faults), [0]);
    let told = keeper.mended(later, &faults[0], None, &failed);
    assert_eq!(told.expect("a line").0, NoticeLevel::Debug);
    assert_eq!(keeper.report(later)[0].fault.as_deref(), Some("no nft"));
    // Somebody else has seen to it.
    keeper.judge(later, &[]);
    assert_eq!(
        (keeper.report(later).len(), keeper.poll_timeout()),
        (0, None)
    );
}

#[test]
fn what_is_put_back_at_last_is_told_and_nobody_is_blamed_for_our_failures() {
    let (mut keeper, mut now) = (Keeper::default(), start());
    let faults = [fault("table")];
    for _ in 1..AT_ONCE {
        assert_eq!(keeper.judge(now, &faults), [0]);
        keeper.mended(now, &faults[0], None, &Err("no nft".to_owned()));
        keeper.judge(now, &faults);
        now = keeper.poll_timeout().expect("another attempt");
    }
    assert_eq!(keeper.judge(now, &faults), [0]);
    let told = keeper.mended(now, &faults[0], None, &Ok(()));
    let line = "table is gone and was put back at last, after 10 attempts".to_owned();
    assert_eq!(told, Some((NoticeLevel::Warn, line)));
    assert_eq!(keeper.report(now)[0].fault, None);
    // Attempts that failed count for the wait all the same.
    assert!(keeper.judge(now, &faults).is_empty());
}

//! Sending half alone: repairs, windows, and an end that is silent.

use bytes::Bytes;

use super::*;
use crate::segment::Flags;

const LENGTH: u16 = 1000;

#[expect(
    clippy::disallowed_methods,
    reason = "any instant will do; all else is virtual"
)]
fn origin() -> Instant {
    Instant::now()
}

fn sender(window: u64) -> Sender {
    let end = Reception {
        acknowledged: 1,
        passed: 1,
        edge: 1 + window,
        edge_from: 1,
        shift: 0,
        largest: LENGTH,
    };
    Sender::new(end, 100_000)
}

fn blob() -> Blob {
    Blob {
        flags: Flags::PSH,
        length: LENGTH,
        zone: Bytes::from(vec![7; usize::from(LENGTH)]),
        ..Blob::default()
    }
}

/// Sender with so many blobs, and the places of those that leave at once.
fn sending(now: Instant, window: u64, blobs: u64) -> (Sender, Vec<u64>) {
    let mut sender = sender(window);
    (0..blobs).for_each(|index| assert!(sender.push(1 + index * 1000, blob())));
    let left = leaving(now, &mut sender);
    (sender, left)
}

/// Places of blobs that leave; a probe counts as 0.
fn leaving(now: Instant, sender: &mut Sender) -> Vec<u64> {
    let all = std::iter::from_fn(|| sender.poll(now));
    all.map(|out| match out {
        Outgoing::Blob(place, blob) => {
            assert_eq!(blob.length, LENGTH, "never cut");
            place
        }
        Outgoing::Probe(_) => 0,
    })
    .collect()
}

fn heard(acknowledged: u64, window: u16) -> Heard {
    Heard {
        acknowledged,
        window,
        place: 1,
        pure: true,
    }
}

#[test]
fn three_duplicates_bring_the_first_hole_again() {
    let now = origin();
    let (mut sender, left) = sending(now, 60_000, 20);
    assert_eq!(left.len(), 10, "an initial window");
    assert!(sender.on_heard(now, heard(1001, 60_000)));
    assert_eq!(leaving(now, &mut sender), [10_001, 11_001]);
    let edge = 59_000 + 1000;
    for _ in 0..2 {
        assert!(sender.on_heard(now, heard(1001, edge)));
        assert_eq!(leaving(now, &mut sender), []);
    }
    assert!(sender.on_heard(now, heard(1001, edge)));
    assert_eq!(leaving(now, &mut sender), [1001]);
    // A partial acknowledgement shows the next hole.
    assert!(sender.on_heard(now, heard(3001, 58_000)));
    assert_eq!(leaving(now, &mut sender)[..1], [3001]);
}

#[test]
fn a_timeout_brings_all_again_from_one_on() {
    let mut now = origin();
    let (mut sender, _) = sending(now, 60_000, 3);
    for wait in [1, 2, 4] {
        let due = sender.poll_timeout().expect("in flight");
        assert_eq!(due, now + Duration::from_secs(wait));
        now = due;
        sender.handle_timeout(now);
        assert_eq!(leaving(now, &mut sender), [1]);
    }
    assert!(sender.on_heard(now, heard(1001, 60_000)));
    assert_eq!(leaving(now, &mut sender), [1001, 2001]);
    assert!(sender.on_heard(now, heard(3001, 60_000)));
    assert_eq!(sender.memory(), 0);
}

#[test]
fn a_window_that_holds_half_a_blob_is_as_good_as_none() {
    let mut now = origin();
    let (mut sender, left) = sending(now, 1500, 2);
    assert_eq!(left, [1]);
    assert!(sender.on_heard(now, heard(1001, 500)));
    assert_eq!(leaving(now, &mut sender), []);
    now = sender.poll_timeout().expect("the persist timer");
    sender.handle_timeout(now);
    assert_eq!(leaving(now, &mut sender), [1001], "whole");
    // The end took a part.
    assert!(sender.on_heard(now, heard(1501, 0)));
    now = sender.poll_timeout().expect("in flight");
    sender.handle_timeout(now);
    assert_eq!(leaving(now, &mut sender), [1001], "whole again");
    assert!(sender.on_heard(now, heard(2001, 0)));
    assert_eq!(sender.memory(), 0);
}

#[test]
fn a_closed_window_is_probed_until_the_end_is_silent_for_too_long() {
    let mut now = origin();
    let (mut sender, left) = sending(now, 0, 1);
    assert_eq!(left, []);
    for round in 0..=MOST_TIMEOUTS {
        assert!(!sender.is_given_up(), "{round}");
        now = sender.poll_timeout().expect("the persist timer");
        sender.handle_timeout(now);
        assert_eq!(leaving(now, &mut sender), [0]);
    }
    assert!(sender.is_given_up());
    assert!(sender.on_heard(now, heard(1, 1000)));
    assert!(!sender.is_given_up());
    assert_eq!(leaving(now, &mut sender), [1]);
}

#[test]
fn blobs_that_come_while_the_window_is_small_are_not_forgotten() {
    let mut now = origin();
    let (mut sender, _) = sending(now, 1000, 1);
    assert!(sender.on_heard(now, heard(1001, 0)));
    assert_eq!(leaving(now, &mut sender), []);
    assert!(sender.push(1001, blob()));
    assert_eq!(leaving(now, &mut sender), []);
    let due = sender.poll_timeout().expect("the persist timer");
    assert!(due <= now + Duration::from_secs(2), "not the long silence");
    now = due;
    sender.handle_timeout(now);
    assert_eq!(leaving(now, &mut sender), [0]);
}

#[test]
fn what_was_never_sent_is_neither_acknowledged_nor_skipped() {
    let now = origin();
    let (mut sender, _) = sending(now, 60_000, 2);
    assert!(!sender.on_heard(now, heard(2002, 60_000)));
    assert_eq!(sender.acknowledged(), 1);
    assert!(!sender.push(2002, blob()), "a gap");
    assert!(sender.push(1001, blob()), "known");
    assert_eq!(sender.tail(), 2001);
}

#[test]
fn an_idle_end_is_asked_after_a_silence() {
    let now = origin();
    let (mut sender, _) = sending(now, 60_000, 0);
    let due = sender.poll_timeout().expect("the silence");
    assert_eq!(due, now + SILENCE);
    sender.handle_timeout(due);
    assert_eq!(leaving(due, &mut sender), [0]);
    assert!(!sender.is_given_up());
}

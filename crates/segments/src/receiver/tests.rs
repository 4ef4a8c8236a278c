//! Receiving half alone: order, windows, and what is acknowledged when.

use bytes::Bytes;

use super::*;
use crate::segment::Flags;

fn blob(length: u16) -> Blob {
    Blob {
        flags: Flags::PSH,
        length,
        zone: Bytes::from(vec![7; usize::from(length)]),
        ..Blob::default()
    }
}

fn last(length: u16) -> Blob {
    Blob {
        flags: Flags::FIN,
        ..blob(length)
    }
}

/// Answers that are due.
fn answers(receiver: &mut Receiver) -> Vec<Answer> {
    std::iter::from_fn(|| receiver.poll_answer()).collect()
}

fn starts(receiver: &mut Receiver) -> Vec<u64> {
    std::iter::from_fn(|| receiver.pop())
        .map(|(start, _)| start)
        .collect()
}

#[test]
fn blobs_that_bring_a_byte_are_kept_whole() {
    let mut receiver = Receiver::new(1, 100_000, 0);
    answers(&mut receiver);
    for (start, length) in [(301, 100), (201, 100), (251, 100), (201, 101), (301, 50)] {
        receiver.insert(start, blob(length));
    }
    assert_eq!(answers(&mut receiver), [Answer::Duplicate; 5]);
    assert_eq!(receiver.acknowledged(), 1);
    // 251 to 350 brings nothing; 201 to 301 neither.
    receiver.insert(1, blob(150));
    receiver.insert(101, blob(100));
    assert_eq!(receiver.acknowledged(), 401);
    assert_eq!(answers(&mut receiver), [Answer::Progress]);
    assert_eq!(starts(&mut receiver), [1, 101, 201, 301]);
    receiver.insert(301, blob(100));
    assert_eq!(answers(&mut receiver), [Answer::Duplicate]);
    assert_eq!(receiver.memory(), 0);
}

#[test]
fn a_fin_waits_for_the_other_end() {
    let mut receiver = Receiver::new(1, 100_000, 0);
    receiver.insert(11, last(0));
    receiver.insert(1, blob(10));
    assert_eq!(receiver.acknowledged(), 11, "all but the FIN");
    receiver.insert(11, blob(10));
    assert_eq!(receiver.acknowledged(), 11, "nothing comes after it");
    assert_eq!(starts(&mut receiver), [1, 11]);
    assert!(!receiver.is_done());
    receiver.confirm_fin();
    assert_eq!(receiver.acknowledged(), 12);
    assert!(receiver.is_done());
}

#[test]
fn the_window_is_the_free_room_and_never_taken_back() {
    let mut receiver = Receiver::new(1, 10_000, 2);
    assert_eq!(receiver.window(), 2500);
    let mut edge = receiver.edge();
    for start in [1, 1401, 2801, 4201] {
        receiver.insert(start, blob(1400));
        assert!(receiver.edge() >= edge);
        edge = receiver.edge();
    }
    assert_eq!(receiver.window(), (10_000 - 5600) / 4);
    answers(&mut receiver);
    for start in [5601, 7001] {
        receiver.insert(start, blob(1400));
    }
    answers(&mut receiver);
    receiver.insert(8401, blob(1600));
    assert_eq!(
        (receiver.window(), receiver.acknowledged()),
        (400, 8401),
        "no room"
    );
    answers(&mut receiver);
    receiver.pop();
    assert_eq!(answers(&mut receiver), [], "a small step is not told");
    receiver.pop();
    assert_eq!(
        answers(&mut receiver),
        [Answer::Progress],
        "its sender may wait for this"
    );
    assert!(receiver.window() >= 700, "{}", receiver.window());
    receiver.insert(receiver.edge(), blob(100));
    assert_eq!(receiver.acknowledged(), 8401, "outside of the window");
}

#[test]
fn blobs_behind_a_gap_make_room_for_the_gap() {
    let mut receiver = Receiver::new(1, 10_000, 0);
    // Each brings one new byte, and a thousand old ones.
    for start in 2000..6000 {
        receiver.insert(start, blob(1000));
        assert!(receiver.memory() <= 10_000);
    }
    for start in (1..2000).step_by(100) {
        receiver.insert(start, blob(100));
        assert!(receiver.memory() <= 10_000);
    }
    assert!(receiver.acknowledged() >= 2001);
}

#[test]
fn what_passed_and_is_acknowledged_need_not_come() {
    let mut receiver = Receiver::new(1, 10_000, 0);
    receiver.insert(101, blob(100));
    receiver.confirm(101);
    assert_eq!(receiver.acknowledged(), 201);
    receiver.confirm(50);
    assert_eq!(receiver.acknowledged(), 201);
}

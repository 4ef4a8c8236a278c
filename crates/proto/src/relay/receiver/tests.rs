//! A receiving direction, byte by byte.

use super::*;

fn text(receiver: &Receiver) -> String {
    receiver
        .ready()
        .map(|b| String::from_utf8_lossy(b).into_owned())
        .collect()
}

#[test]
fn puts_chunks_back_in_order_and_takes_partial_reads() {
    let mut r = Receiver::new(100);
    r.insert(7, Bytes::from_static(b"world")).unwrap();
    assert_eq!(text(&r), "");
    r.insert(0, Bytes::from_static(b"HDhello")).unwrap();
    r.set_header(2);
    assert_eq!(text(&r), "helloworld");
    r.consume(7);
    assert_eq!(text(&r), "rld");
    r.finish();
    assert_eq!(r.end(), None);
    r.consume(3);
    assert_eq!(r.end(), Some(End::Fin));
    assert_eq!(r.memory(), 0);
}

#[test]
fn credit_counts_payload_only_and_is_enforced() {
    let mut r = Receiver::new(4);
    r.insert(0, Bytes::from_static(b"HD1234")).unwrap();
    r.set_header(2);
    assert_eq!(
        r.insert(6, Bytes::from_static(b"5")),
        Err(CreditExceeded { sent: 7, limit: 6 })
    );
    r.raise_limit(5);
    r.insert(6, Bytes::from_static(b"5")).unwrap();
}

#[test]
fn an_abort_waits_for_the_bytes_before_it() {
    let mut r = Receiver::new(100);
    r.insert(0, Bytes::from_static(b"Hab")).unwrap();
    r.set_header(1);
    r.abort(4, AbortCode::Reset);
    r.consume(2);
    assert_eq!(r.end(), None);
    r.insert(3, Bytes::from_static(b"cd")).unwrap();
    assert_eq!(text(&r), "cd");
    r.consume(2);
    assert_eq!(r.end(), Some(End::Abort(AbortCode::Reset)));
}

#[test]
fn an_abort_beyond_the_fin_is_not_waited_for() {
    let mut r = Receiver::new(100);
    r.insert(0, Bytes::from_static(b"Hab")).unwrap();
    r.set_header(1);
    r.finish();
    r.abort(5, AbortCode::Reset);
    assert_eq!(r.end(), None);
    r.consume(2);
    assert_eq!(r.end(), Some(End::Fin));
    assert!(r.is_aborted());
}

#[test]
fn a_direction_that_fin_has_ended_is_whole_though_its_side_was_reset_later() {
    let mut r = Receiver::new(100);
    r.insert(0, Bytes::from_static(b"Hab")).unwrap();
    r.set_header(1);
    r.abort(2, AbortCode::Reset);
    r.consume(2);
    assert_eq!(r.end(), Some(End::Abort(AbortCode::Reset)), "no FIN yet");
    r.finish();
    assert_eq!(r.end(), Some(End::Fin));
}

#[test]
fn what_was_mended_before_it_came_counts_once() {
    let mut r = Receiver::new(100);
    r.insert(0, Bytes::from_static(b"Hab")).unwrap();
    r.set_header(1);
    r.consume(1);
    r.insert(4, Bytes::from_static(b"de")).unwrap();
    r.insert(8, Bytes::from_static(b"h")).unwrap();
    r.finish_at(10);
    assert!(!r.is_whole());
    r.insert(1, Bytes::from_static(b"abcdefghi")).unwrap();
    assert_eq!((text(&r), r.is_whole()), ("bcdefghi".to_owned(), true));
    let held = r.memory();
    r.insert(3, Bytes::from_static(b"cdefg")).unwrap();
    assert_eq!(r.memory(), held);
    assert_eq!(r.end(), None);
    r.consume(8);
    assert_eq!((r.end(), r.memory()), (Some(End::Fin), 0));
}

/// Chunks are slices of datagrams, or of what was mended at once, and must not keep these in memory.
#[test]
fn a_small_chunk_lets_go_of_what_it_was_cut_from() {
    let datagram = |length| Bytes::from(vec![7; length]);
    for (whole, part, kept) in [(1450, 1, false), (1450, 700, false), (1450, 1000, true)] {
        let (mut r, whole) = (Receiver::new(10_000), datagram(whole));
        r.insert(5000, whole.slice(10..10 + part)).unwrap();
        assert_eq!(whole.is_unique(), !kept, "{part} bytes");
    }
    // All but the middle is there.
    let (mut r, whole) = (Receiver::new(100_000), datagram(60_000));
    r.insert(10, whole.slice(..20_000)).unwrap();
    r.insert(22_010, whole.slice(..40_000)).unwrap();
    let mended = datagram(60_000);
    r.insert(10, mended.slice(..)).unwrap();
    assert!(mended.is_unique());
    assert_eq!(r.held(), 62_000);
}

/// Against what is counted anew, in a random order of what comes and is taken.
#[test]
fn what_has_come_in_order_is_known_without_a_search() {
    let text: Bytes = (0..9000_u32).map(|n| (n % 251) as u8).collect();
    let mut random = 7_u32;
    let mut below = |bound: usize| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 8) as usize % bound
    };
    let mut r = Receiver::new(10_000);
    r.insert(0, text.slice(..2)).unwrap();
    r.set_header(1);
    r.finish_at(9000);
    let mut taken = 1;
    while taken < 9000 {
        let (at, length) = (below(9000), below(700));
        r.insert(at as u64, text.slice(at..(at + length).min(9000)))
            .unwrap();
        let ready: Vec<u8> = r.ready().flat_map(|chunk| chunk.to_vec()).collect();
        assert_eq!(ready, text[taken..taken + ready.len()]);
        let reached = (taken + ready.len()) as u64;
        assert_eq!(r.awaits(), (reached < 9000).then_some(reached));
        let some = below(ready.len() + 1);
        r.consume(some as u64);
        taken += some;
    }
    assert_eq!((r.end(), r.held()), (Some(End::Fin), 0));
}

#[test]
fn single_bytes_do_not_cost_a_node_each() {
    let mut r = Receiver::new(10_000);
    for i in 0..4000 {
        r.insert(i, Bytes::from_static(b"x")).unwrap();
    }
    assert!(r.memory() < 4000 + 10 * CHUNK_COST, "{}", r.memory());
}

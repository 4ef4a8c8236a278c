//! Hostile connections at the server: none of them leads to a dial.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bentpipe_sealed::sle::{
    Accepted, Acceptor, Admissions, Associations, Conn, HELD, OPENING, Offers, PREFACE, Preface,
    PrefaceError, RecordError, Refusal,
};
use bentpipe_sealed::{Absent, Epoch, Exporter, LINGER, Stale};
use zeroize::Zeroizing;

use crate::origin;

pub(crate) const ID: u32 = 0x0102_0304;

pub(crate) fn epoch(number: u16) -> Epoch {
    Exporter::new(Zeroizing::new([7; 32])).epoch(number, &[number as u8; 32])
}

/// A server's table with one client, in epoch 0.
fn associations() -> Associations {
    Associations::from([(ID, Admissions::new(epoch(0)))])
}

/// First bytes of one more connection of `offers`.
fn first_bytes(offers: &mut Offers) -> Vec<u8> {
    let conn = Conn::client(origin(), offers.open(), b"destination", |_| true);
    conn.outer_output().to_vec()
}

/// Verdict of the server on a connection that brings `bytes` and no more.
fn verdict(
    now: Instant,
    bytes: &[u8],
    associations: &mut Associations,
) -> Result<Accepted, Refusal> {
    let mut acceptor = Acceptor::new(now);
    let mut input = bytes;
    if let Some(accepted) = acceptor.push(now, &mut input, associations)? {
        return Ok(accepted);
    }
    // Time passes until it is given up.
    let deadline = acceptor.deadline().expect("it is not for ever");
    assert!(
        acceptor
            .handle_timeout(deadline - Duration::from_nanos(1))
            .is_ok()
    );
    let refused = acceptor.handle_timeout(deadline);
    assert!(acceptor.deadline().is_none());
    Err(refused.expect_err("its time is over"))
}

#[test]
fn a_connection_is_accepted_however_it_is_cut() {
    let mut offers = Offers::new(ID, epoch(0));
    let mut table = associations();
    let now = origin();
    for size in 1..80 {
        let mut bytes = first_bytes(&mut offers);
        bytes.extend(*b"rest");
        let mut acceptor = Acceptor::new(now);
        let (mut accepted, mut left) = (None, Vec::new());
        for mut piece in bytes.chunks(size) {
            if accepted.is_none() {
                accepted = acceptor.push(now, &mut piece, &mut table).expect("fine");
            }
            left.extend_from_slice(piece);
        }
        let accepted = accepted.expect("accepted");
        assert_eq!((accepted.id, &*accepted.open), (ID, &b"destination"[..]));
        assert_eq!(left, b"rest");
        assert_eq!(acceptor.deadline(), None);
    }
}

#[test]
fn a_repeated_connection_is_refused_before_the_dial() {
    let (now, mut table) = (origin(), associations());
    let mut offers = Offers::new(ID, epoch(0));
    let [first, second] = [first_bytes(&mut offers), first_bytes(&mut offers)];
    // Numbers may come in any order.
    for bytes in [&second, &first] {
        assert!(verdict(now, bytes, &mut table).is_ok());
    }
    for (number, bytes) in [(0, &first), (1, &second), (0, &first)] {
        let refusal = verdict(now, bytes, &mut table).unwrap_err();
        assert_eq!(refusal, Refusal::Stale(Stale::Repeated(number)));
    }
}

#[test]
fn of_copies_that_race_one_is_accepted() {
    let (now, mut table) = (origin(), associations());
    let bytes = first_bytes(&mut Offers::new(ID, epoch(0)));
    let (preface, open) = bytes.split_at(PREFACE);
    let mut copies = [Acceptor::new(now), Acceptor::new(now)];
    for copy in &mut copies {
        assert!(
            copy.push(now, &mut &*preface, &mut table)
                .unwrap()
                .is_none()
        );
    }
    let verdicts = copies.map(|mut copy| copy.push(now, &mut &*open, &mut table));
    assert!(matches!(verdicts[0], Ok(Some(_))));
    assert!(matches!(
        verdicts[1],
        Err(Refusal::Stale(Stale::Repeated(0)))
    ));
}

#[test]
fn a_preface_that_was_made_up_moves_no_window() {
    let (now, mut table) = (origin(), associations());
    let mut offers = Offers::new(ID, epoch(0));
    let mut bytes = first_bytes(&mut offers);
    bytes[8..PREFACE].fill(0xff);
    let refusal = verdict(now, &bytes, &mut table).unwrap_err();
    assert_eq!(refusal, Refusal::Record(RecordError::Tag(0)));
    assert!(verdict(now, &first_bytes(&mut offers), &mut table).is_ok());
}

#[test]
fn every_flipped_bit_is_refused() {
    let now = origin();
    let bytes = first_bytes(&mut Offers::new(ID, epoch(0)));
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            let refusal = verdict(now, &damaged, &mut associations()).unwrap_err();
            let version = bytes[0] ^ 1 << bit;
            let expected = match at {
                0 => {
                    matches!(refusal, Refusal::Preface(PrefaceError::Version(it)) if it == version)
                }
                1 => matches!(refusal, Refusal::Preface(PrefaceError::Flags(_))),
                2..4 => matches!(refusal, Refusal::Epoch(Absent::Unknown(_))),
                4..8 => matches!(refusal, Refusal::Association(_)),
                8..16 => refusal == Refusal::Record(RecordError::Tag(0)),
                16..18 => matches!(
                    refusal,
                    Refusal::Record(RecordError::Length { .. } | RecordError::Tag(0))
                        | Refusal::Late
                ),
                _ => refusal == Refusal::Record(RecordError::Tag(0)),
            };
            assert!(expected, "bit {bit} of byte {at}: {refusal}");
        }
    }
}

#[test]
fn every_cut_is_given_up_in_time() {
    let (now, mut table) = (origin(), associations());
    let bytes = first_bytes(&mut Offers::new(ID, epoch(0)));
    for cut in 0..bytes.len() {
        let refusal = verdict(now, &bytes[..cut], &mut table).unwrap_err();
        assert_eq!(refusal, Refusal::Late, "cut at {cut}");
    }
    assert!(verdict(now, &bytes, &mut table).is_ok(), "none was used up");
    let acceptor = Acceptor::new(now);
    assert_eq!(acceptor.deadline(), Some(now + OPENING));
    assert_eq!(Refusal::Late.to_string(), "no OPEN within 10 s");
}

#[test]
fn bytes_of_two_connections_do_not_mix() {
    let (now, mut table) = (origin(), associations());
    let mut offers = Offers::new(ID, epoch(0));
    let [first, second] = [first_bytes(&mut offers), first_bytes(&mut offers)];
    for (preface, record) in [(&first, &second), (&second, &first)] {
        let spliced = [&preface[..PREFACE], &record[PREFACE..]].concat();
        let refusal = verdict(now, &spliced, &mut table).unwrap_err();
        assert_eq!(refusal, Refusal::Record(RecordError::Tag(0)));
    }
}

#[test]
fn another_kind_than_open_is_refused() {
    let now = origin();
    let keys = Offers::new(ID, epoch(0)).open();
    let mut bytes = bytes::BytesMut::from(&keys.preface().encode()[..]);
    let kind = bentpipe_sealed::sle::Kind::Data;
    keys.client()
        .0
        .seal(kind, b"x", &mut bytes)
        .expect("the first");
    let refusal = verdict(now, &bytes, &mut associations()).unwrap_err();
    assert_eq!(refusal, Refusal::NotOpen(kind));
    assert_eq!(refusal.to_string(), "record 0 is DATA, not OPEN");
}

#[test]
fn who_is_not_known_yet_is_held_until_word_comes() {
    let now = origin();
    let mut table = Associations::new();
    let bytes = first_bytes(&mut Offers::new(ID, epoch(0)));
    let mut acceptor = Acceptor::new(now);
    let mut input = &*bytes;
    assert!(
        acceptor
            .push(now, &mut input, &mut table)
            .unwrap()
            .is_none()
    );
    assert_eq!(input.len(), bytes.len() - PREFACE, "the rest waits");
    assert_eq!(acceptor.deadline(), Some(now + HELD));
    let soon = now + HELD - Duration::from_millis(1);
    assert!(
        acceptor
            .push(soon, &mut input, &mut table)
            .unwrap()
            .is_none()
    );
    assert_eq!(acceptor.deadline(), Some(now + HELD), "not longer for that");
    table.insert(ID, Admissions::new(epoch(0)));
    assert!(
        acceptor
            .push(soon, &mut input, &mut table)
            .unwrap()
            .is_some()
    );

    let refusal = verdict(now, &bytes, &mut Associations::new()).unwrap_err();
    assert_eq!(refusal, Refusal::Association(ID));
    assert_eq!(refusal.to_string(), "association 0x01020304 is unknown");
}

#[test]
fn an_epoch_is_good_from_its_word_until_60_s_after_the_next() {
    let (now, mut table) = (origin(), associations());
    let mut offers = Offers::new(ID, epoch(0));
    let [before, meanwhile, late] = [(); 3].map(|()| first_bytes(&mut offers));
    offers.begin(now, epoch(1)).expect("the next");
    let next = first_bytes(&mut offers);
    assert!(verdict(now, &before, &mut table).is_ok());
    let refusal = verdict(now, &next, &mut table).unwrap_err();
    assert_eq!(refusal, Refusal::Epoch(Absent::Unknown(1)));
    let admissions = table.get_mut(&ID).expect("the client");
    admissions.begin(now, epoch(1)).expect("the next");
    assert_eq!(admissions.deadline(), Some(now + LINGER));
    assert!(verdict(now, &next, &mut table).is_ok());
    let last = now + LINGER - Duration::from_nanos(1);
    assert!(verdict(last, &meanwhile, &mut table).is_ok());
    // At once: an epoch that is over does not come back.
    let mut acceptor = Acceptor::new(now);
    let refusal = acceptor
        .push(now + LINGER, &mut &*late, &mut table)
        .unwrap_err();
    assert_eq!(refusal, Refusal::Epoch(Absent::Ended(0)));
}

#[test]
fn a_client_that_was_removed_opens_nothing() {
    let (now, mut table) = (origin(), associations());
    let bytes = first_bytes(&mut Offers::new(ID, epoch(0)));
    let (preface, open) = bytes.split_at(PREFACE);
    let mut acceptor = Acceptor::new(now);
    assert!(
        acceptor
            .push(now, &mut &*preface, &mut table)
            .unwrap()
            .is_none()
    );
    table.remove(&ID);
    let refusal = acceptor.push(now, &mut &*open, &mut table).unwrap_err();
    assert_eq!(refusal, Refusal::Association(ID));
}

#[test]
fn a_preface_that_asks_is_answered_for_its_place_alone() {
    let (now, here) = (origin(), SocketAddr::from(([192, 0, 2, 1], 443)));
    let mut offers = Offers::new(ID, epoch(0));
    let mut table = associations();
    let keys = offers.ask();
    let (preface, expected) = (keys.preface().encode(), keys.answer(here));
    let elsewhere = [(443, [192, 0, 2, 2]), (80, [192, 0, 2, 1])];
    for (port, address) in elsewhere {
        assert_ne!(keys.answer((address, port).into()), expected);
    }
    assert_ne!(offers.ask().answer(here), expected, "of another connection");
    // A repeated preface is told the same, and nothing else.
    for _ in 0..2 {
        let mut acceptor = Acceptor::new(now).at(here);
        assert!(matches!(
            acceptor.push(now, &mut &preface[..], &mut table),
            Ok(None)
        ));
        assert_eq!(acceptor.take_answer(), Some(expected));
        assert_eq!(acceptor.take_answer(), None);
    }
    // What is said behind the answer begins with OPEN.
    let conn = Conn::client(now, keys, b"destination", |_| true);
    let mut acceptor = Acceptor::new(now).at(here);
    let bytes = [&preface[..], conn.outer_output()].concat();
    let accepted = acceptor.push(now, &mut &bytes[..], &mut table);
    assert_eq!(
        &*accepted.expect("fine").expect("whole").open,
        b"destination"
    );
    // From then on its number is used, and nobody is answered.
    let mut late = Acceptor::new(now).at(here);
    let refused = late.push(now, &mut &preface[..], &mut table);
    assert!(matches!(refused, Err(Refusal::Stale(_))), "{refused:?}");
    assert_eq!(late.take_answer(), None);
}

#[test]
fn nobody_is_answered_who_does_not_ask_or_where_nobody_may() {
    let (now, here) = (origin(), SocketAddr::from(([192, 0, 2, 1], 443)));
    let mut offers = Offers::new(ID, epoch(0));
    let mut table = associations();
    let mut acceptor = Acceptor::new(now).at(here);
    let plain = offers.open().preface().encode();
    assert!(matches!(
        acceptor.push(now, &mut &plain[..], &mut table),
        Ok(None)
    ));
    assert_eq!(acceptor.take_answer(), None);
    let mut acceptor = Acceptor::new(now);
    let asking = offers.ask().preface().encode();
    let refused = acceptor.push(now, &mut &asking[..], &mut table);
    let flags = Refusal::Preface(PrefaceError::Flags(1));
    assert_eq!(refused.expect_err("refused"), flags);
    // A preface whose flag was changed on the way has other keys.
    let conn = Conn::client(now, offers.open(), b"destination", |_| true);
    let mut bytes = conn.outer_output().to_vec();
    bytes[1] = 1;
    let mut acceptor = Acceptor::new(now).at(here);
    let refused = acceptor.push(now, &mut &bytes[..], &mut table);
    assert!(matches!(refused, Err(Refusal::Record(RecordError::Tag(0)))));
}

#[test]
fn every_connection_has_a_number_of_its_own() {
    let now = origin();
    let mut offers = Offers::new(ID, epoch(0));
    let mut preface = || offers.open().preface();
    let number = |epoch, number| Preface {
        epoch,
        id: ID,
        number,
        asks: false,
    };
    assert_eq!([preface(), preface()], [number(0, 0), number(0, 1)]);
    offers.begin(now, epoch(1)).expect("the next");
    assert_eq!(offers.open().preface(), number(1, 0));
    assert!(offers.begin(now, epoch(1)).is_err(), "numbers would repeat");
}

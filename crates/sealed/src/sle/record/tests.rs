//! Records however they are cut, and every way in which they can be damaged.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::*;

const PREFACE_0: Preface = Preface {
    epoch: 1,
    id: 2,
    number: 3,
    asks: false,
};

fn sealer() -> Sealer {
    Sealer::new(&[1; 32], &[2; 12], Some(PREFACE_0))
}

fn opener() -> Opener {
    Opener::new(&[1; 32], &[2; 12], Some(PREFACE_0))
}

/// Records of all kinds and of extreme sizes, each sealed.
fn records() -> Vec<Vec<u8>> {
    let bodies = [
        (Kind::Open, vec![3; 40]),
        (Kind::Data, vec![4; 1]),
        (Kind::Data, (0..MAX_BODY).map(|at| at as u8).collect()),
        (Kind::Reply, vec![5; 3]),
        (Kind::Data, vec![6; 500]),
        (Kind::Fin, vec![]),
        (Kind::Done, vec![]),
        (Kind::Abort, vec![1]),
    ];
    let mut sealer = sealer();
    let mut sealed = |(kind, body): &(Kind, Vec<u8>)| {
        let mut out = BytesMut::new();
        sealer.seal(*kind, body, &mut out).unwrap();
        assert_eq!(out.len(), LENGTH + TYPE + body.len() + TAG);
        out.to_vec()
    };
    bodies.iter().map(&mut sealed).collect()
}

type Opened = Vec<(Kind, Vec<u8>)>;

/// All that `opener` makes of `pieces`.
fn open<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Opened, Option<RecordError>) {
    let (mut opener, mut found) = (opener(), Vec::new());
    for mut piece in pieces {
        loop {
            match opener.next(&mut piece) {
                Ok(Some(record)) => found.push((record.kind, record.body.to_vec())),
                Ok(None) => break,
                Err(fault) => {
                    let again = opener.next(&mut piece);
                    assert_eq!(again, Err(fault), "a fault stays");
                    return (found, Some(fault));
                }
            }
            assert!(opener.begun.len() < MAX_RECORD);
        }
        assert!(piece.is_empty() && opener.begun.capacity() <= 2 * MAX_RECORD);
    }
    (found, None)
}

#[test]
fn whatever_the_cuts_the_records_are_the_same() {
    let whole = records().concat();
    let (all, fault) = open([&*whole]);
    assert_eq!((all.len(), fault), (8, None));
    assert_eq!(all[0], (Kind::Open, vec![3; 40]));
    assert_eq!(all[2].1[..3], [0, 1, 2]);
    for size in 1..=whole.len() {
        assert_eq!(open(whole.chunks(size)), (all.clone(), None), "{size}");
    }
    let mut random = Pcg64Mcg::seed_from_u64(1);
    for _ in 0..500 {
        let (mut pieces, mut rest) = (Vec::new(), &*whole);
        while !rest.is_empty() {
            let reach = 1 << (random.next_u32() % 12);
            let size = (random.next_u32() as usize % reach).min(rest.len());
            let (piece, next) = rest.split_at(size);
            pieces.push(piece);
            rest = next;
        }
        assert_eq!(open(pieces), (all.clone(), None));
    }
}

/// Opens `damaged` and sees that it is a fault, or needs more, before anything differs from what
/// was sealed.
fn assert_never_wrong(damaged: &[u8], may_need_more: bool, what: &str) {
    let (all, _) = open([&*records().concat()]);
    let (found, fault) = open([damaged]);
    assert!(all.starts_with(&found) && found.len() < all.len(), "{what}");
    assert!(fault.is_some() || may_need_more, "{what}");
}

#[test]
fn every_flipped_bit_is_a_fault() {
    let whole = records().concat();
    // A length that grew may still want bytes: the end of the connection makes it a fault there.
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << bit;
            assert_never_wrong(&damaged, true, &format!("bit {bit} of byte {at}"));
            damaged.extend([0; MAX_RECORD]);
            assert_never_wrong(
                &damaged,
                false,
                &format!("bit {bit} of byte {at}, and more"),
            );
        }
    }
}

#[test]
fn every_cut_is_a_fault_or_wants_the_rest() {
    let whole = records().concat();
    for cut in 0..whole.len() {
        assert_never_wrong(&whole[..cut], true, &format!("cut at {cut}"));
        let mut gap = whole.clone();
        gap.remove(cut);
        gap.extend([0; MAX_RECORD]);
        assert_never_wrong(&gap, false, &format!("without byte {cut}"));
        let mut more = whole.clone();
        more.insert(cut, 0x55);
        more.extend([0; MAX_RECORD]);
        assert_never_wrong(&more, false, &format!("a byte before {cut}"));
    }
}

#[test]
fn records_that_are_repeated_left_out_or_moved_are_faults() {
    let all = records();
    for a in 0..all.len() {
        for b in 0..all.len() {
            let mut repeated = all.clone();
            repeated.insert(a, all[b].clone());
            if a != b {
                assert_never_wrong(&repeated.concat(), false, &format!("{b} before {a}"));
                let mut moved = all.clone();
                moved.swap(a, b);
                assert_never_wrong(&moved.concat(), false, &format!("{a} and {b} exchanged"));
            }
        }
        let mut without = all.clone();
        without.remove(a);
        let last = a == all.len() - 1;
        assert_never_wrong(&without.concat(), last, &format!("without {a}"));
        let mut twice = all.clone();
        twice.insert(a, all[a].clone());
        let (found, fault) = open([&*twice.concat()]);
        let expected = Some(RecordError::Tag(a as u64 + 1));
        assert_eq!((found.len(), fault), (a + 1, expected));
    }
}

#[test]
fn records_of_another_connection_or_direction_are_faults() {
    let first = |mut sealer: Sealer| {
        let mut out = BytesMut::new();
        sealer.seal(Kind::Open, b"a", &mut out).unwrap();
        out
    };
    let number = Preface {
        number: 4,
        ..PREFACE_0
    };
    let others = [
        Sealer::new(&[9; 32], &[2; 12], Some(PREFACE_0)),
        Sealer::new(&[1; 32], &[9; 12], Some(PREFACE_0)),
        Sealer::new(&[1; 32], &[2; 12], Some(number)),
        Sealer::new(&[1; 32], &[2; 12], None),
    ];
    for other in others {
        let (found, fault) = open([&*first(other)]);
        assert_eq!((found.len(), fault), (0, Some(RecordError::Tag(0))));
    }
    assert_eq!(open([&*first(sealer())]).1, None);
}

/// Faults that only a peer with the keys can commit.
#[test]
fn what_a_peer_must_not_seal_is_refused_by_name() {
    let sealed = |text: &[u8]| {
        let mut direction = Direction::new(&[1; 32], &[2; 12], Some(PREFACE_0));
        let length = ((text.len() + TAG) as u16).to_be_bytes();
        let bound = direction.bound(length);
        let mut out = text.to_vec();
        let tag = direction.key.seal(direction.next, bound.as_ref(), &mut out);
        direction.next += 1;
        [&length[..], &out, &tag].concat()
    };
    let fault = |text: &[u8]| open([&*sealed(text)]).1.map(|fault| fault.to_string());
    assert_eq!(fault(&[6]).unwrap(), "record 0: unknown kind 6");
    let bodies = [
        (&[2][..], "DATA with a body of 0 bytes"),
        (&[0], "OPEN with a body of 0 bytes"),
        (&[3, 0], "FIN with a body of 1 bytes"),
        (&[4, 0], "DONE with a body of 1 bytes"),
        (&[5], "ABORT with a body of 0 bytes"),
        (&[5, 0, 0], "ABORT with a body of 2 bytes"),
    ];
    for (text, expected) in bodies {
        assert_eq!(fault(text).unwrap(), format!("record 0: {expected}"));
    }
    assert_eq!(fault(&[2, 7]), None);
}

#[test]
fn lengths_have_bounds() {
    let fault = |length: u16| open([&length.to_be_bytes()[..]]).1;
    let (least, most) = (TYPE + TAG, TYPE + MAX_BODY + TAG);
    assert_eq!((least, most, MAX_RECORD), (17, 1417, 1419));
    for length in [0, 16, 1418, u16::MAX] {
        let expected = RecordError::Length {
            number: 0,
            length: length.into(),
        };
        assert_eq!(fault(length), Some(expected));
    }
    assert_eq!((fault(17), fault(1417)), (None, None));
}

#[test]
fn a_direction_has_so_many_records_and_no_more() {
    let (mut sealer, mut opener) = (sealer(), opener());
    (sealer.0.next, opener.direction.next) = (MAX_RECORDS - 4, MAX_RECORDS - 4);
    let mut out = BytesMut::new();
    assert_eq!(sealer.seal(Kind::Data, b"last", &mut out), Ok(()));
    let length = out.len();
    assert_eq!(sealer.seal(Kind::Data, b"none", &mut out), Err(Spent));
    assert_eq!(out.len(), length, "nothing was written");
    for kind in [Kind::Fin, Kind::Done, Kind::Done] {
        assert_eq!(sealer.seal(kind, b"", &mut out), Ok(()));
    }
    assert_eq!(sealer.seal(Kind::Fin, b"", &mut out), Err(Spent));
    let mut input = &out[..];
    for _ in 0..4 {
        assert!(opener.next(&mut input).unwrap().is_some());
    }
    assert_eq!(opener.next(&mut input), Ok(None));
    assert_eq!(opener.next(&mut &[0][..]), Err(RecordError::TooMany));
}

#[test]
fn the_counter_is_in_the_nonce() {
    let mut direction = Direction::new(&[1; 32], &[0xf0; 12], None);
    direction.next = 0x0102_0304_0506_0708;
    let expected = [240, 240, 240, 240, 241, 242, 243, 244, 245, 246, 247, 248];
    assert_eq!(direction.key.nonce(direction.next).as_ref(), &expected);
}

#[test]
fn keys_are_not_printed() {
    let text = format!("{:?} {:?}", sealer(), opener());
    assert_eq!(text, "Sealer(at record 0, …) Opener(at record 0, …)");
    fn wiped<T: zeroize::ZeroizeOnDrop>(_: &T) {}
    wiped(sealer().0.key.iv());
}

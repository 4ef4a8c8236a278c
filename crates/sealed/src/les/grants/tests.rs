//! One PEP and its clients: what it holds, what it can open, and when it can no more.

use zeroize::Zeroizing;

use super::*;
use crate::Exporter;
use crate::les::sa::LAST_WORDS;
use crate::les::{Flows, Roots};

const CLIENT: ClientKey = ClientKey([7; 32]);

const HOUR: Duration = Duration::from_secs(3600);

#[expect(clippy::disallowed_methods, reason = "any instant will do")]
fn origin() -> Instant {
    Instant::now()
}

fn roots(count: u32) -> Roots {
    let exporter = Exporter::new(Zeroizing::new([count as u8; 32]));
    let [to_b, to_a] = [0x1000, 0x1001].map(|base| Spi::new(base + 2 * count).unwrap());
    Roots::derive(&exporter, count, &[7; 32], None, SpiPair { to_b, to_a })
}

fn grant(roots: &Roots, writer: u8) -> Grant {
    Grant {
        spis: roots.spis(),
        ends: [[198, 51, 100, 1].into(), [203, 0, 113, 1].into()],
        selectors: vec!["192.0.2.0/24".parse().unwrap()],
        writer: Writer::new(writer),
        root: roots.header().clone(),
        lifetime: HOUR,
        renewed: false,
    }
}

fn packet(roots: &Roots) -> BytesMut {
    let inner = [
        0x45, 0, 0, 42, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 192, 0, 2, 1, 0xc7, 0x38, 1, 0xbb,
        0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 2, 0, 0, 0, 0, 0, b'h', b'i',
    ];
    let mut out = BytesMut::new();
    roots.end_a().0.seal(&inner, &mut out).unwrap();
    out
}

/// Acknowledgement of this PEP toward A; the writer and the SPI that it has.
fn writes(grants: &mut Grants, now: Instant, pair: &Pair) -> Result<(u32, u8), PepUnwritten> {
    let header = [
        0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 10, 0, 0, 1, 1, 0xbb, 0xc7, 0x38,
        0, 0, 0, 1, 0, 0, 0, 3, 0x50, 0x10, 2, 0, 0, 0, 0, 0,
    ];
    let mut out = BytesMut::new();
    grants.write(now, &pair.scope(), Toward::A, (&header, None), &mut out)?;
    Ok((spi_of(&out).unwrap().get(), out[5]))
}

#[test]
fn a_pep_opens_headers_while_the_grant_holds_and_not_a_moment_longer() {
    let (mut grants, now, one) = (Grants::default(), origin(), roots(1));
    let packet = packet(&one);
    assert!(matches!(
        grants.open(now, &packet),
        Err(PepUnopened::Unknown)
    ));
    let pair = grants.grant(now, CLIENT, &grant(&one, 2)).unwrap();
    let late = now + HOUR - Duration::from_millis(1);
    let opened = grants.open(late, &packet).unwrap();
    assert_eq!((opened.scope, opened.toward), (pair.scope(), Toward::B));
    assert!(!opened.renewed && opened.packet.payload() == 2);
    let zone = opened.packet.zone().unwrap().to_vec();
    assert!(!zone.windows(2).any(|two| two == b"hi"));
    // A copy is one.
    assert!(matches!(
        grants.open(late, &packet),
        Err(PepUnopened::Discarded(Discarded::Packet(_)))
    ));
    assert_eq!(grants.deadline(), Some(now + HOUR));
    assert!(writes(&mut grants, late, &pair).is_ok());
    assert_eq!(
        writes(&mut grants, now + HOUR, &pair),
        Err(PepUnwritten::Unknown)
    );
    assert!(grants.is_empty() && grants.deadline().is_none());
    assert!(grants.of_spi.is_empty() && grants.of_scope.is_empty());
}

#[test]
fn a_pep_writes_by_the_newest_association_that_the_ends_use() {
    let (mut grants, now) = (Grants::default(), origin());
    let (one, two) = (roots(1), roots(2));
    let pair = grants.grant(now, CLIENT, &grant(&one, 2)).unwrap();
    grants.open(now, &packet(&one)).unwrap();
    grants.grant(now, CLIENT, &grant(&two, 2)).unwrap();
    let [first, second] = [&one, &two].map(|roots| roots.spis().to_a.get());
    assert_eq!(writes(&mut grants, now, &pair), Ok((first, 2)));
    grants.open(now, &packet(&two)).unwrap();
    assert_eq!(writes(&mut grants, now, &pair), Ok((second, 2)));
    grants.end(now, CLIENT, two.spis());
    assert_eq!(writes(&mut grants, now, &pair), Ok((first, 2)));
    grants.end(now, ClientKey([8; 32]), one.spis());
    assert_eq!(grants.len(), 1, "it is not that one's");
    grants.forget(now, CLIENT);
    assert!(grants.is_empty());
}

#[test]
fn a_payload_zone_leaves_by_the_association_that_it_is_bound_to() {
    let (mut grants, now) = (Grants::default(), origin());
    let (one, two) = (roots(1), roots(2));
    let pair = grants.grant(now, CLIENT, &grant(&one, 2)).unwrap();
    grants.grant(now, CLIENT, &grant(&two, 2)).unwrap();
    let packet_of_one = packet(&one);
    let opened = grants.open(now, &packet_of_one).unwrap();
    let (spi, header) = (opened.spi, opened.packet.header().to_vec());
    let zone = opened.packet.zone().unwrap();
    grants.open(now, &packet(&two)).unwrap();
    let writes = |grants: &mut Grants, now| {
        let mut out = BytesMut::new();
        let parts = (&header[..], Some((spi, zone)));
        grants.write(now, &pair.scope(), Toward::B, parts, &mut out)?;
        Ok::<_, PepUnwritten>(out)
    };
    let written = writes(&mut grants, now).unwrap();
    assert_eq!(spi_of(&written), Some(one.spis().to_b));
    let mut inner = Vec::new();
    let opened = one
        .end_b()
        .1
        .open(&written, &mut Flows::default(), &mut inner);
    assert!(opened.is_ok() && inner.ends_with(b"hi"), "{opened:?}");
    grants.end(now, CLIENT, one.spis());
    assert!(writes(&mut grants, now).is_ok(), "it is about to go");
    let gone = now + LAST_WORDS;
    let refused = writes(&mut grants, gone);
    assert_eq!(refused, Err(PepUnwritten::Association(spi)));
    grants.forget(gone, CLIENT);
    let refused = writes(&mut grants, gone + LAST_WORDS);
    assert_eq!(refused, Err(PepUnwritten::Unknown));
}

/// Pairs that the grants tell of, once each.
fn ending(grants: &mut Grants, now: Instant) -> Vec<Pair> {
    std::iter::from_fn(|| grants.poll_ending(now)).collect()
}

#[test]
fn a_pair_whose_last_key_goes_is_told_while_its_ends_can_be_written_to() {
    type Way = fn(&mut Grants, Instant);
    let ways: [(Way, Duration); 4] = [
        (|_, _| {}, HOUR - LAST_WORDS),
        (
            |grants, now| grants.end(now, CLIENT, roots(1).spis()),
            HOUR / 2,
        ),
        (|grants, now| grants.forget(now, CLIENT), HOUR / 2),
        // Of too many the oldest goes, here that of another pair.
        (
            |grants, now| {
                for count in 10..10 + ASSOCIATIONS_OF_CLIENT as u32 {
                    let ends = [[198, 51, 100, 9].into(), [203, 0, 113, 1].into()];
                    let other = Grant {
                        ends,
                        ..grant(&roots(count), 2)
                    };
                    grants.grant(now, CLIENT, &other).unwrap();
                }
            },
            HOUR / 2,
        ),
    ];
    for (goes, after) in ways {
        let (mut grants, start, one) = (Grants::default(), origin(), roots(1));
        let pair = grants.grant(start, CLIENT, &grant(&one, 2)).unwrap();
        let scope = pair.scope();
        let now = start + after;
        let before = now - Duration::from_millis(1);
        assert!(ending(&mut grants, before).is_empty() && grants.stays(&scope));
        goes(&mut grants, now);
        assert_eq!(ending(&mut grants, now), [pair]);
        assert!(ending(&mut grants, now).is_empty(), "once");
        assert!(grants.holds(&scope) && !grants.stays(&scope));
        let last = now + LAST_WORDS - Duration::from_millis(1);
        assert!(grants.open(last, &packet(&one)).is_ok());
        assert!(writes(&mut grants, last, &pair).is_ok());
        assert!(writes(&mut grants, now + LAST_WORDS, &pair).is_err());
        assert!(!grants.holds(&scope));
    }
}

#[test]
fn a_pair_that_has_another_key_is_not_told_and_neither_is_one_that_gets_one_in_time() {
    let (mut grants, now) = (Grants::default(), origin());
    let pair = grants.grant(now, CLIENT, &grant(&roots(1), 2)).unwrap();
    grants.grant(now, CLIENT, &grant(&roots(2), 2)).unwrap();
    grants.end(now, CLIENT, roots(1).spis());
    assert!(ending(&mut grants, now).is_empty() && grants.stays(&pair.scope()));
    grants.forget(now, CLIENT);
    grants.grant(now, CLIENT, &grant(&roots(3), 2)).unwrap();
    assert!(ending(&mut grants, now).is_empty());
    grants.handle_timeout(now + LAST_WORDS);
    assert_eq!((grants.len(), grants.held.len()), (1, 1));
    // A process that stood still tells late, and not never.
    grants.handle_timeout(now + HOUR);
    assert_eq!(ending(&mut grants, now + HOUR), [pair]);
}

#[test]
fn a_number_that_was_used_is_refused_and_another_one_goes_on() {
    let (mut grants, now, one) = (Grants::default(), origin(), roots(1));
    let pair = grants.grant(now, CLIENT, &grant(&one, 2)).unwrap();
    let packet = packet(&one);
    grants.open(now, &packet).unwrap();
    grants.grant(now, CLIENT, &grant(&one, 3)).unwrap();
    for used in [2, 3] {
        let again = grants.grant(now, CLIENT, &grant(&one, used));
        assert_eq!(again, Err(GrantFault::WriterAgain(used)));
    }
    assert_eq!(grants.len(), 1);
    assert_eq!(writes(&mut grants, now, &pair).unwrap().1, 3);
    assert!(grants.open(now, &packet).is_err(), "still a copy");
}

#[test]
fn a_stranger_who_names_an_spi_takes_nothing_away() {
    let (mut grants, now, one) = (Grants::default(), origin(), roots(1));
    let stranger = ClientKey([9; 32]);
    let other = Grant {
        root: HeaderRoot::new(Zeroizing::new([3; 32])),
        ..grant(&one, 2)
    };
    grants.grant(now, stranger, &other).unwrap();
    let pair = grants.grant(now, CLIENT, &grant(&one, 2)).unwrap();
    grants.grant(now, stranger, &grant(&roots(2), 2)).unwrap();
    let packet = packet(&one);
    assert_eq!(grants.open(now, &packet).unwrap().scope, pair.scope());
    grants.forget(now, stranger);
    assert_eq!(grants.len(), 1);
    assert!(grants.stays(&pair.scope()));
    assert!(matches!(
        grants.open(now, &packet),
        Err(PepUnopened::Discarded(Discarded::Packet(_)))
    ));
}

#[test]
fn a_client_has_so_many_and_its_oldest_gives_way() {
    let (mut grants, now) = (Grants::default(), origin());
    let first = packet(&roots(0));
    for count in 0..=ASSOCIATIONS_OF_CLIENT as u32 {
        grants.grant(now, CLIENT, &grant(&roots(count), 2)).unwrap();
    }
    assert_eq!(grants.len(), ASSOCIATIONS_OF_CLIENT);
    for count in 20..60 {
        grants.grant(now, CLIENT, &grant(&roots(count), 2)).unwrap();
    }
    assert_eq!(grants.len(), ASSOCIATIONS_OF_CLIENT);
    assert_eq!(grants.held.len(), MOST_OF_CLIENT);
    assert!(matches!(
        grants.open(now, &first),
        Err(PepUnopened::Unknown)
    ));
    let other = ClientKey([9; 32]);
    grants.grant(now, other, &grant(&roots(99), 2)).unwrap();
    assert_eq!(grants.len(), ASSOCIATIONS_OF_CLIENT + 1);
    // A lifetime of 136 years is one of a day.
    let long = Grant {
        lifetime: Duration::from_secs(u64::from(u32::MAX)),
        ..grant(&roots(100), 2)
    };
    grants.grant(now, other, &long).unwrap();
    grants.handle_timeout(now + LONGEST);
    assert!(grants.is_empty());
}

/// An earlier process that had K2 counts, and not this one.
#[test]
fn unknown_flows_are_to_be_reset_if_an_earlier_process_may_have_relayed_them() {
    for first in [false, true] {
        let (mut grants, now) = (Grants::default(), origin());
        for (count, renewed) in [(1, first), (2, true)] {
            let grant = Grant {
                renewed,
                ..grant(&roots(count), 2)
            };
            grants.grant(now, CLIENT, &grant).unwrap();
            let packet = packet(&roots(count));
            assert_eq!(grants.open(now, &packet).unwrap().renewed, first);
            grants.forget(now, CLIENT);
        }
    }
}

#[test]
fn pairs_have_names_of_their_own() {
    let pair = |client: u8, a: &str, b: &str| Pair {
        client: ClientKey([client; 32]),
        ends: [a.parse().unwrap(), b.parse().unwrap()],
    };
    let all = [
        pair(1, "198.51.100.1", "203.0.113.1"),
        pair(2, "198.51.100.1", "203.0.113.1"),
        pair(1, "203.0.113.1", "198.51.100.1"),
        pair(1, "2001:db8::1", "203.0.113.1"),
    ];
    let mut names: Vec<_> = all.iter().map(Pair::scope).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all.len());
}

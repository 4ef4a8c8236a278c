//! One PEP and its clients: what it holds, what it can open, and when it can no more.

use zeroize::Zeroizing;

use super::*;
use crate::Exporter;
use crate::les::Roots;

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
    grants.write(now, pair, Toward::A, (&header, None), &mut out)?;
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
    assert_eq!((opened.pair, opened.toward), (pair, Toward::B));
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
    assert!(grants.of_spi.is_empty() && grants.of_pair.is_empty());
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
    grants.end(CLIENT, two.spis());
    assert_eq!(writes(&mut grants, now, &pair), Ok((first, 2)));
    grants.end(ClientKey([8; 32]), one.spis());
    assert_eq!(grants.len(), 1, "it is not that one's");
    grants.forget(CLIENT);
    assert!(grants.is_empty());
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
    assert_eq!(grants.open(now, &packet).unwrap().pair, pair);
    grants.forget(stranger);
    assert_eq!((grants.len(), grants.pairs(CLIENT).len()), (1, 1));
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
            grants.forget(CLIENT);
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

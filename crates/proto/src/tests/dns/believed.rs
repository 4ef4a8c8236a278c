//! What a resolver's answer must be like to be believed, and what is learned of it.

use super::*;

#[test]
fn only_the_resolvers_own_answer_is_believed() {
    let asked = query(7, "www.example.com", Rtype::A, Some(1232));
    let asked = Query::decode(&asked).expect("a query");
    let outgoing = Outgoing::new(&asked, 0xbeef, 0b1010_0110_1100_0101, true);
    let sent = outgoing.as_bytes();
    assert_ne!(
        sent[12..29],
        *b"\x03www\x07example\x03com",
        "the letters are mixed"
    );
    let good = address(sent, 60, 1);
    let Verdict::Answer(kept) = outgoing.judge(&good, false) else {
        panic!("refused");
    };
    assert_eq!((kept[0], kept[1]), (0, 0));
    assert_eq!(kept[12..28], *b"\x03www\x07example\x03com");
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        outgoing.judge(&bytes, false)
    };
    assert_eq!(
        with(&|bytes| bytes[0] ^= 1),
        Verdict::Drop,
        "another identifier"
    );
    assert_eq!(with(&|bytes| bytes[2] &= 0x7f), Verdict::Drop, "a query");
    assert_eq!(
        with(&|bytes| bytes[14] = b'v'),
        Verdict::Drop,
        "another name"
    );
    assert_eq!(with(&|bytes| bytes[30] = 28), Verdict::Drop, "another type");
    assert_eq!(with(&|bytes| bytes.truncate(40)), Verdict::Drop, "cut off");
    assert_eq!(
        with(&|bytes| bytes[7] = 200),
        Verdict::Drop,
        "more records than there are"
    );
    assert_eq!(with(&|bytes| bytes[2] |= 2), Verdict::Tcp, "truncated");
    let plain = |bytes: &mut Vec<u8>| bytes[12..28].make_ascii_lowercase();
    assert_eq!(
        with(&plain),
        Verdict::Tcp,
        "the letters' case is lost: only TCP can tell"
    );
    let mut lower = good.clone();
    plain(&mut lower);
    assert!(matches!(outgoing.judge(&lower, true), Verdict::Answer(_)));
    let failed = answer(sent, Rcode::SERVFAIL, |_| ());
    assert!(matches!(outgoing.judge(&failed, false), Verdict::Failed(_)));
    let mut old = query(0xbeef, "x.example", Rtype::A, None);
    old.truncate(12);
    (old[2], old[3], old[5]) = (0x80, 1, 0);
    assert_eq!(outgoing.judge(&old, true), Verdict::WithoutEdns);
}

/// A host that follows a compressed name must come to its end.
#[test]
fn names_in_records_lead_somewhere() {
    let asked = query(7, "www.example", Rtype::A, None);
    let asked = Query::decode(&asked).expect("a query");
    let outgoing = Outgoing::new(&asked, 1, 0, false);
    let sent = outgoing.as_bytes();
    for (rtype, before, after) in [
        (Rtype::CNAME, 0, 0),
        (Rtype::NS, 0, 0),
        (Rtype::PTR, 0, 0),
        (Rtype::DNAME, 0, 0),
        (Rtype::MX, 2, 0),
        (Rtype::SRV, 6, 0),
        (Rtype::SOA, 1, 20),
    ] {
        // A record of the question's name, whose data a pointer ends.
        let start = sent.len() + 12 + before;
        let pointing_at = |place: usize| {
            let pointer = 0xc000 | u16::try_from(place).expect("a place");
            let length = u16::try_from(before + 2 + after).expect("a length");
            let mut bytes = sent.to_vec();
            (bytes[2], bytes[7]) = (0x80, 1);
            bytes.extend([0xc0, 12]);
            bytes.extend(rtype.to_int().to_be_bytes());
            bytes.extend([0, 1, 0, 0, 0, 60]);
            bytes.extend(length.to_be_bytes());
            bytes.extend(vec![0; before]);
            bytes.extend(pointer.to_be_bytes());
            bytes.extend(vec![0; after]);
            outgoing.judge(&bytes, true)
        };
        assert!(matches!(pointing_at(12), Verdict::Answer(_)), "{rtype}");
        for nowhere in [start, start + 1, 0x3fff] {
            assert_eq!(pointing_at(nowhere), Verdict::Drop, "{rtype} {nowhere}");
        }
    }
}

#[test]
fn records_of_ipv6_are_learned() {
    let now = start();
    let mut dns = connected(now);
    let asked = query(1, "six.example", Rtype::AAAA, None);
    let (ticket, crossing) = miss(&mut dns, now, 1, &asked).expect("a miss");
    let owner = owner(&crossing);
    let six: Ipv6Addr = "2001:db8::7".parse().expect("an address");
    let bytes = answer(&crossing, Rcode::NOERROR, |answer| {
        let record = (owner, Class::IN, Ttl::from_secs(60), Aaaa::new(six));
        answer.push(record).expect("room");
    });
    dns.handle_answer(now, ticket, Some(&bytes));
    let learned = dns.poll_learned().expect("an address");
    assert_eq!(
        (learned.addresses, learned.ttl),
        (vec![six.into()], secs(60))
    );
}

#[test]
fn addresses_that_hosts_may_take_from_hints_are_learned() {
    let now = start();
    let mut dns = connected(now);
    let asked = query(1, "six.example", Rtype::HTTPS, None);
    let (_, crossing) = miss(&mut dns, now, 1, &asked).expect("a miss");
    let owner = owner(&crossing);
    let mut data = vec![0, 1, 3, b'w', b'w', b'w', 0, 0, 1, 0, 3, 2, b'h', b'3'];
    data.extend([0, 4, 0, 8, 192, 0, 2, 1, 192, 0, 2, 2]);
    data.extend([0, 6, 0, 16]);
    let six: Ipv6Addr = "2001:db8::7".parse().expect("an address");
    data.extend(six.octets());
    let whole = data.len();
    for length in (0..=whole).rev() {
        let data = UnknownRecordData::from_octets(Rtype::HTTPS, data[..length].to_vec());
        let bytes = answer(&crossing, Rcode::NOERROR, |answer| {
            let record = (
                owner.clone(),
                Class::IN,
                Ttl::from_secs(0),
                data.expect("data"),
            );
            answer.push(record).expect("room");
        });
        let mut dns = connected(now);
        let (ticket, _) = miss(&mut dns, now, 1, &asked).expect("a miss");
        dns.handle_answer(now, ticket, Some(&bytes));
        let learned = dns.poll_learned().map(|one| one.addresses);
        if length == whole {
            let four = [1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
            assert_eq!(learned, Some(vec![four[0], four[1], six.into()]));
        }
        assert!(dns.poll_answer().is_some(), "cut to {length}");
    }
}

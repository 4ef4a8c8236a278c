//! Answers that need nobody: families that the server lacks, special names, what is no query; and the room that answers have.

use super::*;

#[test]
fn families_that_the_server_lacks_are_not_answered() {
    let now = start();
    let mut dns = connected(now);
    let families = |ipv4, ipv6| Families { ipv4, ipv6 };
    for (families, none, some) in [
        (families(true, false), Rtype::AAAA, Rtype::A),
        (families(false, true), Rtype::A, Rtype::AAAA),
    ] {
        dns.set_tunnel(now, true, families);
        let bytes = dns
            .handle_query(
                now,
                from(1),
                &query(1, "both.example", none, None),
                Room::Udp,
            )
            .expect("at once");
        assert_eq!(code(&bytes), OptRcode::NOERROR);
        assert_eq!(read(&bytes).header_counts().ancount(), 0);
        assert!(miss(&mut dns, now, 1, &query(1, "both.example", some, None)).is_some());
    }
}

#[test]
fn special_names_are_answered_here() {
    let now = start();
    let mut dns = connected(now);
    let mut ask =
        |text: &str, rtype| dns.handle_query(now, from(1), &query(1, text, rtype, None), Room::Udp);
    let local = ask("foo.LocalHost", Rtype::A).expect("at once");
    assert_eq!(local[local.len() - 4..], [127, 0, 0, 1]);
    let local = ask("localhost", Rtype::AAAA).expect("at once");
    assert_eq!(local[local.len() - 16..], Ipv6Addr::LOCALHOST.octets());
    for text in [
        "a.invalid",
        "Printer.local",
        "1.2.1.10.in-addr.arpa",
        "1.0.168.192.in-addr.arpa",
        "1.0.31.172.in-addr.arpa",
        "9.64.100.in-addr.arpa",
        "1.0.0.d.f.ip6.arpa",
        "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.e.f.ip6.arpa",
    ] {
        let bytes = ask(text, Rtype::PTR).unwrap_or_else(|| panic!("{text} crossed"));
        assert_eq!(code(&bytes), OptRcode::NXDOMAIN, "{text}");
        let message = read(&bytes);
        let mut authority = message.authority().expect("authority");
        let soa = authority.next().expect("an SOA").expect("well-formed");
        assert_eq!(soa.rtype(), Rtype::SOA, "{text}");
        let zone = soa.owner().to_string();
        assert!(
            text.ends_with(&zone) && zone.len() < text.len(),
            "{text} is in {zone}"
        );
    }
    // Who finds a zone `local` asks no neighbours.
    let top = ask("local", Rtype::SOA).expect("at once");
    assert_eq!(code(&top), OptRcode::NXDOMAIN);
    let apex = ask("10.in-addr.arpa", Rtype::SOA).expect("at once");
    assert_eq!(read(&apex).header_counts().ancount(), 1);
    for text in [
        "8.8.8.8.in-addr.arpa",
        "1.32.172.in-addr.arpa",
        "printer.local.example",
        "arpa",
        ".",
    ] {
        assert_eq!(ask(text, Rtype::PTR), None, "{text}");
    }
}

#[test]
fn answers_fit_their_room_and_unknown_types_pass() {
    let now = start();
    let mut dns = connected(now);
    let odd = Rtype::from_int(65_400);
    let asked = query(1, "big.example", odd, Some(4096));
    let (ticket, crossing) = miss(&mut dns, now, 1, &asked).expect("a miss");
    let owner = owner(&crossing);
    let whole = answer(&crossing, Rcode::NOERROR, |answer| {
        for number in 0..10 {
            let data = UnknownRecordData::from_octets(odd, vec![number; 200]).expect("short");
            let record = (owner.clone(), Class::IN, Ttl::from_secs(60), data);
            answer.push(record).expect("room");
        }
    });
    dns.handle_answer(now, ticket, Some(&whole));
    let (_, cut) = dns.poll_answer().expect("an answer");
    assert!(read(&cut).header().tc() && cut.len() <= usize::from(UDP_SIZE));
    assert!(read(&cut).opt().is_some());
    for size in [None, Some(512), Some(4096)] {
        let asked = query(1, "big.example", odd, size);
        let cut = dns
            .handle_query(now, from(1), &asked, Room::Udp)
            .expect("a hit");
        assert!(read(&cut).header().tc(), "{size:?}");
        assert_eq!(read(&cut).opt().is_some(), size.is_some());
        let full = dns
            .handle_query(now, from(1), &asked, Room::Stream)
            .expect("a hit");
        assert!(!read(&full).header().tc());
        assert_eq!(read(&full).header_counts().ancount(), 10);
        let message = read(&full);
        let datas = message.answer().expect("answers").map(|record| {
            let record = record.expect("well-formed");
            assert_eq!(record.rtype(), odd);
            record
                .to_record::<UnknownRecordData<_>>()
                .expect("data")
                .expect("any")
        });
        for (number, record) in (0_u8..).zip(datas) {
            assert_eq!(*record.data().data(), vec![number; 200]);
        }
    }
}

#[test]
fn what_is_no_query_gets_what_it_deserves() {
    let now = start();
    let mut dns = connected(now);
    let mut ask = |bytes: &[u8]| dns.handle_query(now, from(1), bytes, Room::Udp);
    let good = query(7, "www.example", Rtype::A, Some(1232));
    assert_eq!(ask(&good[..11]), None, "too short to answer");
    let mut response = good.clone();
    response[2] |= 0x80;
    assert_eq!(
        ask(&response),
        None,
        "an answer: two forwarders could play for ever"
    );
    let mut update = good.clone();
    update[2] |= 5 << 3;
    assert_eq!(
        ask(&update).map(|bytes| code(&bytes)),
        Some(OptRcode::NOTIMP)
    );
    assert_eq!(
        ask(&good[..20]).map(|bytes| code(&bytes)),
        Some(OptRcode::FORMERR)
    );
    let mut version = good.clone();
    let at = version.len() - 5;
    version[at] = 1;
    assert_eq!(
        ask(&version).map(|bytes| code(&bytes)),
        Some(OptRcode::BADVERS)
    );
    let transfer = query(7, "www.example", Rtype::AXFR, None);
    assert_eq!(
        ask(&transfer).map(|bytes| code(&bytes)),
        Some(OptRcode::REFUSED)
    );
    assert_eq!(dns.poll_transmit(), None, "none of it crosses");
}

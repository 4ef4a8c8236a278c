//! Associations by the clock of the tests.
#![expect(
    clippy::disallowed_methods,
    reason = "one base instant; all else is virtual"
)]

use super::*;

const HOST: [u8; 4] = [127, 0, 0, 1];
const OWN: [&str; 2] = ["100.96.0.2", "fd62:656e:7470::2"];

fn associations() -> Associations {
    let mut all = Associations::new(7, Vec::new());
    all.set_assigned(OWN.map(|own| own.parse().unwrap()).into());
    all
}

/// A datagram of an application's.
fn to(target: &str, content: &[u8]) -> Vec<u8> {
    let head = match target.parse() {
        Ok(address) => datagram_head(address),
        Err(_) => {
            let (name, port) = target.split_once(':').unwrap();
            let port: u16 = port.parse().unwrap();
            let length = [u8::try_from(name.len()).unwrap()];
            let parts = [b"\0\0\0\x03".as_slice(), &length, name.as_bytes()];
            [parts.concat(), port.to_be_bytes().to_vec()].concat()
        }
    };
    [head, content.to_vec()].concat()
}

fn say(
    all: &mut Associations,
    now: Instant,
    id: AssociationId,
    from: u16,
    datagram: &[u8],
) -> Outcome {
    all.on_datagram(now, id, (HOST, from).into(), datagram, |_| true)
}

/// The packet that answers `packet` with `content`.
fn answer(packet: &Bytes, content: &[u8]) -> Bytes {
    let header = Header::parse(packet).unwrap();
    let (from, to) = header.ports.unwrap();
    let head = Head {
        pair: Pair::new(header.destination, header.source).unwrap(),
        protocol: UDP,
        hops: 60,
        traffic_class: 0,
        number: 1,
    };
    let front = udp_head(to, from, content.len()).unwrap();
    build::packet(&head, &[&front, content], CHECKSUM).unwrap()
}

fn packet(outcome: Outcome) -> Bytes {
    match outcome {
        Outcome::Send(packet) => packet,
        other => panic!("{other:?}"),
    }
}

#[test]
fn datagrams_become_packets_of_the_assigned_addresses_and_come_back_with_their_source() {
    let (mut all, now) = (associations(), Instant::now());
    let id = all.open(now, HOST.into(), None).unwrap();
    for (target, own) in ["192.0.2.1:53", "[2001:db8::1]:53"].into_iter().zip(OWN) {
        let sent = packet(say(&mut all, now, id, 5000, &to(target, b"query")));
        let header = Header::parse(&sent).unwrap();
        assert_eq!(header.source.to_string(), own);
        let content = Content::parse(&sent, &header).unwrap().unwrap();
        assert!(PORTS.contains(&content.from));
        assert_eq!(&sent[content.place], b"query");
        let Arrival::Deliver(came) = all.on_packet(now, &answer(&sent, b"answer")) else {
            panic!("{target}");
        };
        assert_eq!((came.id, came.to), (id, (HOST, 5000).into()));
        assert_eq!(came.datagram, to(target, b"answer"));
    }
    assert_eq!((all.stats().sent, all.stats().received), (2, 2));
}

#[test]
fn others_than_the_application_are_not_heard() {
    let (mut all, now) = (associations(), Instant::now());
    let any = all.open(now, HOST.into(), None).unwrap();
    let one = all.open(now, HOST.into(), Some(6000)).unwrap();
    let datagram = to("192.0.2.1:53", b"query");
    let stranger = Outcome::Drop(Cause::Stranger);
    let from_afar = |all: &mut Associations| {
        all.on_datagram(now, any, ([10, 0, 0, 9], 5000).into(), &datagram, |_| true)
    };
    assert_eq!(from_afar(&mut all), stranger);
    // What is no datagram does not settle whose the association is.
    assert_eq!(
        say(&mut all, now, any, 5001, b"noise"),
        Outcome::Drop(Cause::Fragment)
    );
    assert_eq!(
        say(&mut all, now, any, 5001, b"\0\0\0"),
        Outcome::Drop(Cause::Malformed)
    );
    let sent = packet(say(&mut all, now, any, 5000, &datagram));
    assert_eq!(say(&mut all, now, any, 5001, &datagram), stranger);
    assert_eq!(say(&mut all, now, one, 5000, &datagram), stranger);
    packet(say(&mut all, now, one, 6000, &datagram));
    // A mapped address is the same host.
    let mapped = SocketAddr::new("::ffff:127.0.0.1".parse().unwrap(), 5000);
    packet(all.on_datagram(now, any, mapped, &datagram, |_| true));
    all.close(any);
    assert_eq!(say(&mut all, now, any, 5000, &datagram), stranger);
    assert_eq!(
        all.on_packet(now, &answer(&sent, b"late")),
        Arrival::NotOurs
    );
}

#[test]
fn what_is_not_an_associations_is_left_to_others() {
    let (mut all, now) = (associations(), Instant::now());
    let id = all.open(now, HOST.into(), None).unwrap();
    let sent = packet(say(&mut all, now, id, 5000, &to("192.0.2.1:53", b"query")));
    let mut other = answer(&sent, b"answer").to_vec();
    // Another port, whoever it is for.
    other[22..24].copy_from_slice(&5060_u16.to_be_bytes());
    assert_eq!(all.on_packet(now, &other), Arrival::NotOurs);
    let good = answer(&sent, b"answer");
    let mut bad = good.to_vec();
    bad[30] ^= 1;
    assert_eq!(all.on_packet(now, &bad), Arrival::Drop);
    all.set_assigned(vec![[100, 96, 0, 3].into()]);
    assert_eq!(all.on_packet(now, &good), Arrival::NotOurs);
    assert_eq!(all.stats().dropped.malformed, 1);
}

#[test]
fn what_does_not_fit_or_may_not_is_dropped_and_counted() {
    let (mut all, now) = (associations(), Instant::now());
    let id = all.open(now, HOST.into(), None).unwrap();
    for (target, most) in [("192.0.2.1:53", MTU - 28), ("[2001:db8::1]:53", MTU - 48)] {
        packet(say(&mut all, now, id, 5000, &to(target, &vec![0; most])));
        let large = say(&mut all, now, id, 5000, &to(target, &vec![0; most + 1]));
        assert_eq!(large, Outcome::Drop(Cause::Large));
    }
    let from = (HOST, 5000).into();
    let datagram = to("192.0.2.1:53", b"query");
    let denied = all.on_datagram(now, id, from, &datagram, |_| false);
    assert_eq!(denied, Outcome::Drop(Cause::Rule));
    all.set_assigned(vec![OWN[1].parse().unwrap()]);
    assert_eq!(all.families(), [false, true]);
    let four = say(&mut all, now, id, 5000, &datagram);
    assert_eq!(four, Outcome::Drop(Cause::Family));
    let dropped = all.stats().dropped;
    assert_eq!((dropped.large, dropped.rule, dropped.family), (2, 1, 1));
}

#[test]
fn a_name_is_asked_for_once_and_what_waited_leaves_in_order() {
    let (mut all, now) = (associations(), Instant::now());
    let id = all.open(now, HOST.into(), None).unwrap();
    let name: HostName = "example.com".parse().unwrap();
    let asked = say(&mut all, now, id, 5000, &to("example.com:53", b"1"));
    assert_eq!(asked, Outcome::Resolve(name.clone()));
    let again = say(&mut all, now, id, 5000, &to("EXAMPLE.com:54", b"2"));
    assert_eq!(again, Outcome::Wait);
    let packets = all.on_resolved(now, id, &name, Some([192, 0, 2, 1].into()));
    let ports = packets
        .iter()
        .map(|packet| Header::parse(packet).unwrap().ports.unwrap().1);
    assert_eq!(ports.collect::<Vec<_>>(), [53, 54]);
    packet(say(&mut all, now, id, 5000, &to("example.com:53", b"3")));
    let late = now + Duration::from_secs(60);
    let asked = say(&mut all, late, id, 5000, &to("example.com:53", b"4"));
    assert_eq!(asked, Outcome::Resolve(name.clone()));
    assert!(all.on_resolved(late, id, &name, None).is_empty());
    assert_eq!((all.stats().dropped.unresolved, all.waiting), (1, 0));
}

#[test]
fn what_waits_for_names_is_bounded_and_goes_with_its_association() {
    let (mut all, now) = (associations(), Instant::now());
    let mut kept = 0;
    let ids: Vec<_> = (0..100)
        .map(|_| all.open(now, HOST.into(), None).unwrap())
        .collect();
    for id in &ids {
        for number in 0..40 {
            let datagram = to(&format!("host{number}.example:53"), b"query");
            match say(&mut all, now, *id, 5000, &datagram) {
                Outcome::Resolve(_) => kept += 1,
                other => assert_eq!(other, Outcome::Drop(Cause::Overflow)),
            }
        }
    }
    assert_eq!(kept, 1024);
    assert_eq!(all.stats().dropped.overflow, 100 * 40 - 1024);
    ids.into_iter().for_each(|id| all.close(id));
    assert_eq!((all.waiting, all.len()), (0, 0));
}

#[test]
fn names_that_are_known_make_way_for_others() {
    let (mut all, now) = (associations(), Instant::now());
    let id = all.open(now, HOST.into(), None).unwrap();
    for number in 0..200 {
        let name: HostName = format!("host{number}.example").parse().unwrap();
        let datagram = to(&format!("{name}:53"), b"query");
        let asked = say(&mut all, now, id, 5000, &datagram);
        assert_eq!(asked, Outcome::Resolve(name.clone()), "{number}");
        let found = all.on_resolved(now, id, &name, Some([192, 0, 2, 1].into()));
        assert_eq!(found.len(), 1);
    }
}

#[test]
fn ports_are_given_out_in_turn_and_none_that_is_somebody_elses() {
    let taken: Vec<u16> = PORTS.step_by(4).collect();
    let (mut all, now) = (Associations::new(u64::MAX, taken.clone()), Instant::now());
    let ids: Vec<_> = (0..MOST)
        .map(|_| all.open(now, HOST.into(), None).unwrap())
        .collect();
    assert_eq!(all.open(now, HOST.into(), None), None);
    assert_eq!(all.by_port.len(), MOST);
    assert!(taken.iter().all(|port| !all.by_port.contains_key(port)));
    let last = all.by_id[&ids[MOST - 1]].inner;
    all.close(ids[MOST - 1]);
    let next = all.open(now, HOST.into(), None).unwrap();
    assert_ne!(all.by_id[&next].inner, last);
}

#[test]
fn an_association_that_carries_nothing_is_over() {
    let (mut all, now) = (associations(), Instant::now());
    let id = all.open(now, HOST.into(), None).unwrap();
    assert_eq!(all.idle_at(id), Some(now + IDLE));
    let later = now + Duration::from_secs(100);
    let sent = packet(say(
        &mut all,
        later,
        id,
        5000,
        &to("192.0.2.1:53", b"query"),
    ));
    assert_eq!(all.idle_at(id), Some(later + IDLE));
    let last = later + Duration::from_secs(100);
    assert_ne!(
        all.on_packet(last, &answer(&sent, b"answer")),
        Arrival::NotOurs
    );
    assert_eq!(all.idle_at(id), Some(last + IDLE));
    // Noise does not keep it.
    say(
        &mut all,
        last + IDLE,
        id,
        5001,
        &to("192.0.2.1:53", b"query"),
    );
    assert_eq!(all.idle_at(id), Some(last + IDLE));
}

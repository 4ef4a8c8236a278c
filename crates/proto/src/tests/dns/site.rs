//! Names of the site and its neighbours, and the share of one host.

use std::net::SocketAddr;

use super::*;

/// An answer with these addresses, as the tunnel brings it; `reachable`: the server lets its client reach them.
fn with_addresses(question: &[u8], addresses: &[&str], reachable: bool) -> Vec<u8> {
    let owner = owner(question);
    let bytes = answer(question, Rcode::NOERROR, |answer| {
        for text in addresses {
            let (owner, ttl) = (owner.clone(), Ttl::from_secs(600));
            match text.parse().expect("an address") {
                IpAddr::V4(v4) => answer.push((owner, Class::IN, ttl, A::new(v4))),
                IpAddr::V6(v6) => answer.push((owner, Class::IN, ttl, Aaaa::new(v6))),
            }
            .expect("room");
        }
    });
    let query = Query::decode(question).expect("a query");
    Answer::judged(bytes, &query, |_| reachable)
}

/// Asks for a name and hands in an answer with `addresses`; the code of the answer, how many records, and the extended error.
fn hears(dns: &mut Dns, text: &str, addresses: &[&str], reachable: bool) -> (u16, Option<u16>) {
    let now = start();
    let asked = query(5, text, Rtype::A, Some(1232));
    let (ticket, crossing) = miss(dns, now, 1, &asked).expect("it crosses");
    let bytes = with_addresses(&crossing, addresses, reachable);
    dns.handle_answer(now, ticket, Some(&bytes));
    let (_, out) = dns.poll_answer().expect("an answer");
    assert_eq!(code(&out), OptRcode::NOERROR);
    assert_eq!(out[3] & 0x40, 0, "the bit of the tunnel stays in it");
    (read(&out).header_counts().ancount(), extended(&out))
}

#[test]
fn public_names_lead_to_no_neighbour() {
    let mut dns = connected(start());
    dns.set_local(vec!["10.30.7.0/24".parse().expect("a prefix")]);
    let withheld = (0, Some(15));
    for (number, address) in [
        "127.0.0.1",
        "0.0.0.0",
        "169.254.1.1",
        "::1",
        "::ffff:127.0.0.1",
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("host-{number}.example");
        assert_eq!(
            hears(&mut dns, &name, &[address], true),
            withheld,
            "{address}"
        );
    }
    // What the server reaches is its client's business, but not what is here already.
    assert_eq!(
        hears(&mut dns, "a.example", &["10.30.0.5"], false),
        withheld
    );
    assert_eq!(
        hears(&mut dns, "b.example", &["10.30.0.5"], true),
        (1, None)
    );
    assert_eq!(hears(&mut dns, "c.example", &["10.30.7.5"], true), withheld);
    // One bad address spoils the answer: hosts try all of them.
    let mixed = ["192.0.2.1", "192.168.1.1"];
    assert_eq!(hears(&mut dns, "d.example", &mixed, false), withheld);
    assert_eq!(
        hears(&mut dns, "e.example", &["192.0.2.1"], false),
        (1, None)
    );
    assert_eq!(
        hears(&mut dns, "x.corp.example", &["10.0.0.1"], false),
        (1, None)
    );
    assert_eq!(dns.stats().withheld, 8);
    // From the cache as well.
    let again = query(6, "d.example", Rtype::A, Some(1232));
    let now = start();
    let cached = dns
        .handle_query(now, from(2), &again, Room::Udp)
        .expect("a hit");
    assert_eq!(
        (read(&cached).header_counts().ancount(), extended(&cached)),
        (0, Some(15))
    );
}

#[test]
fn names_of_the_site_go_to_its_own_servers_and_never_cross() {
    let now = start();
    let zone = ([127, 0, 0, 1], 53).into();
    let mut dns = Dns::new(Config {
        zones: Zones::new(vec![
            (Suffix::parse("lan").expect("a name"), zone),
            (Suffix::parse("1.10.in-addr.arpa").expect("a name"), zone),
        ]),
        ..config()
    });
    let ask = |dns: &mut Dns, source: Source<u32>, text: &str, rtype| {
        dns.handle_query(now, source, &query(5, text, rtype, Some(1232)), Room::Udp)
    };
    // Without a tunnel: it is not needed.
    for (text, rtype) in [("nas.lan", Rtype::A), ("7.0.1.10.in-addr.arpa", Rtype::PTR)] {
        assert_eq!(ask(&mut dns, from(1), text, rtype), None);
        let (ticket, server, crossing) = dns.poll_near().expect("it is asked for here");
        assert_eq!(server, zone);
        let private = with_addresses(&crossing, &["10.1.0.9"], false);
        dns.handle_answer(now, ticket, Some(&private));
        let (_, out) = dns.poll_answer().expect("an answer");
        assert_eq!(
            read(&out).header_counts().ancount(),
            1,
            "{text}: nothing is withheld"
        );
    }
    let again = ask(&mut dns, from(2), "nas.lan", Rtype::A);
    assert!(again.is_some(), "from the cache");
    // The zone's server is silent, with a tunnel: that is the answer.
    dns.set_tunnel(now, true, BOTH);
    assert_eq!(ask(&mut dns, from(1), "dead.lan", Rtype::A), None);
    dns.poll_near().expect("it is asked for here");
    dns.handle_timeout(now + secs(10));
    let (_, out) = dns.poll_answer().expect("an answer");
    assert_eq!(code(&out), OptRcode::SERVFAIL);
    // What the router is asked of its own names goes to its name server; other names cross.
    for text in ["printer", "nas.home.arpa", "tv.internal"] {
        assert_eq!(ask(&mut dns, of_router(1), text, Rtype::A), None);
        assert_eq!(dns.poll_near().expect("asked here").1, ROUTER, "{text}");
    }
    assert_eq!(dns.poll_transmit(), None, "nothing of this has crossed");
    assert_eq!(ask(&mut dns, of_router(1), "example.com", Rtype::A), None);
    assert!(dns.poll_near().is_none() && dns.poll_transmit().is_some());
}

/// A query of this host for the router's own name server.
fn of_router(host: u32) -> Source<u32> {
    Source {
        router: Some(ROUTER),
        ..from(host)
    }
}

const ROUTER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 1, 0, 1)), 53);

/// A host with a resolver far away asks for a name of the site, and hears of the root that there is none: that is no answer of the
/// router's, nor is the router's an answer to that host.
#[test]
fn what_the_world_says_of_the_sites_names_is_not_what_the_router_says() {
    let now = start();
    let mut dns = connected(now);
    let asked = query(5, "nas.lan", Rtype::A, Some(1232));
    let ask = |dns: &mut Dns, source| dns.handle_query(now, source, &asked, Room::Udp);
    let (ticket, crossing) = miss(&mut dns, now, 1, &asked).expect("it crosses");
    // While it is under way, the router is asked all the same.
    assert_eq!(ask(&mut dns, of_router(2)), None);
    let (near, server, question) = dns.poll_near().expect("it is asked for here");
    assert_eq!(server, ROUTER);
    let unknown = answer(&crossing, Rcode::NXDOMAIN, |_| {});
    dns.handle_answer(now, ticket, Some(&unknown));
    let (to, out) = dns.poll_answer().expect("an answer");
    assert_eq!((to, code(&out)), (1, OptRcode::NXDOMAIN));
    dns.handle_answer(now, near, Some(&address(&question, 600, 9)));
    let (to, out) = dns.poll_answer().expect("an answer");
    assert_eq!((to, code(&out)), (2, OptRcode::NOERROR));
    // Once known, each has its own.
    let known = ask(&mut dns, of_router(3)).expect("a hit");
    assert_eq!(code(&known), OptRcode::NOERROR);
    let another = Source {
        router: Some((Ipv4Addr::new(10, 2, 0, 1), 53).into()),
        ..from(4)
    };
    assert_eq!(
        ask(&mut dns, another),
        None,
        "another router's hosts ask that one"
    );
}

#[test]
fn names_of_the_site_are_not_asked_ahead_far_away() {
    let now = start();
    let mut dns = connected(now);
    let [first, private, second] =
        ["example.com", "nas.lan", "cdn.example"].map(|text| query(5, text, Rtype::A, Some(1232)));
    for (seconds, asked) in [(0, &first), (1, &private), (2, &second)] {
        let (ticket, crossing) = miss(&mut dns, now + secs(seconds), 1, asked).expect("a miss");
        dns.handle_answer(now + secs(seconds), ticket, Some(&address(&crossing, 3, 1)));
        dns.poll_answer().expect("an answer");
    }
    let later = now + secs(60);
    assert_eq!(
        dns.handle_query(later, of_router(1), &first, Room::Udp),
        None
    );
    let ahead: Vec<_> = std::iter::from_fn(|| dns.poll_transmit()).collect();
    let names: Vec<_> = ahead
        .iter()
        .map(|(_, bytes)| owner(bytes).to_string())
        .collect();
    assert_eq!(names, ["example.com", "cdn.example"]);
    assert!(dns.poll_near().is_none());
}

#[test]
fn one_host_does_not_take_the_places_of_the_others() {
    let now = start();
    let mut dns = connected(now);
    let asked = |host: u32, number: u32| {
        query(
            5,
            &format!("n{number}.h{host}.example"),
            Rtype::A,
            Some(1232),
        )
    };
    // A host that asks for names which nobody answers has its share, and more of its own do not help it.
    for number in 0..160 {
        assert!(miss(&mut dns, now, 1, &asked(1, number)).is_some());
    }
    assert!(
        dns.handle_query(now, from(1), &asked(1, 160), Room::Udp)
            .is_some()
    );
    // Thirty others get theirs.
    for host in 2..32 {
        assert!(
            miss(&mut dns, now, host, &asked(host, 0)).is_some(),
            "host {host}"
        );
    }
    assert_eq!(dns.poll_cancelled(), None);
    // A second flood takes what is free, and then what the first has more; that is told, so that it can be called back.
    let taken = (0..160).filter(|number| {
        let question = asked(40, *number);
        let waits = dns
            .handle_query(now, from(40), &question, Room::Udp)
            .is_none();
        waits && dns.poll_transmit().is_some()
    });
    let taken = taken.count();
    assert!((100..=106).contains(&taken), "{taken}");
    assert_eq!(dns.stats().evicted, taken as u64 - 50);
    assert!(dns.poll_cancelled().is_some());
    let (to, out) = dns.poll_answer().expect("who gives way hears of it");
    assert_eq!(
        (to, code(&out), extended(&out)),
        (1, OptRcode::SERVFAIL, Some(0))
    );
    // Repetitions of one question by one host do not keep others out of it.
    let repeated = asked(2, 0);
    let places = (0..64).filter(|_| {
        dns.handle_query(now, from(2), &repeated, Room::Udp)
            .is_none()
    });
    assert_eq!(places.count(), 7);
    assert_eq!(dns.handle_query(now, from(3), &repeated, Room::Udp), None);
}

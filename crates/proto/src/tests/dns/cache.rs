//! What is answered from memory: for how long, instead of nothing, and within which bounds.

use super::*;

#[test]
fn a_miss_crosses_once_and_its_answer_counts_down() {
    let now = start();
    let mut dns = connected(now);
    let first = query(0x1234, "WwW.Example.com", Rtype::A, None);
    let (ticket, crossing) = miss(&mut dns, now, 1, &first).expect("it crosses");
    // Another host, other letters, the same question.
    let second = query(0x4321, "www.example.COM", Rtype::A, None);
    assert_eq!(miss(&mut dns, now, 2, &second), None, "asked for already");
    let came = now + secs(1);
    dns.handle_answer(came, ticket, Some(&address(&crossing, 300, 7)));
    for (host, asked, id) in [(1, &first, 0x1234), (2, &second, 0x4321)] {
        let (to, bytes) = dns.poll_answer().expect("an answer");
        assert_eq!(
            (to, read(&bytes).header().id(), ttl(&bytes)),
            (host, id, 300)
        );
        assert_eq!(
            bytes[12..29],
            asked[12..29],
            "the letters are the host's own"
        );
    }
    let learned = dns.poll_learned().expect("an address");
    assert_eq!(learned.name, "www.example.com");
    assert_eq!(learned.addresses, [Ipv4Addr::new(192, 0, 2, 7)]);
    let hit = dns
        .handle_query(came + secs(100), from(3), &first, Room::Udp)
        .expect("a hit");
    assert_eq!(ttl(&hit), 200);
    let again = dns.poll_learned().expect("an address");
    assert_eq!((again.addresses, again.ttl), (learned.addresses, secs(200)));
    assert!(read(&hit).header().ra() && read(&hit).header().rd());
    assert_eq!(dns.stats().asked, 1);
    // Another type, and DNSSEC, are other questions.
    assert!(
        miss(
            &mut dns,
            came,
            1,
            &query(1, "www.example.com", Rtype::MX, None)
        )
        .is_some()
    );
}

#[test]
fn nothing_is_believed_for_as_long_as_its_soa_says() {
    let now = start();
    let mut dns = connected(now);
    for (text, rcode) in [
        ("no.example", Rcode::NXDOMAIN),
        ("none.example", Rcode::NOERROR),
    ] {
        let asked = query(9, text, Rtype::A, None);
        let (ticket, crossing) = miss(&mut dns, now, 1, &asked).expect("a miss");
        dns.handle_answer(now, ticket, Some(&none(&crossing, rcode, 60)));
        let (_, bytes) = dns.poll_answer().expect("an answer");
        assert_eq!(code(&bytes), OptRcode::from(rcode));
        let hit = dns
            .handle_query(now + secs(59), from(1), &asked, Room::Udp)
            .expect("a hit");
        assert_eq!(code(&hit), OptRcode::from(rcode));
        let later = now + secs(61);
        assert!(
            miss(&mut dns, later, 1, &asked).is_some(),
            "{text} is asked for again"
        );
    }
    // Without SOA nobody knows how long (RFC 2308 §5).
    let asked = query(9, "lame.example", Rtype::A, None);
    let (ticket, crossing) = miss(&mut dns, now, 1, &asked).expect("a miss");
    dns.handle_answer(
        now,
        ticket,
        Some(&answer(&crossing, Rcode::NOERROR, |_| ())),
    );
    dns.poll_answer().expect("an answer");
    assert!(miss(&mut dns, now, 1, &asked).is_some());
}

#[test]
fn what_is_past_its_time_is_better_than_nothing() {
    let now = start();
    let mut dns = connected(now);
    learn(&mut dns, now, "ship.example", 60);
    let asked = query(5, "ship.example", Rtype::A, Some(1232));
    // The resolver may still answer in time…
    let late = now + secs(100);
    dns.handle_timeout(late);
    let (ticket, crossing) = miss(&mut dns, late, 2, &asked).expect("asked for again");
    // …but nobody waits for ever.
    assert_eq!(dns.poll_timeout(), Some(late + Duration::from_millis(1800)));
    dns.handle_timeout(late + Duration::from_millis(1800));
    let (_, bytes) = dns.poll_answer().expect("a stale answer");
    assert_eq!((ttl(&bytes), extended(&bytes)), (30, Some(3)));
    dns.handle_answer(late + secs(2), ticket, Some(&address(&crossing, 60, 2)));
    let hit = dns
        .handle_query(late + secs(3), from(1), &asked, Room::Udp)
        .expect("a hit");
    assert_eq!(ttl(&hit), 59, "what came late is kept");
    // A resolver that fails does not take away what was known, and is left alone for a while.
    let later = late + secs(100);
    let (ticket, crossing) = miss(&mut dns, later, 2, &asked).expect("asked for again");
    dns.handle_answer(
        later,
        ticket,
        Some(&answer(&crossing, Rcode::SERVFAIL, |_| ())),
    );
    let (_, bytes) = dns.poll_answer().expect("a stale answer");
    assert_eq!(ttl(&bytes), 30);
    assert!(
        dns.handle_query(later + secs(29), from(1), &asked, Room::Udp)
            .is_some()
    );
    assert!(miss(&mut dns, later + secs(31), 1, &asked).is_some());
    // Too old is too old.
    let mut dns = connected(now);
    learn(&mut dns, now, "ship.example", 60);
    dns.set_tunnel(now, false, BOTH);
    assert!(
        dns.handle_query(now + secs(3659), from(1), &asked, Room::Udp)
            .is_some()
    );
    assert!(
        dns.handle_query(now + secs(3661), from(1), &asked, Room::Udp)
            .is_none()
    );
}

#[test]
fn without_a_tunnel_the_wait_is_short_and_says_why() {
    let now = start();
    let mut dns = Dns::new(config());
    let asked = query(5, "shore.example", Rtype::A, Some(1232));
    assert_eq!(miss(&mut dns, now, 1, &asked), None);
    let due = dns.poll_timeout().expect("a deadline");
    assert_eq!(due, now + secs(4));
    dns.handle_timeout(due);
    let (_, bytes) = dns.poll_answer().expect("an answer");
    assert_eq!(
        (code(&bytes), extended(&bytes)),
        (OptRcode::SERVFAIL, Some(23))
    );
    // That is no verdict on the name. A tunnel that comes up in time is used…
    assert_eq!(miss(&mut dns, due, 1, &asked), None);
    dns.set_tunnel(due + secs(3), true, BOTH);
    let (ticket, crossing) = dns.poll_transmit().expect("it crosses now");
    // …and so is the next one, if the first is lost.
    dns.set_tunnel(due + secs(4), false, BOTH);
    dns.set_tunnel(due + secs(5), true, BOTH);
    assert_eq!(dns.poll_transmit().map(|(ticket, _)| ticket), Some(ticket));
    dns.handle_answer(due + secs(6), ticket, Some(&address(&crossing, 60, 2)));
    assert!(dns.poll_answer().is_some());
    // A resolver that is silent for nine seconds has failed, for some seconds.
    let silent = query(5, "silent.example", Rtype::A, Some(1232));
    let now = due + secs(60);
    miss(&mut dns, now, 1, &silent).expect("it crosses");
    dns.handle_timeout(now + secs(9));
    let (_, bytes) = dns.poll_answer().expect("an answer");
    assert_eq!(
        (code(&bytes), extended(&bytes)),
        (OptRcode::SERVFAIL, Some(22))
    );
    assert!(
        dns.handle_query(now + secs(10), from(1), &silent, Room::Udp)
            .is_some()
    );
    assert!(miss(&mut dns, now + secs(15), 1, &silent).is_some());
}

/// The clock that the forwarder goes by stands still while the machine sleeps.
#[test]
fn answers_age_while_the_machine_sleeps() {
    let now = start();
    let mut dns = connected(now);
    learn(&mut dns, now, "short.example", 60);
    learn(&mut dns, now, "long.example", 3600);
    let [short, long] =
        ["short.example", "long.example"].map(|text| query(5, text, Rtype::A, None));
    for _ in 0..2 {
        assert!(
            dns.handle_query(now, from(1), &short, Room::Udp).is_some(),
            "in use"
        );
    }
    dns.on_slept(now, secs(600));
    let hit = dns
        .handle_query(now, from(1), &long, Room::Udp)
        .expect("it may be believed still");
    assert_eq!(ttl(&hit), 3000);
    dns.handle_timeout(now);
    assert_eq!(dns.poll_transmit(), None, "nobody has asked yet");
    // The tunnel is in doubt for a round trip, and no reason to be content with less.
    dns.set_tunnel(now, false, BOTH);
    assert_eq!(miss(&mut dns, now, 1, &short), None);
    let back = now + Duration::from_millis(600);
    dns.set_tunnel(back, true, BOTH);
    let (ticket, crossing) = dns.poll_transmit().expect("it is asked for again");
    dns.handle_answer(back, ticket, Some(&address(&crossing, 60, 2)));
    let (_, bytes) = dns.poll_answer().expect("an answer");
    assert_eq!(ttl(&bytes), 60);

    // Without a tunnel in time, what is past its time is better than nothing.
    dns.on_slept(back, secs(600));
    dns.set_tunnel(back, false, BOTH);
    assert_eq!(miss(&mut dns, back, 1, &short), None);
    let patience = Duration::from_millis(1800);
    assert_eq!(dns.poll_timeout(), Some(back + patience));
    dns.handle_timeout(back + patience);
    let (_, bytes) = dns.poll_answer().expect("a stale answer");
    assert_eq!((ttl(&bytes), extended(&bytes)), (30, None));
    let later = dns.handle_query(back + patience, from(2), &short, Room::Udp);
    assert!(later.is_some(), "at once, as at any other time");
    // Too old is too old.
    dns.on_slept(back + patience, secs(3600));
    assert_eq!(miss(&mut dns, back + patience, 3, &short), None);
    dns.handle_timeout(back + 3 * patience);
    assert_eq!(
        dns.poll_answer().map(|(_, bytes)| code(&bytes)),
        Some(OptRcode::SERVFAIL)
    );
}

#[test]
fn names_in_use_are_asked_for_before_they_expire() {
    let now = start();
    let mut dns = connected(now);
    learn(&mut dns, now, "used.example", 100);
    learn(&mut dns, now, "unused.example", 100);
    let used = query(5, "used.example", Rtype::A, None);
    for second in [10, 20, 30] {
        assert!(
            dns.handle_query(now + secs(second), from(1), &used, Room::Udp)
                .is_some()
        );
    }
    let due = dns.poll_timeout().expect("something is due");
    assert_eq!(due, now + secs(90));
    dns.handle_timeout(due);
    let (ticket, crossing) = dns.poll_transmit().expect("it is asked for");
    assert_eq!(owner(&crossing), name("used.example."));
    assert_eq!(dns.poll_transmit(), None, "and nothing else is");
    dns.handle_answer(due, ticket, Some(&address(&crossing, 100, 9)));
    assert_eq!(dns.poll_answer(), None, "nobody had asked");
    let hit = dns
        .handle_query(now + secs(101), from(1), &used, Room::Udp)
        .expect("a hit");
    assert_eq!(ttl(&hit), 89);
    // One hit is not enough to be asked for once more.
    dns.handle_timeout(now + secs(185));
    assert_eq!(dns.poll_transmit(), None);
}

#[test]
fn memory_is_bounded_and_what_is_used_stays() {
    let now = start();
    let mut dns = connected(now);
    let used = query(5, "used.example", Rtype::A, None);
    learn(&mut dns, now, "used.example", 10_000);
    let mut most = 0;
    for number in 0..5000 {
        assert!(
            dns.handle_query(now, from(1), &used, Room::Udp).is_some(),
            "{number}"
        );
        learn(&mut dns, now, &format!("name-{number}.example"), 10_000);
        most = most.max(dns.size().1);
    }
    assert!(most <= 1 << 20, "{most}");
    assert!(dns.size().0 > 1000);
    let first = query(5, "name-0.example", Rtype::A, None);
    assert!(miss(&mut dns, now, 1, &first).is_some());
}

#[test]
fn what_waits_is_bounded() {
    let now = start();
    let mut dns = connected(now);
    let asked = |number: u32| query(5, &format!("name-{number}.example"), Rtype::A, Some(1232));
    for number in 0..240 {
        assert!(miss(&mut dns, now, number, &asked(number)).is_some());
    }
    let turned = dns
        .handle_query(now, from(1), &asked(240), Room::Udp)
        .expect("an answer at once");
    assert_eq!(
        (code(&turned), extended(&turned)),
        (OptRcode::SERVFAIL, Some(0))
    );
    for host in 1..64 {
        assert_eq!(
            dns.handle_query(now, from(host), &asked(0), Room::Udp),
            None
        );
    }
    assert!(
        dns.handle_query(now, from(64), &asked(0), Room::Udp)
            .is_some()
    );
}

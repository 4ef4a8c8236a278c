//! The terminal's DNS in virtual time: what is answered at once, what crosses, what happens when nothing comes back; and what
//! a resolver's answer must be like to be believed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use crate::dns::{
    Answer, Config, Forwarder, Outgoing, Query, Rebinding, Room, Source, Suffix, Ticket, UDP_SIZE,
    Verdict, Zones,
};
use crate::tunnel::Families;
use bentpipe_units::ByteCount;
use domain::base::iana::{Class, OptRcode, Rcode, Rtype};
use domain::base::message_builder::AnswerBuilder;
use domain::base::name::Name;
use domain::base::opt::AllOptData;
use domain::base::rdata::UnknownRecordData;
use domain::base::{Message, MessageBuilder, Serial, Ttl};
use domain::rdata::{A, Aaaa, Soa};

type Dns = Forwarder<u32>;

const BOTH: Families = Families {
    ipv4: true,
    ipv6: true,
};

fn config() -> Config {
    Config {
        memory: ByteCount::new(1 << 20),
        max_ttl: Duration::from_secs(86_400),
        max_stale: Duration::from_secs(3600),
        prefetch: true,
        local_zones: true,
        learns: true,
        zones: Zones::default(),
        rebinding: Rebinding {
            enabled: true,
            exempt: vec![Suffix::parse("corp.example").expect("a name")],
        },
    }
}

/// Host number `host` of the LAN.
fn from(host: u32) -> Source<u32> {
    let [_, _, high, low] = host.to_be_bytes();
    Source {
        to: host,
        host: Ipv4Addr::new(10, 1, high, low).into(),
        router: None,
    }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[expect(clippy::disallowed_methods, reason = "the start of virtual time")]
fn start() -> Instant {
    Instant::now()
}

/// A forwarder with a tunnel.
fn connected(now: Instant) -> Dns {
    let mut dns = Dns::new(config());
    dns.set_tunnel(now, true, BOTH);
    dns
}

fn name(text: &str) -> Name<Vec<u8>> {
    text.parse().expect("a name")
}

/// A query with EDNS of `size`, if any.
fn query(id: u16, text: &str, rtype: Rtype, size: Option<u16>) -> Vec<u8> {
    let mut builder = MessageBuilder::new_vec();
    builder.header_mut().set_id(id);
    builder.header_mut().set_rd(true);
    let mut question = builder.question();
    question.push((name(text), rtype)).expect("room");
    let mut additional = question.additional();
    if let Some(size) = size {
        additional
            .opt(|opt| {
                opt.set_udp_payload_size(size);
                Ok(())
            })
            .expect("room");
    }
    additional.finish()
}

/// What a resolver answers to `question`, as `fill` says.
fn answer(question: &[u8], code: Rcode, fill: impl FnOnce(&mut AnswerBuilder<Vec<u8>>)) -> Vec<u8> {
    let question = Message::from_octets(question).expect("a query");
    let builder = MessageBuilder::new_vec();
    let mut answer = builder.start_answer(&question, code).expect("room");
    answer.header_mut().set_ra(true);
    fill(&mut answer);
    let mut additional = answer.additional();
    additional.opt(|_| Ok(())).expect("room");
    additional.finish()
}

fn address(question: &[u8], ttl: u32, last: u8) -> Vec<u8> {
    let owner = owner(question);
    answer(question, Rcode::NOERROR, |answer| {
        let record = (
            owner,
            Class::IN,
            Ttl::from_secs(ttl),
            A::from_octets(192, 0, 2, last),
        );
        answer.push(record).expect("room");
    })
}

fn owner(question: &[u8]) -> Name<Vec<u8>> {
    let message = Message::from_octets(question).expect("a query");
    let question = message.sole_question().expect("a question");
    question.qname().to_string().parse().expect("a name")
}

/// "There is none", believed for `ttl` seconds.
fn none(question: &[u8], code: Rcode, ttl: u32) -> Vec<u8> {
    let question_message = Message::from_octets(question).expect("a query");
    let builder = MessageBuilder::new_vec();
    let answer = builder.start_answer(&question_message, code).expect("room");
    let mut authority = answer.authority();
    let soa = Soa::new(
        name("ns.example."),
        name("host.example."),
        Serial(1),
        Ttl::from_secs(3600),
        Ttl::from_secs(600),
        Ttl::from_secs(86_400),
        Ttl::from_secs(ttl),
    );
    let record = (name("example."), Class::IN, Ttl::from_secs(7200), soa);
    authority.push(record).expect("room");
    authority.finish()
}

/// Asks; the answer must not be at hand. Returns what crosses.
fn miss(dns: &mut Dns, now: Instant, host: u32, message: &[u8]) -> Option<(Ticket, Vec<u8>)> {
    assert_eq!(dns.handle_query(now, from(host), message, Room::Udp), None);
    dns.poll_transmit()
}

/// Fills the cache with `text` for `ttl` seconds.
fn learn(dns: &mut Dns, now: Instant, text: &str, ttl: u32) {
    let (ticket, crossing) = miss(dns, now, 1, &query(1, text, Rtype::A, None)).expect("a miss");
    dns.handle_answer(now, ticket, Some(&address(&crossing, ttl, 1)));
    dns.poll_answer().expect("an answer");
}

fn read(bytes: &[u8]) -> Message<&[u8]> {
    Message::from_octets(bytes).expect("a message")
}

fn ttl(bytes: &[u8]) -> u32 {
    let message = read(bytes);
    let mut records = message.answer().expect("answers");
    let record = records.next().expect("a record").expect("well-formed");
    record.ttl().as_secs()
}

fn code(bytes: &[u8]) -> OptRcode {
    read(bytes).opt_rcode()
}

fn extended(bytes: &[u8]) -> Option<u16> {
    let message = read(bytes);
    let opt = message.opt()?;
    opt.opt()
        .iter::<AllOptData<_, _>>()
        .find_map(|option| match option {
            Ok(AllOptData::ExtendedError(error)) => Some(error.code().to_int()),
            _ => None,
        })
}

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

/// Loads a page of which each name is known once the one before has been answered, over a link of one second; how long names
/// were waited for.
fn names_of_a_page(dns: &mut Dns, begun: Instant, names: &[&str]) -> Duration {
    let mut now = begun;
    for text in names {
        let asked = query(1, text, Rtype::A, None);
        let mut known = dns.handle_query(now, from(1), &asked, Room::Udp).is_some();
        let mut crossing = Vec::new();
        while !known {
            crossing.extend(std::iter::from_fn(|| dns.poll_transmit()));
            now += secs(1);
            for (ticket, question) in crossing.drain(..) {
                dns.handle_answer(now, ticket, Some(&address(&question, 60, 1)));
            }
            known = dns.poll_answer().is_some();
        }
    }
    now - begun
}

#[test]
fn names_that_followed_another_are_asked_for_along_with_it() {
    let page = ["www.example", "cdn.example", "fonts.example", "ads.example"];
    for (prefetch, second) in [(true, secs(1)), (false, secs(4))] {
        let now = start();
        let mut dns = Dns::new(Config {
            prefetch,
            ..config()
        });
        dns.set_tunnel(now, true, BOTH);
        assert_eq!(names_of_a_page(&mut dns, now, &page), secs(4));
        let again = names_of_a_page(&mut dns, now + secs(600), &page);
        assert_eq!(again, second, "prefetch = {prefetch}");
        let stats = dns.stats();
        assert_eq!(
            (stats.asked, stats.prefetched),
            (8, if prefetch { 3 } else { 0 })
        );
        // Answers that hold are not asked for again.
        names_of_a_page(&mut dns, now + secs(630), &page);
        assert_eq!(dns.stats().asked, 8);
    }
}

#[test]
fn names_that_follow_are_asked_for_within_bounds() {
    let now = start();
    let mut dns = connected(now);
    let names: Vec<_> = (0..100).map(|n| format!("{n}.example")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    names_of_a_page(&mut dns, now, &names);
    let asked = query(1, names[0], Rtype::A, None);
    let later = now + secs(600);
    assert!(miss(&mut dns, later, 1, &asked).is_some());
    let ahead = std::iter::from_fn(|| dns.poll_transmit()).count();
    // Those of the first 20 s: a burst is no longer.
    assert_eq!(ahead, 19);
    // Without a tunnel nobody asks.
    dns.set_tunnel(later, false, BOTH);
    dns.handle_query(later + secs(60), from(2), &asked, Room::Udp);
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
    let (zone, router) = (([127, 0, 0, 1], 53).into(), ([10, 1, 0, 1], 53).into());
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
    let of_router = Source {
        router: Some(router),
        ..from(1)
    };
    for text in ["printer", "nas.home.arpa", "tv.internal"] {
        assert_eq!(ask(&mut dns, of_router.clone(), text, Rtype::A), None);
        assert_eq!(dns.poll_near().expect("asked here").1, router, "{text}");
    }
    assert_eq!(dns.poll_transmit(), None, "nothing of this has crossed");
    assert_eq!(ask(&mut dns, of_router, "example.com", Rtype::A), None);
    assert!(dns.poll_near().is_none() && dns.poll_transmit().is_some());
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

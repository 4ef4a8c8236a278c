//! The terminal's DNS in virtual time: what is answered at once, what crosses, what happens when nothing comes back; and what
//! a resolver's answer must be like to be believed.

mod at_once;
mod believed;
mod cache;
mod companions;
mod site;

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

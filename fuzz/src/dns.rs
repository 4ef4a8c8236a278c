//! DNS: queries of LAN hosts and of clients, answers of resolvers and of servers.

use std::time::{Duration, Instant};

use bentpipe_proto::dns::{
    Answer, Config, Forwarder, MAX_MESSAGE, MAX_QUERY, Outgoing, Query, Rebinding, Refusal, Room,
    Source, UDP_SIZE, Verdict, Zones,
};
use bentpipe_proto::tunnel::Families;
use bentpipe_units::ByteCount;

const ROOMS: [Room; 2] = [Room::Udp, Room::Stream];

/// `www.example` A, with EDNS.
const QUERY: &[u8] = b"\0\x07\x01\0\0\x01\0\0\0\0\0\x01\x03www\x07example\0\0\x01\0\x01\
                       \0\0\x29\x04\xd0\0\0\x80\0\0\0";

fn forwarder(now: Instant) -> Forwarder<()> {
    let mut forwarder = Forwarder::new(Config {
        memory: ByteCount::new(1 << 20),
        max_ttl: Duration::from_secs(3600),
        max_stale: Duration::from_secs(3600),
        prefetch: true,
        local_zones: true,
        learns: true,
        zones: Zones::default(),
        rebinding: Rebinding {
            enabled: true,
            exempt: Vec::new(),
        },
    });
    let families = Families {
        ipv4: true,
        ipv6: true,
    };
    forwarder.set_tunnel(now, true, families);
    forwarder
}

fn source() -> Source<()> {
    Source {
        to: (),
        host: [10, 1, 0, 2].into(),
        router: Some(([10, 1, 0, 1], 53).into()),
    }
}

/// What a host or a client sends: what crosses of it is a query of the same meaning, and every answer fits.
pub fn query(data: &[u8]) {
    let now = crate::origin();
    let fits = |answer: &[u8]| assert!(answer.len() <= usize::from(UDP_SIZE), "{}", answer.len());
    match Query::decode(data) {
        Ok(query) => {
            let crossing = query.encode();
            assert!(crossing.len() <= MAX_QUERY);
            let again = Query::decode(&crossing).expect("what crosses is a query");
            assert_eq!(again.key(), query.key());
            fits(&query.unanswered());
        }
        Err(Refusal::Answer(answer)) => fits(&answer),
        Err(Refusal::Silence) => {}
    }
    let mut forwarder = forwarder(now);
    if let Some(answer) = forwarder.handle_query(now, source(), data, Room::Udp) {
        fits(&answer);
    }
}

pub fn query_seeds() -> Vec<Vec<u8>> {
    let with = |name: &[u8], rtype: u8| {
        let mut bytes = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0".to_vec();
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(&[0, rtype, 0, 1]);
        bytes
    };
    vec![
        QUERY.to_vec(),
        with(b"\x09localhost\0", 28),
        with(b"\x01a\x07invalid\0", 1),
        with(b"\x011\x0216\x03172\x07in-addr\x04arpa\0", 12),
        with(b"\x01d\x01f\x03ip6\x04arpa\0", 6),
        with(b"\0", 2),
    ]
}

/// What a resolver or a server sends: what is believed is given out within its room, at every age.
pub fn answer(data: &[u8]) {
    let asked = Query::decode(QUERY).expect("a query");
    if let Ok(answer) = Answer::decode(data, &asked) {
        for room in ROOMS {
            let most = if room == Room::Udp {
                usize::from(UDP_SIZE)
            } else {
                MAX_MESSAGE
            };
            for age in [0, 1, u64::from(u32::MAX) + 1] {
                let out = answer.encode(&asked, room, Duration::from_secs(age));
                assert!(out.len() <= most);
                assert_eq!(out[12..29], QUERY[12..29]);
            }
            assert!(answer.encode_stale(&asked, room).len() <= most);
        }
    }
    let outgoing = Outgoing::new(&asked, 7, 0, true);
    for tcp in [false, true] {
        if let Verdict::Answer(out) | Verdict::Failed(out) = outgoing.judge(data, tcp) {
            assert_eq!((out.len(), &out[12..29]), (data.len(), &QUERY[12..29]));
        }
    }
    let now = crate::origin();
    let mut forwarder = forwarder(now);
    forwarder.handle_query(now, source(), QUERY, Room::Udp);
    if let Some((ticket, _)) = forwarder.poll_transmit() {
        forwarder.handle_answer(now, ticket, Some(data));
        let (_, out) = forwarder.poll_answer().expect("whoever asks is answered");
        assert!(out.len() <= usize::from(UDP_SIZE));
    }
}

pub fn answer_seeds() -> Vec<Vec<u8>> {
    let head = |code: u8, counts: [u8; 6]| {
        let mut bytes = vec![0, 7, 0x81, 0x80 | code, 0, 1];
        bytes.extend_from_slice(&counts);
        bytes.extend_from_slice(&QUERY[12..29]);
        bytes
    };
    let record = b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01";
    let opt = b"\0\0\x29\x04\xd0\0\0\x80\0\0\x08\0\x0f\0\x04\0\x03ok";
    let soa = b"\xc0\x10\0\x06\0\x01\0\0\0\x3c\0\x18\xc0\x10\xc0\x10\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x3c";
    vec![
        [head(0, [0, 1, 0, 0, 0, 1]), record.to_vec(), opt.to_vec()].concat(),
        [head(3, [0, 0, 0, 1, 0, 0]), soa.to_vec()].concat(),
        head(2, [0; 6]),
    ]
}

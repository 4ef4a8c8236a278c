//! The test vectors of PROTOCOL.md, appendix A: the code writes and reads exactly these bytes, and the page shows them.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::dns::Query;
use crate::fec::{Fec, Incoming, Mended, Outgoing, Repair};
use crate::packets::{Joiner, Packer};
use crate::tunnel::{
    AbortCode, Acks, Again, Awaited, Control, ControlReader, EnrolCode, EpochRandom, Families,
    FlowId, Forward, Hello, Inbound, LesBody, LesKind, Open, PacketKinds, Place, Publish,
    PublishCode, Reply, ReplyCode, Segments, SleHello, StreamKind, TrainPacket, capability,
};
use bentpipe_units::BitRate;
use bytes::Bytes;
use zeroize::Zeroizing;

use super::released;

const PROTOCOL: &str = include_str!("../../../../PROTOCOL.md");

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap())
        .collect()
}

/// The vector called `name` in the appendix: the lines of its code block, joined.
fn vector(name: &str) -> Vec<u8> {
    let appendix = PROTOCOL
        .split_once("## Appendix A")
        .expect("an appendix A")
        .1;
    released::find(appendix, name).unwrap_or_else(|| panic!("no vector {name}"))
}

fn check<T: Debug + PartialEq>(
    name: &str,
    value: &T,
    encoded: &[u8],
    decode: impl Fn(&[u8]) -> Option<T>,
) {
    let expected = vector(name);
    released::check(name, encoded);
    assert_eq!(
        hex(encoded),
        hex(&expected),
        "{name}: what the code writes (left) is not in PROTOCOL.md"
    );
    assert_eq!(decode(&expected).as_ref(), Some(value), "{name}");
}

fn check_control(name: &str, frame: &Control) {
    check(name, frame, &frame.encode(), |bytes| {
        let mut reader = ControlReader::new();
        reader.push(bytes);
        let frame = reader.next_frame().unwrap();
        assert_eq!(reader.next_frame(), Ok(None));
        frame
    });
}

fn check_open(name: &str, open: &Open) {
    let mut encoded = Vec::new();
    open.encode(&mut encoded);
    check(name, open, &encoded, |bytes| {
        Open::decode(bytes).unwrap().map(|(open, used)| {
            assert_eq!(used, bytes.len());
            open
        })
    });
}

fn check_reply(name: &str, reply: Reply) {
    let mut encoded = Vec::new();
    reply.encode(&mut encoded);
    check(name, &reply, &encoded, |bytes| {
        Reply::decode(bytes).unwrap().map(|(reply, used)| {
            assert_eq!(used, bytes.len());
            reply
        })
    });
}

#[test]
fn hello() {
    let client = Hello {
        version: 1,
        agent: "bentpipe/0.1.0".to_owned(),
        instance: 0x0102_0304_0506_0708,
        max_flows: 0,
        forward: Forward {
            controller: Some("satellite".to_owned()),
            max_rate: Some(BitRate::bits_per_second(50_000_000)),
            initial_window: Some(64),
            rate: Some(BitRate::bits_per_second(40_000_000)),
            fec: Some(Fec::Fixed { repair: 1, per: 20 }),
        },
        acks: Some(Acks {
            packets: 200,
            delay: Duration::from_millis(75),
        }),
        return_controller: Some("cubic".to_owned()),
        capabilities: capability::REPAIR,
        repair_window: 1 << 26,
        ..Hello::default()
    };
    check_control("HELLO of a client", &Control::Hello(client));
    let server = Hello {
        version: 1,
        agent: "bentpipe/0.1.0".to_owned(),
        instance: 0x1112_1314_1516_1718,
        families: Families {
            ipv4: true,
            ipv6: true,
        },
        initial_credit: 65_536,
        max_flows: 4096,
        assigned: vec!["100.64.0.2".parse().unwrap(), "fd00:64::2".parse().unwrap()],
        forward: Forward {
            controller: Some("cubic".to_owned()),
            max_rate: Some(BitRate::bits_per_second(30_000_000)),
            initial_window: Some(64),
            rate: Some(BitRate::bits_per_second(30_000_000)),
            fec: Some(Fec::Auto),
        },
        acks: Some(Acks {
            packets: 10,
            delay: Duration::from_secs(1),
        }),
        capabilities: capability::REPAIR,
        repair_window: 1 << 26,
        ..Hello::default()
    };
    check_control("HELLO of a server", &Control::Hello(server));
}

#[test]
fn flow_frames() {
    check_control(
        "FLOW_CREDIT",
        &Control::FlowCredit {
            flow: FlowId(3),
            max_offset: 1_048_576,
        },
    );
    check_control(
        "FLOW_ABORT",
        &Control::FlowAbort {
            flow: FlowId(300),
            final_offset: 16_383,
            code: AbortCode::TimedOut,
        },
    );
    check_control("GOAWAY", &Control::Goaway);
    check_control(
        "RATE_HINT",
        &Control::RateHint {
            rate: BitRate::megabits_per_second(250),
            packets: 24,
        },
    );
    check_control(
        "ACKS",
        &Control::Acks(Acks {
            packets: 12,
            delay: Duration::from_millis(1),
        }),
    );
}

#[test]
fn families() {
    let ipv4 = Families {
        ipv4: true,
        ipv6: false,
    };
    check_control("FAMILIES", &Control::Families(ipv4));
}

#[test]
fn repairs() {
    check_control("KEEP", &Control::Keep { bytes: 1 << 20 });
    let mut outgoing = Outgoing::default();
    outgoing.configure(Fec::Fixed { repair: 1, per: 1 }, 1 << 20);
    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    let now = Instant::now();
    let text = Bytes::from(b"What was lost comes back. ".repeat(5));
    outgoing.on_written(now, 5, 100, text.clone());
    outgoing.on_dry(now, 5, 230, true);
    let repair = outgoing.poll(now + Duration::from_millis(10), 280).unwrap();
    check("Repair", &repair, &repair, |bytes| {
        Repair::decode(bytes).map(|repair| repair.encode().into())
    });
    let mut incoming = Incoming::default();
    incoming.keep(1 << 20);
    incoming.on_received(5, 100, &text.slice(..80));
    assert!(incoming.on_datagram(&repair));
    incoming.work(now);
    let mended = Mended::Bytes {
        stream: 5,
        offset: 164,
        bytes: text.slice(64..),
    };
    assert_eq!(incoming.poll(), Some(mended));
    let end = Mended::End {
        stream: 5,
        offset: 230,
    };
    assert_eq!(incoming.poll(), Some(end));
}

#[test]
fn trains() {
    let packet = TrainPacket {
        count: 24,
        index: 23,
    };
    let decode = |bytes: &[u8]| TrainPacket::decode(bytes);
    check("Packet of a train", &packet, &packet.encode(8), decode);
}

#[test]
fn silences() {
    let place = Place {
        stream: 5,
        offset: 100,
    };
    let awaited = Awaited {
        places: vec![place],
    };
    check("AWAITED", &awaited, &awaited.encode(12), Awaited::decode);
    let bytes = Bytes::from_static(b"again");
    let again = Again { place, bytes };
    check("AGAIN", &again, &again.encode(), Again::decode);
}

#[test]
fn open() {
    let source: SocketAddr = "192.168.1.10:51000".parse().unwrap();
    let open = |flow, destination: &str, source, credit| Open {
        flow: FlowId(flow),
        destination: destination.parse().unwrap(),
        source,
        credit,
        page: false,
    };
    check_open(
        "OPEN of an IPv4 destination",
        &open(0, "192.0.2.1:443", Some(source), 1_048_576),
    );
    check_open(
        "OPEN of an IPv6 destination",
        &open(1, "[2001:db8::1]:80", None, 65_536),
    );
    check_open(
        "OPEN of a host name",
        &open(70, "www.example.com:443", None, 65_536),
    );
}

#[test]
fn reply() {
    let bound = Some("198.51.100.7:40000".parse().unwrap());
    check_reply(
        "REPLY, connected",
        Reply {
            code: ReplyCode::Ok,
            bound,
            credit: 1_048_576,
        },
    );
    check_reply(
        "REPLY, refused",
        Reply {
            code: ReplyCode::Refused,
            bound: None,
            credit: 0,
        },
    );
}

#[test]
fn enrolment() {
    let key = [
        0xd7, 0x5a, 0x98, 0x01, 0x82, 0xb1, 0x0a, 0xb7, 0xd5, 0x4b, 0xfe, 0xd3, 0xc9, 0x64, 0x07,
        0x3a, 0x0e, 0xe1, 0x72, 0xf3, 0xda, 0xa6, 0x23, 0x25, 0xaf, 0x02, 0x1a, 0x68, 0xf7, 0x07,
        0x51, 0x1a,
    ];
    check_control("ENROL", &Control::Enrol { key });
    check_control(
        "ENROLLED",
        &Control::Enrolled {
            code: EnrolCode::Used,
            at: 1_700_000_000,
        },
    );
}

#[test]
fn sealed_flows() {
    let hello = Hello {
        version: 1,
        instance: 1,
        capabilities: capability::SLE,
        sle: Some(SleHello::Server {
            id: 0x0a0b_0c0d,
            port: 4434,
            prefixes: Vec::new(),
        }),
        ..Hello::default()
    };
    let prefixes = ["192.0.2.0/24", "2001:db8::/48"].map(|prefix| prefix.parse().unwrap());
    let taking_in = Hello {
        sle: Some(SleHello::Server {
            id: 0x0a0b_0c0d,
            port: 0,
            prefixes: prefixes.to_vec(),
        }),
        ..hello.clone()
    };
    check_control("HELLO of a server with SLE", &Control::Hello(hello));
    check_control(
        "HELLO of a server that takes in outer connections",
        &Control::Hello(taking_in),
    );
    let next = |random| Control::SleEpoch { epoch: 5, random };
    let random = EpochRandom::new(|bytes| {
        *bytes = std::array::from_fn(|i| 0x20 + u8::try_from(i).expect("below 32"));
    });
    check_control("SLE_EPOCH of a client", &next(Some(random)));
    check_control("SLE_EPOCH of a server", &next(None));
}

#[test]
fn associations_of_les() {
    let hello = Hello {
        version: 1,
        instance: 1,
        capabilities: capability::LES,
        ..Hello::default()
    };
    check_control("HELLO with LES", &Control::Hello(hello));
    let body = |bytes: &[u8]| LesBody::new(Zeroizing::new(bytes.to_vec()));
    let answer = body(&[0, 0, 0, 5, 2, 2, 1, 0]);
    check_control("Q2 of LES", &Control::Les(LesKind::Q2, answer));
}

#[test]
fn published_ports() {
    check_control(
        "PUBLISH",
        &Control::Publish(Publish {
            entry: 1,
            protocol: 17,
            families: Families {
                ipv4: true,
                ipv6: false,
            },
            port: 5060,
        }),
    );
    check_control(
        "PUBLISHED",
        &Control::Published {
            entry: 1,
            code: PublishCode::NotPermitted,
        },
    );
    let inbound = Inbound {
        flow: FlowId::OF_SERVER,
        entry: 0,
        source: "198.51.100.7:40000".parse().ok(),
        destination: "192.0.2.1:8443".parse().ok(),
        credit: 65_536,
    };
    let mut encoded = Vec::new();
    inbound.encode(&mut encoded);
    check("INBOUND", &inbound, &encoded, |bytes| {
        let (inbound, used) = Inbound::decode(bytes).unwrap()?;
        assert_eq!(used, bytes.len());
        Some(inbound)
    });
}

#[test]
fn segments() {
    let segments = Segments {
        flow: FlowId(7),
        credit: 1_048_576,
    };
    let mut encoded = Vec::new();
    segments.encode(&mut encoded);
    check("SEGMENTS", &segments, &encoded, |bytes| {
        let (segments, used) = Segments::decode(bytes).unwrap()?;
        assert_eq!(used, bytes.len());
        Some(segments)
    });
}

#[test]
fn query() {
    let asked = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07example\x03com\0\0\x01\0\x01";
    let asked = Query::decode(asked).expect("a query");
    let mut stream = Vec::new();
    StreamKind::Dns.encode(&mut stream);
    stream.extend(asked.encode());
    check("Query", &asked.key(), &stream, |bytes| {
        let (kind, used) = StreamKind::decode(bytes).unwrap()?;
        assert_eq!(kind, StreamKind::Dns);
        Some(Query::decode(&bytes[used..]).unwrap().key())
    });
}

#[test]
fn later_versions() {
    let mut reader = ControlReader::new();
    reader.push(&vector("Unknown frame, then GOAWAY"));
    assert_eq!(reader.next_frame(), Ok(Some(Control::Goaway)));

    let (open, _) = Open::decode(&vector("OPEN with a tail")).unwrap().unwrap();
    assert_eq!(
        (open.flow, open.destination.to_string()),
        (FlowId(0), "192.0.2.1:443".to_owned())
    );

    let mut reader = ControlReader::new();
    reader.push(&vector("HELLO with a repeated parameter"));
    assert!(reader.next_frame().is_err());
}

#[test]
fn hello_of_a_server_with_packets() {
    let hello = Hello {
        version: 1,
        instance: 1,
        capabilities: capability::PACKETS,
        assigned: vec![[100, 96, 0, 2].into()],
        routed: ["192.0.2.0/24", "2001:db8::/48"]
            .map(|prefix| prefix.parse().expect("a prefix"))
            .to_vec(),
        carried: PacketKinds::Sockets,
        ..Hello::default()
    };
    check_control("HELLO of a server with packets", &Control::Hello(hello));
}

/// Packets as the vector says, in two frames.
#[test]
fn frames_of_packets() {
    let packets = [(60, 0xaa), (300, 0xbb), (20, 0xcc)].map(|(size, fill)| vec![fill; size]);
    let mut left = packets.iter().map(|packet| Bytes::copy_from_slice(packet));
    let mut packer = Packer::default();
    // A packet as small as these is not split unless it has to be.
    let frames: Vec<_> = std::iter::from_fn(|| packer.frame(256, || left.next())).collect();
    let joined: String = frames.iter().map(|frame| hex(frame)).collect();
    assert_eq!(joined, hex(&vector("Frames of packets")));
    released::check("Frames of packets", &bytes(&joined));
    let mut joiner = Joiner::default();
    let mut came = Vec::new();
    for frame in &frames {
        let taken = joiner.on_frame(frame, false, |packet| came.push(packet));
        taken.expect("a frame");
    }
    assert_eq!(came, packets);
}

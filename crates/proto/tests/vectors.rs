//! The test vectors of PROTOCOL.md, appendix A: the code writes and reads exactly these bytes, and the page shows them.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_proto::tunnel::{
    AbortCode, Acks, Control, ControlReader, Families, FlowId, Forward, Hello, Open, Reply,
    ReplyCode, TrainPacket,
};
use bentpipe_units::BitRate;

const PROTOCOL: &str = include_str!("../../../PROTOCOL.md");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
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
    let section = appendix
        .split_once(&format!("\n**{name}**"))
        .unwrap_or_else(|| panic!("no vector {name}"))
        .1;
    let block = section.split("```").nth(1).expect("a code block");
    bytes(
        &block
            .trim_start_matches("text")
            .split_whitespace()
            .collect::<String>(),
    )
}

fn check<T: Debug + PartialEq>(
    name: &str,
    value: &T,
    encoded: &[u8],
    decode: impl Fn(&[u8]) -> Option<T>,
) {
    let expected = vector(name);
    assert_eq!(
        hex(encoded),
        hex(&expected),
        "{name}: what the code writes (left) is not in PROTOCOL.md"
    );
    assert_eq!(decode(&expected).as_ref(), Some(value), "{name}");
}

fn check_control(name: &str, frame: &Control) {
    let mut encoded = Vec::new();
    frame.encode(&mut encoded);
    check(name, frame, &encoded, |bytes| {
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
        },
        acks: Some(Acks {
            packets: 200,
            delay: Duration::from_millis(75),
        }),
        return_controller: Some("cubic".to_owned()),
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
        },
        acks: Some(Acks {
            packets: 10,
            delay: Duration::from_secs(1),
        }),
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
fn open() {
    let source: SocketAddr = "192.168.1.10:51000".parse().unwrap();
    let open = |flow, destination: &str, source, credit| Open {
        flow: FlowId(flow),
        destination: destination.parse().unwrap(),
        source,
        credit,
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

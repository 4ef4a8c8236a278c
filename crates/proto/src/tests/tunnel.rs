//! The tunnel's headers against hostile and unlucky input: cut anywhere, garbage, too long, from a later version.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crate::fec::Fec;
use crate::tunnel::{
    AbortCode, Acks, CloseCode, Control, ControlReader, DecodeError, EpochRandom, Families, FlowId,
    Forward, Hello, LesBody, LesKind, MAX_FRAME, MAX_OPEN, MAX_REPLY, MAX_SLE_PREFIXES, Open,
    PacketKinds, Reply, ReplyCode, SleHello, StreamKind, varint,
};
use bentpipe_units::BitRate;
use ipnet::IpNet;
use zeroize::Zeroizing;

fn opens() -> Vec<Open> {
    let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 40_000));
    let v4 = SocketAddr::from(([10, 0, 0, 2], 50_000));
    [
        ("192.0.2.1:443", None),
        ("[2001:db8::1]:80", Some(v6)),
        ("example.com:8080", Some(v4)),
        ("a.:0", Some(v6)),
    ]
    .into_iter()
    .zip(0_u64..)
    .map(|((destination, source), i)| Open {
        flow: FlowId(300 * i),
        destination: destination.parse().unwrap(),
        source,
        credit: 1 << (14 * i),
        page: i == 2,
    })
    .collect()
}

fn hello() -> Hello {
    Hello {
        version: 1,
        agent: "bentpipe 0.1.0".to_owned(),
        instance: u64::MAX,
        families: Families {
            ipv4: true,
            ipv6: true,
        },
        initial_credit: 65_536,
        max_flows: 4096,
        capabilities: 1 << 63,
        assigned: vec![
            IpAddr::V4(Ipv4Addr::new(100, 64, 0, 2)),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
        ],
        forward: Forward {
            controller: Some("satellite".to_owned()),
            max_rate: Some(BitRate::bits_per_second(20_000_000)),
            initial_window: Some(1000),
            rate: Some(BitRate::bits_per_second(10_000_000)),
            fec: Some(Fec::Fixed {
                repair: 3,
                per: 100,
            }),
        },
        acks: Some(Acks {
            packets: 200,
            delay: Duration::from_millis(75),
        }),
        return_controller: Some("new-reno".to_owned()),
        routed: ["192.0.2.0/24", "2001:db8::/48"]
            .map(|prefix| prefix.parse().unwrap())
            .to_vec(),
        carried: PacketKinds::Sockets,
        repair_window: 64 << 20,
        sle: Some(SleHello::Random(random(7))),
    }
}

fn random(byte: u8) -> EpochRandom {
    EpochRandom::new(|bytes| bytes.fill(byte))
}

fn les_body(bytes: &[u8]) -> LesBody {
    LesBody::new(Zeroizing::new(bytes.to_vec()))
}

fn frames() -> Vec<Control> {
    vec![
        Control::Hello(hello()),
        Control::Hello(Hello::default()),
        Control::Hello(Hello {
            sle: Some(SleHello::Server {
                id: 0x0102_0304,
                port: 4434,
                prefixes: (0..=u8::MAX)
                    .take(MAX_SLE_PREFIXES)
                    .map(|last| IpNet::from(IpAddr::from([192, 0, 2, last])))
                    .collect(),
            }),
            ..Hello::default()
        }),
        Control::SleEpoch {
            epoch: u16::MAX,
            random: Some(random(9)),
        },
        Control::SleEpoch {
            epoch: 1,
            random: None,
        },
        Control::Les(LesKind::Q1, les_body(&[7; 300])),
        Control::Les(LesKind::Q2, les_body(&[])),
        Control::Les(LesKind::Q3, les_body(&[1])),
        Control::Keep { bytes: 1 << 20 },
        Control::FlowCredit {
            flow: FlowId(7),
            max_offset: varint::MAX,
        },
        Control::FlowAbort {
            flow: FlowId(8),
            final_offset: 0,
            code: AbortCode::TimedOut,
        },
        Control::Goaway,
        Control::RateHint {
            rate: BitRate::bits_per_second(varint::MAX),
            packets: 24,
        },
        Control::Acks(Acks {
            packets: 200,
            delay: Duration::from_micros(1500),
        }),
    ]
}

fn encode_frames(frames: &[Control]) -> Vec<u8> {
    frames
        .iter()
        .flat_map(|frame| frame.encode().to_vec())
        .collect()
}

fn read_all(reader: &mut ControlReader) -> Result<Vec<Control>, DecodeError> {
    let mut frames = Vec::new();
    while let Some(frame) = reader.next_frame()? {
        frames.push(frame);
    }
    Ok(frames)
}

fn read(bytes: &[u8]) -> Result<Vec<Control>, DecodeError> {
    let mut reader = ControlReader::new();
    reader.push(bytes);
    read_all(&mut reader)
}

/// `prefix`, then `value` as an integer.
fn with_varint(prefix: &[u8], value: usize) -> Vec<u8> {
    let mut out = prefix.to_vec();
    varint::encode(value as u64, &mut out);
    out
}

fn hello_frame(value: &[u8]) -> Vec<u8> {
    [&with_varint(&[1], value.len()), value].concat()
}

#[test]
fn open_roundtrip_and_every_cut() {
    for open in opens() {
        let mut bytes = Vec::new();
        open.encode(&mut bytes);
        for cut in 0..bytes.len() {
            assert_eq!(Open::decode(&bytes[..cut]), Ok(None));
        }
        let len = bytes.len();
        bytes.extend_from_slice(b"payload");
        assert_eq!(Open::decode(&bytes), Ok(Some((open, len))));
    }
}

#[test]
fn reply_roundtrip_and_every_cut() {
    let bound = [
        None,
        Some(SocketAddr::from(([10, 1, 2, 3], 9))),
        Some(SocketAddr::from((Ipv6Addr::LOCALHOST, 1))),
    ];
    for (i, code) in ReplyCode::ALL.iter().enumerate() {
        let reply = Reply {
            code: *code,
            bound: bound[i % 3],
            credit: 1 << (5 * i),
        };
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        for cut in 0..bytes.len() {
            assert_eq!(Reply::decode(&bytes[..cut]), Ok(None));
        }
        let len = bytes.len();
        bytes.extend_from_slice(b"payload");
        assert_eq!(Reply::decode(&bytes), Ok(Some((reply, len))));
    }
}

#[test]
fn control_roundtrip_in_every_split() {
    let bytes = encode_frames(&frames());
    assert_eq!(read(&bytes), Ok(frames()));
    for cut in 0..=bytes.len() {
        let mut reader = ControlReader::new();
        reader.push(&bytes[..cut]);
        let mut seen = read_all(&mut reader).unwrap();
        reader.push(&bytes[cut..]);
        seen.extend(read_all(&mut reader).unwrap());
        assert_eq!(seen, frames());
    }
    let mut reader = ControlReader::new();
    let mut seen = Vec::new();
    for byte in &bytes {
        reader.push(&[*byte]);
        seen.extend(read_all(&mut reader).unwrap());
    }
    assert_eq!(seen, frames());
}

#[test]
fn unknown_frames_and_parameters_are_skipped() {
    let mut bytes = vec![0x7f, 0xff, 3, 1, 2, 3];
    bytes.extend(encode_frames(&[Control::Goaway]));
    assert_eq!(read(&bytes), Ok(vec![Control::Goaway]));
    // version 2, unknown parameter 0, max_flows 9, unknown parameter 0x3f
    let expected = Hello {
        version: 2,
        max_flows: 9,
        ..Hello::default()
    };
    assert_eq!(
        read(&hello_frame(&[2, 0, 0, 5, 1, 9, 0x3f, 2, 0xaa, 0xbb])),
        Ok(vec![Control::Hello(expected)])
    );

    let open = &opens()[0];
    let mut bytes = Vec::new();
    open.encode(&mut bytes);
    bytes[1] += 4;
    bytes.extend_from_slice(&[0x21, 2, 9, 9]);
    assert_eq!(Open::decode(&bytes), Ok(Some((open.clone(), bytes.len()))));
    bytes[1] -= 1;
    assert_eq!(
        Open::decode(&bytes),
        Err(DecodeError::Truncated("OPEN")),
        "the tail must be well formed"
    );
    let reply = Reply {
        code: ReplyCode::Ok,
        bound: None,
        credit: 5,
    };
    assert_eq!(
        Reply::decode(&[6, 0, 0, 5, 0x30, 1, 7]),
        Ok(Some((reply, 7)))
    );
}

#[test]
fn unknown_codes_become_the_general_one() {
    assert_eq!(
        Reply::decode(&[3, 0x3f, 0, 0]).unwrap().unwrap().0.code,
        ReplyCode::Internal
    );
    let abort = Control::FlowAbort {
        flow: FlowId(1),
        final_offset: 2,
        code: AbortCode::Internal,
    };
    assert_eq!(read(&[3, 3, 1, 2, 0x3f]), Ok(vec![abort]));
    assert_eq!(CloseCode::from_code(0x100), CloseCode::ProtocolViolation);
    for code in CloseCode::ALL {
        assert_eq!(CloseCode::from_code(code.code()), *code);
    }
}

#[test]
fn repeated_and_disordered_parameters_are_refused() {
    assert_eq!(
        read(&hello_frame(&[1, 5, 1, 9, 5, 1, 9])),
        Err(DecodeError::ParameterOrder(5))
    );
    assert_eq!(
        read(&hello_frame(&[1, 5, 1, 9, 4, 1, 9])),
        Err(DecodeError::ParameterOrder(4))
    );
    assert_eq!(
        read(&hello_frame(&[1, 0x3e, 0, 0x3e, 0])),
        Err(DecodeError::ParameterOrder(0x3e))
    );
}

#[test]
fn lengths_above_the_limit_fail_before_the_body() {
    assert_eq!(Open::decode(&with_varint(&[1], MAX_OPEN)), Ok(None));
    assert!(matches!(
        Open::decode(&with_varint(&[1], MAX_OPEN + 1)),
        Err(DecodeError::TooLong { .. })
    ));
    assert_eq!(Reply::decode(&with_varint(&[], MAX_REPLY)), Ok(None));
    assert!(matches!(
        Reply::decode(&with_varint(&[], MAX_REPLY + 1)),
        Err(DecodeError::TooLong { .. })
    ));
    assert_eq!(read(&with_varint(&[0x3f], MAX_FRAME)), Ok(vec![]));
    assert!(matches!(
        read(&with_varint(&[0x3f], MAX_FRAME + 1)),
        Err(DecodeError::TooLong { .. })
    ));
    assert!(matches!(
        read(&[4, 0xff, 255, 255, 255, 255, 255, 255, 255]),
        Err(DecodeError::TooLong { .. })
    ));
}

#[test]
fn malformed_frames_name_the_fault_and_stay_refused() {
    assert_eq!(read(&[2, 1, 1]), Err(DecodeError::Truncated("FLOW_CREDIT")));
    assert_eq!(
        read(&[2, 3, 1, 1, 1]),
        Err(DecodeError::TrailingBytes("FLOW_CREDIT"))
    );
    assert_eq!(read(&[4, 1, 0]), Err(DecodeError::TrailingBytes("GOAWAY")));
    assert_eq!(
        read(&hello_frame(&[])),
        Err(DecodeError::Truncated("HELLO"))
    );
    assert_eq!(
        read(&hello_frame(&[1, 1, 1, 0x1b])),
        Err(DecodeError::Text("agent"))
    );
    assert_eq!(
        read(&hello_frame(&[1, 8, 0])),
        Err(DecodeError::Text("controller"))
    );
    assert_eq!(
        read(&hello_frame(&[1, 2, 1, 0])),
        Err(DecodeError::Truncated("HELLO parameter"))
    );
    assert_eq!(
        read(&hello_frame(&[1, 12, 1, 9])),
        Err(DecodeError::Truncated("HELLO parameter")),
        "packets without a time"
    );
    assert_eq!(
        read(&hello_frame(&[1, 10, 2, 9, 9])),
        Err(DecodeError::TrailingBytes("HELLO parameter"))
    );
    let nine: Vec<u8> = [1, 7, 45]
        .into_iter()
        .chain([4, 10, 0, 0, 1].repeat(9))
        .collect();
    assert_eq!(
        read(&hello_frame(&nine)),
        Err(DecodeError::TooManyAddresses)
    );
    assert_eq!(Open::decode(&[0, 0]), Err(DecodeError::StreamKind(0)));
    assert_eq!(StreamKind::decode(&[9]), Err(DecodeError::StreamKind(9)));
    assert_eq!(
        StreamKind::decode(&[0x40, 1]),
        Err(DecodeError::StreamKind(1)),
        "not the shortest form"
    );
    assert_eq!(
        Open::decode(&[1, 5, 0, 9, 0, 0, 0]),
        Err(DecodeError::AddressKind(9))
    );

    let mut reader = ControlReader::new();
    reader.push(&[4, 1, 0]);
    let error = reader.next_frame().unwrap_err();
    reader.push(&encode_frames(&[Control::Goaway]));
    assert_eq!(reader.next_frame(), Err(error), "the first error is final");
}

#[test]
fn encoders_never_write_what_decoders_refuse() {
    let strange = Hello {
        version: u64::MAX,
        agent: "naïve\u{1b}[31m ".repeat(20),
        max_flows: u64::MAX,
        assigned: vec![IpAddr::V4(Ipv4Addr::LOCALHOST); 20],
        forward: Forward {
            controller: Some("No Such".to_owned()),
            max_rate: Some(BitRate::bits_per_second(u64::MAX)),
            initial_window: Some(u64::MAX),
            rate: Some(BitRate::bits_per_second(u64::MAX)),
            fec: None,
        },
        acks: Some(Acks {
            packets: u64::MAX,
            delay: Duration::MAX,
        }),
        return_controller: Some(String::new()),
        ..Hello::default()
    };
    let frames = read(&encode_frames(&[Control::Hello(strange)])).unwrap();
    let [Control::Hello(read)] = frames.as_slice() else {
        panic!("one HELLO")
    };
    assert_eq!((read.version, read.max_flows), (varint::MAX, varint::MAX));
    assert_eq!(read.return_controller, None);
    assert_eq!(
        (
            read.agent.len(),
            read.assigned.len(),
            &read.forward.controller
        ),
        (64, 8, &None)
    );
}

/// Every single-byte change of valid headers, and noise behind a plausible start: any result will do but a panic.
#[test]
fn garbage_never_panics() {
    let mut seeds = vec![encode_frames(&frames())];
    for open in opens() {
        let mut bytes = Vec::new();
        open.encode(&mut bytes);
        seeds.push(bytes);
    }
    let decode = |bytes: &[u8]| {
        let _ = Open::decode(bytes);
        let _ = Reply::decode(bytes);
        let _ = read(bytes);
    };
    for seed in &mut seeds {
        for at in 0..seed.len() {
            let kept = seed[at];
            for byte in 0..=u8::MAX {
                seed[at] = byte;
                decode(seed);
            }
            seed[at] = kept;
        }
    }
    let mut state = 1_u64;
    for _ in 0..50_000 {
        let noise: Vec<u8> = (0..24)
            .map(|_| {
                // Knuth's MMIX generator; its high bits are the good ones.
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                state.to_be_bytes()[0]
            })
            .collect();
        decode(&noise);
        decode(&[&[1, 22], &noise[2..]].concat());
    }
}

//! The tunnel's headers (PROTOCOL.md §5, §6), as each peer reads them from the other.

use std::time::Duration;

use bentpipe_proto::fec::Fec;
use bentpipe_proto::tunnel::{
    AbortCode, Acks, Again, Awaited, Control, ControlReader, Destination, EnrolCode, Families,
    FlowId, Forward, Hello, Inbound, LesBody, LesKind, MAX_FRAME, MAX_OPEN, MAX_REPLY, MAX_TRAIN,
    Open, Place, Publish, PublishCode, Reply, ReplyCode, Segments, TrainPacket, varint,
};
use bentpipe_units::BitRate;
use bytes::Bytes;

fn encoded(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

fn read_all(reader: &mut ControlReader, frames: &mut Vec<Control>) -> bool {
    loop {
        match reader.next_frame() {
            Ok(Some(frame)) => frames.push(frame),
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// The control stream: the same frames and the same verdict however it is cut, and frames survive rewriting.
pub fn control(data: &[u8]) {
    let (mut whole, mut whole_frames) = (ControlReader::new(), Vec::new());
    whole.push(data);
    let whole_fine = read_all(&mut whole, &mut whole_frames);

    let (mut cut, mut cut_frames, mut cut_fine) = (ControlReader::new(), Vec::new(), true);
    for piece in data.chunks(1 + data.len() % 7) {
        cut.push(piece);
        cut_fine = read_all(&mut cut, &mut cut_frames);
    }
    assert_eq!((whole_fine, &whole_frames), (cut_fine, &cut_frames));

    let rewritten: Vec<u8> = whole_frames
        .iter()
        .flat_map(|frame| frame.encode().to_vec())
        .collect();
    let (mut again, mut again_frames) = (ControlReader::new(), Vec::new());
    again.push(&rewritten);
    assert!(read_all(&mut again, &mut again_frames));
    assert_eq!(whole_frames, again_frames);
}

/// The value of a HELLO, framed here so that mutations do not die at the length.
pub fn hello(data: &[u8]) {
    let data = &data[..data.len().min(MAX_FRAME)];
    let mut frame = vec![1];
    varint::encode(data.len() as u64, &mut frame);
    frame.extend_from_slice(data);
    control(&frame);
}

/// OPEN, as the server reads it, and once more with its length mended so that mutations reach the fields.
pub fn open(data: &[u8]) {
    let check = |data: &[u8]| match Open::decode(data) {
        Ok(Some((open, used))) => {
            assert!(used <= data.len() && used <= MAX_OPEN + 16);
            let again = encoded(|out| open.encode(out));
            assert_eq!(Open::decode(&again), Ok(Some((open, again.len()))));
        }
        Ok(None) => assert!(data.len() < MAX_OPEN + 16),
        Err(_) => {}
    };
    check(data);
    let body = data.get(2..).unwrap_or_default();
    check(&encoded(|out| {
        out.push(1);
        varint::encode(body.len() as u64, out);
        out.extend_from_slice(body);
    }));
}

/// INBOUND, as the client reads it, and once more with its length mended.
pub fn inbound(data: &[u8]) {
    let check = |data: &[u8]| match Inbound::decode(data) {
        Ok(Some((inbound, used))) => {
            assert!(used <= data.len() && used <= MAX_OPEN + 16);
            let again = encoded(|out| inbound.encode(out));
            assert_eq!(Inbound::decode(&again), Ok(Some((inbound, again.len()))));
        }
        Ok(None) => assert!(data.len() < MAX_OPEN + 16),
        Err(_) => {}
    };
    check(data);
    let body = data.get(2..).unwrap_or_default();
    check(&encoded(|out| {
        out.push(3);
        varint::encode(body.len() as u64, out);
        out.extend_from_slice(body);
    }));
}

/// SEGMENTS, as either side reads it, and once more with its length mended.
pub fn segments(data: &[u8]) {
    let check = |data: &[u8]| match Segments::decode(data) {
        Ok(Some((segments, used))) => {
            assert!(used <= data.len() && used <= MAX_OPEN + 16);
            let again = encoded(|out| segments.encode(out));
            assert_eq!(Segments::decode(&again), Ok(Some((segments, again.len()))));
        }
        Ok(None) => assert!(data.len() < MAX_OPEN + 16),
        Err(_) => {}
    };
    check(data);
    let body = data.get(2..).unwrap_or_default();
    check(&encoded(|out| {
        out.push(5);
        varint::encode(body.len() as u64, out);
        out.extend_from_slice(body);
    }));
}

/// REPLY, as the client reads it, and once more with its length mended.
pub fn reply(data: &[u8]) {
    let check = |data: &[u8]| match Reply::decode(data) {
        Ok(Some((reply, used))) => {
            assert!(used <= data.len() && used <= MAX_REPLY + 8);
            let again = encoded(|out| reply.encode(out));
            assert_eq!(Reply::decode(&again), Ok(Some((reply, again.len()))));
        }
        Ok(None) => assert!(data.len() < MAX_REPLY + 8),
        Err(_) => {}
    };
    check(data);
    let body = data.get(1..).unwrap_or_default();
    check(&encoded(|out| {
        varint::encode(body.len() as u64, out);
        out.extend_from_slice(body);
    }));
}

/// A DATAGRAM frame: what is taken for a packet of a train can be written and read again.
pub fn train(data: &[u8]) {
    if let Some(packet) = TrainPacket::decode(data) {
        assert!(packet.index < packet.count && packet.count <= MAX_TRAIN);
        let again = packet.encode(data.len());
        assert_eq!(TrainPacket::decode(&again), Some(packet));
    }
}

/// A DATAGRAM frame: what is taken for AWAITED or AGAIN can be written and read again.
pub fn silence(data: &[u8]) {
    if let Some(awaited) = Awaited::decode(data) {
        let again = awaited.encode(data.len());
        assert_eq!(Awaited::decode(&again), Some(awaited));
    }
    if let Some(again) = Again::decode(data) {
        assert_eq!(Again::decode(&again.encode()), Some(again));
    }
}

/// `host:port` as text, from front ends: what is accepted can be written, read again and sent.
pub fn destination(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
    let Ok(destination) = text.parse::<Destination>() else {
        return;
    };
    assert_eq!(destination.to_string().parse(), Ok(destination.clone()));
    let open = Open {
        flow: FlowId(0),
        destination,
        source: None,
        credit: 0,
        page: false,
    };
    let bytes = encoded(|out| open.encode(out));
    assert_eq!(Open::decode(&bytes), Ok(Some((open, bytes.len()))));
}

fn hello_value() -> Hello {
    let mut hello = Hello {
        version: 1,
        agent: "bentpipe/0.1.0".to_owned(),
        instance: 1 << 60,
        families: Families {
            ipv4: true,
            ipv6: true,
        },
        initial_credit: 65_536,
        max_flows: 4096,
        assigned: vec![[100, 64, 0, 2].into(), [0_u16; 8].into()],
        ..Hello::default()
    };
    hello.forward = Forward {
        controller: Some("satellite".to_owned()),
        max_rate: Some(BitRate::megabits_per_second(50)),
        initial_window: Some(64),
        rate: Some(BitRate::megabits_per_second(40)),
        fec: Some(Fec::Fixed { repair: 1, per: 20 }),
    };
    hello.acks = Some(Acks {
        packets: 200,
        delay: Duration::from_millis(75),
    });
    hello.return_controller = Some("cubic".to_owned());
    hello.repair_window = 64 << 20;
    hello
}

pub fn control_seeds() -> Vec<Vec<u8>> {
    let frames = [
        Control::Hello(hello_value()),
        Control::Keep { bytes: 1 << 20 },
        Control::FlowCredit {
            flow: FlowId(70),
            max_offset: 1 << 20,
        },
        Control::FlowAbort {
            flow: FlowId(3),
            final_offset: 16_383,
            code: AbortCode::Reset,
        },
        Control::Goaway,
        Control::Families(Families {
            ipv4: true,
            ipv6: false,
        }),
        Control::Publish(Publish {
            entry: 1,
            protocol: 6,
            families: Families {
                ipv4: true,
                ipv6: true,
            },
            port: 8443,
        }),
        Control::Published {
            entry: 1,
            code: PublishCode::InUse,
        },
        Control::Enrol { key: [7; 32] },
        Control::Enrolled {
            code: EnrolCode::Used,
            at: 1_700_000_000,
        },
        Control::Les(LesKind::Q2, LesBody::new(vec![0, 0, 0, 5, 2, 1, 0].into())),
        Control::RateHint {
            rate: BitRate::megabits_per_second(250),
            packets: 24,
        },
        Control::Acks(Acks {
            packets: 12,
            delay: Duration::from_millis(1),
        }),
    ];
    let mut seeds: Vec<Vec<u8>> = frames.iter().map(|frame| frame.encode().to_vec()).collect();
    seeds.push(seeds.concat());
    seeds
}

pub fn hello_seeds() -> Vec<Vec<u8>> {
    let frame = Control::Hello(hello_value()).encode();
    let (_, length) = varint::decode(&frame[1..]).unwrap_or_default();
    vec![frame[1 + length..].to_vec()]
}

pub fn train_seeds() -> Vec<Vec<u8>> {
    [(1, 0), (24, 23), (MAX_TRAIN, 0)]
        .map(|(count, index)| TrainPacket { count, index }.encode(20))
        .into()
}

pub fn silence_seeds() -> Vec<Vec<u8>> {
    let place = |stream| Place {
        stream,
        offset: 70_000,
    };
    let places = vec![place(0), place(FlowId::OF_SERVER.0 + 70)];
    let again = Again {
        place: place(70),
        bytes: Bytes::from_static(b"again"),
    };
    vec![Awaited { places }.encode(30), again.encode()]
}

pub fn open_seeds() -> Vec<Vec<u8>> {
    let source = [
        None,
        Some(([10, 0, 0, 2], 50_000).into()),
        Some(([0_u16; 8], 1).into()),
    ];
    ["192.0.2.1:443", "[2001:db8::1]:80", "www.example.com:443"]
        .into_iter()
        .zip(source)
        .filter_map(|(destination, source)| {
            let open = Open {
                flow: FlowId(70),
                destination: destination.parse().ok()?,
                source,
                credit: 1 << 20,
                page: false,
            };
            Some(encoded(|out| open.encode(out)))
        })
        .collect()
}

pub fn inbound_seeds() -> Vec<Vec<u8>> {
    let address = |text: &str| text.parse().ok();
    [
        (address("198.51.100.7:40000"), address("192.0.2.1:8443")),
        (address("[2001:db8::7]:40000"), None),
    ]
    .map(|(source, destination)| {
        let inbound = Inbound {
            flow: FlowId::OF_SERVER,
            entry: 63,
            source,
            destination,
            credit: 1 << 20,
        };
        encoded(|out| inbound.encode(out))
    })
    .to_vec()
}

pub fn segments_seeds() -> Vec<Vec<u8>> {
    let of = |flow| {
        let credit = 1 << 20;
        encoded(|out| Segments { flow, credit }.encode(out))
    };
    [FlowId(7), FlowId::OF_SERVER].map(of).to_vec()
}

pub fn reply_seeds() -> Vec<Vec<u8>> {
    [
        (ReplyCode::Ok, Some(([10, 0, 0, 2], 50_000).into())),
        (ReplyCode::Refused, None),
    ]
    .into_iter()
    .map(|(code, bound)| {
        encoded(|out| {
            Reply {
                code,
                bound,
                credit: 1 << 20,
            }
            .encode(out)
        })
    })
    .collect()
}

pub fn destination_seeds() -> Vec<Vec<u8>> {
    [
        "192.0.2.1:443",
        "[2001:db8::1]:80",
        "www.Example.com.:443",
        "0x7f.1:80",
        "::ffff:1.2.3.4:5",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

//! Messages between PEPs: the vectors of `PROTOCOL.md` §20.9, and faults.

use super::*;

const PROTOCOL: &str = include_str!("../../../../PROTOCOL.md");

/// Vector called `name` in PROTOCOL.md.
fn vector(name: &str) -> Vec<u8> {
    let (_, own) = PROTOCOL
        .split_once(&format!("\n**{name}**"))
        .unwrap_or_else(|| panic!("no vector {name}"));
    let block = own.split("```").nth(1).expect("a code block");
    let digits: String = block
        .trim_start_matches("text")
        .split_whitespace()
        .collect();
    let digit = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal");
    (0..digits.len()).step_by(2).map(digit).collect()
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut out = BytesMut::new();
    message.encode(&mut out);
    out.to_vec()
}

fn opening(form: Form, addresses: [IpAddr; 2]) -> Message {
    let scope = match form {
        Form::Clear => [0; 16],
        Form::Zones => std::array::from_fn(|at| at as u8),
    };
    Message::Open(Opening {
        form,
        scope,
        initiator: (addresses[0], 51_000),
        responder: (addresses[1], 443),
        initial: [0x0102_0304, 0x0a0b_0c0d],
    })
}

fn blob(flags: Flags, urgent: u16, length: u16, zone: &[u8]) -> Message {
    let blob = Blob {
        flags,
        urgent,
        length,
        zone: Bytes::copy_from_slice(zone),
    };
    Message::Blob(0x0102_0305, blob)
}

/// Messages with the names of their vectors, for each form.
fn all() -> [Vec<(&'static str, Message)>; 2] {
    let [v4, v6] = [["192.168.1.10", "192.0.2.1"], ["fd00::a", "2001:db8::1"]];
    let address = |text: &str| text.parse().expect("an address");
    let zone: Vec<u8> = (0..29).collect();
    let push = Flags::PSH;
    let last = Flags::FIN | Flags::URG;
    let clear = vec![
        (
            "Segments: OPEN, clear",
            opening(Form::Clear, v4.map(address)),
        ),
        ("Segments: BLOB", blob(push, 0, 5, b"GET /")),
        ("Segments: BLOB, the last", blob(last, 2, 2, b"ok")),
        ("Segments: FIN_ACKED", Message::FinAcked),
        ("Segments: RESET", Message::Reset(Cause::Room)),
    ];
    let zones = vec![
        ("Segments: OPEN, LES", opening(Form::Zones, v6.map(address))),
        ("Segments: BLOB, LES", blob(push, 0, 5, &zone)),
        (
            "Segments: BLOB, LES, FIN alone",
            blob(Flags::FIN, 0, 0, &zone[..24]),
        ),
    ];
    [clear, zones]
}

#[test]
fn messages_are_those_of_the_protocol() {
    for form in all() {
        let mut parser = Parser::default();
        for (name, message) in form {
            let bytes = vector(name);
            assert_eq!(encoded(&message), bytes, "{name}");
            let mut input = &bytes[..];
            assert_eq!(parser.next(&mut input), Ok(Some(message)), "{name}");
            assert!(input.is_empty());
        }
    }
}

#[test]
fn messages_come_out_whole_however_the_stream_is_cut() {
    for form in all() {
        let messages: Vec<_> = form.into_iter().map(|(_, message)| message).collect();
        let stream: Vec<u8> = messages.iter().flat_map(encoded).collect();
        for size in 1..stream.len() {
            let (mut parser, mut found) = (Parser::default(), Vec::new());
            for mut piece in stream.chunks(size) {
                while let Some(message) = parser.next(&mut piece).expect("no fault") {
                    found.push(message);
                }
            }
            assert_eq!(found, messages, "pieces of {size}");
        }
    }
}

/// Fault of the last of these messages.
fn fault(stream: &[&[u8]]) -> WireFault {
    let (mut parser, stream) = (Parser::default(), stream.concat());
    let mut input = &stream[..];
    loop {
        match parser.next(&mut input) {
            Ok(Some(_)) => {}
            Ok(None) => panic!("no fault"),
            Err(fault) => return fault,
        }
    }
}

#[test]
fn what_is_no_message_is_refused_before_its_end_has_come() {
    let open = vector("Segments: OPEN, clear");
    let zoned = vector("Segments: OPEN, LES");
    let changed = |at: usize, byte: u8| {
        let mut open = open.clone();
        open[at] = byte;
        open
    };
    assert_eq!(fault(&[&[4]]), WireFault::Kind(4));
    assert_eq!(fault(&[&[BLOB]]), WireFault::Order(BLOB));
    assert_eq!(fault(&[&[FIN_ACKED]]), WireFault::Order(FIN_ACKED));
    assert_eq!(fault(&[&open, &[OPEN]]), WireFault::Order(OPEN));
    assert_eq!(fault(&[&changed(1, 2)]), WireFault::Form(2, 0));
    assert_eq!(fault(&[&changed(2, 2)]), WireFault::Form(1, 2));
    assert_eq!(fault(&[&changed(19, 5)[..20]]), WireFault::Family(5));
    assert_eq!(fault(&[&open, &[RESET, 6]]), WireFault::Cause(6));
    let head = |flags: u16, length: u16| {
        let mut head = encoded(&blob(Flags::PSH, 0, length, &[]));
        head[1..3].copy_from_slice(&flags.to_be_bytes());
        head
    };
    assert_eq!(fault(&[&open, &head(2, 5)]), WireFault::Flags(2));
    assert_eq!(fault(&[&open, &head(0x1008, 5)]), WireFault::Flags(0x1008));
    assert_eq!(fault(&[&open, &head(8, 0)]), WireFault::Length(0));
    assert_eq!(fault(&[&zoned, &head(8, 1365)]), WireFault::Length(1365));
    assert_eq!(
        fault(&[&zoned, &head(8, 1364), &[0; 1388], &[9]]),
        WireFault::Kind(9)
    );
}

#[test]
fn a_refusal_needs_no_opening() {
    let mut parser = Parser::default();
    let refused = Message::Reset(Cause::Unknown);
    assert_eq!(parser.next(&mut &encoded(&refused)[..]), Ok(Some(refused)));
}

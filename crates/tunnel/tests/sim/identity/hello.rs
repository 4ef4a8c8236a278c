//! The first messages, byte by byte: what they offer, and what becomes of TLS 1.2.

use quinn_proto::crypto::Session;
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{Side, TransportError};

use super::{our_client, our_server};

/// QUIC version 1.
const V1: u32 = 1;

/// The `supported_versions` extension of a ClientHello that offers TLS 1.3 alone, and of a ServerHello that takes it.
const OFFERS_13: &[u8] = &[0x00, 0x2b, 0x00, 0x03, 0x02, 0x03, 0x04];
const TAKES_13: &[u8] = &[0x00, 0x2b, 0x00, 0x02, 0x03, 0x04];

/// Extension types.
const SERVER_NAME: u16 = 0;
const PRE_SHARED_KEY: u16 = 41;
const EARLY_DATA: u16 = 42;
const SUPPORTED_VERSIONS: u16 = 43;
const SUPPORTED_GROUPS: u16 = 10;
const SIGNATURE_ALGORITHMS: u16 = 13;

const PROTOCOL_VERSION: u64 = 0x100 + 70;

fn params(side: Side) -> TransportParameters {
    TransportParameters::read(side, &mut [].as_slice()).unwrap()
}

fn client(allow_classical: bool) -> Box<dyn Session> {
    let config = our_client(allow_classical);
    config
        .start_session(V1, "bentpipe", &params(Side::Server))
        .unwrap()
}

fn server() -> Box<dyn Session> {
    our_server(false).start_session(V1, &params(Side::Client))
}

fn client_hello(allow_classical: bool) -> Vec<u8> {
    let mut hello = Vec::new();
    client(allow_classical).write_handshake(&mut hello);
    hello
}

/// `bytes` with the last byte of their only `part`, a version, one lower.
fn one_version_lower(mut bytes: Vec<u8>, part: &[u8]) -> Vec<u8> {
    let places: Vec<_> = (0..bytes.len())
        .filter(|at| bytes[*at..].starts_with(part))
        .collect();
    assert_eq!(places.len(), 1);
    bytes[places[0] + part.len() - 1] -= 1;
    bytes
}

/// The extensions of a ClientHello (RFC 8446, section 4.1.2).
fn extensions(hello: &[u8]) -> Vec<(u16, Vec<u8>)> {
    fn take<'a>(rest: &mut &'a [u8], length: usize) -> &'a [u8] {
        let (taken, left) = rest.split_at(length);
        *rest = left;
        taken
    }
    fn number(bytes: &[u8]) -> usize {
        bytes
            .iter()
            .fold(0, |number, byte| number << 8 | usize::from(*byte))
    }
    let mut rest = hello;
    take(&mut rest, 4 + 2 + 32);
    for width in [1, 2, 1] {
        let length = number(take(&mut rest, width));
        take(&mut rest, length);
    }
    let length = number(take(&mut rest, 2));
    assert_eq!(rest.len(), length);
    let mut found = Vec::new();
    while !rest.is_empty() {
        let kind = number(take(&mut rest, 2));
        let length = number(take(&mut rest, 2));
        found.push((kind.try_into().unwrap(), take(&mut rest, length).to_vec()));
    }
    found
}

#[test]
fn the_client_offers_nothing_but_the_contract() {
    let found = extensions(&client_hello(false));
    let body = |kind| {
        found
            .iter()
            .find(|(it, _)| *it == kind)
            .map(|(_, body)| body.as_slice())
    };
    assert_eq!(body(SUPPORTED_VERSIONS), Some([2, 0x03, 0x04].as_slice()));
    assert_eq!(body(SUPPORTED_GROUPS), Some([0, 2, 0x11, 0xec].as_slice()));
    assert_eq!(
        body(SIGNATURE_ALGORITHMS),
        Some([0, 2, 0x08, 0x07].as_slice())
    );
    for absent in [SERVER_NAME, PRE_SHARED_KEY, EARLY_DATA] {
        assert_eq!(body(absent), None, "extension {absent}");
    }
    let found = extensions(&client_hello(true));
    let groups = found.iter().find(|(kind, _)| *kind == SUPPORTED_GROUPS);
    assert_eq!(groups.unwrap().1, [0, 4, 0x11, 0xec, 0x00, 0x1d]);
}

fn code(result: Result<bool, TransportError>) -> u64 {
    result.expect_err("refused").code.into()
}

#[test]
fn a_client_of_tls_1_2_is_refused() {
    let hello = one_version_lower(client_hello(false), OFFERS_13);
    assert_eq!(code(server().read_handshake(&hello)), PROTOCOL_VERSION);
}

#[test]
fn a_server_of_tls_1_2_is_refused() {
    let mut client = client(false);
    let mut hello = Vec::new();
    client.write_handshake(&mut hello);
    let mut server = server();
    server.read_handshake(&hello).unwrap();
    let mut answer = Vec::new();
    server
        .write_handshake(&mut answer)
        .expect("handshake keys follow the ServerHello");
    let answer = one_version_lower(answer, TAKES_13);
    assert_eq!(code(client.read_handshake(&answer)), PROTOCOL_VERSION);
}

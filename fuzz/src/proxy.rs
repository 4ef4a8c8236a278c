//! The front ends: SOCKS5, HTTP and opening segments.

use std::net::{IpAddr, SocketAddr};

use bentpipe_proto::opening::Opening;
use bentpipe_proto::packets::{Header, MTU};
use bentpipe_proto::proxy::associate::{Arrival, Associations, Outcome};
use bentpipe_proto::proxy::connect::MAX_HEAD;
use bentpipe_proto::proxy::forward::{self, Asked, Chunks};
use bentpipe_proto::proxy::socks5 as socks;

pub(crate) fn socks5(data: &[u8]) {
    if let Ok(Some(used)) = socks::decode_greeting(data) {
        assert!(used <= data.len() && used <= socks::MAX_MESSAGE);
    }
    match socks::decode_request(data) {
        Ok(Some((_, used))) => {
            assert!(used <= data.len() && used <= socks::MAX_MESSAGE);
            // What follows a message never changes how it is read, and a part of it is never enough.
            assert_eq!(
                socks::decode_request(&data[..used]),
                socks::decode_request(data)
            );
            assert_eq!(socks::decode_request(&data[..used - 1]), Ok(None));
        }
        Ok(None) => assert!(data.len() < socks::MAX_MESSAGE),
        Err(error) => drop(error.reply()),
    }
    if let Ok((destination, at)) = socks::decode_datagram(data) {
        assert!(at <= data.len() && at <= socks::MAX_DATAGRAM_HEAD && destination.port != 0);
        assert_eq!(socks::decode_datagram(&data[..at]), Ok((destination, at)));
        assert!(socks::decode_datagram(&data[..at - 1]).is_err());
    }
    associate(data);
}

/// Datagrams in a row, each after its length, of one application; what leaves for them is answered, as a hostile server may.
fn associate(data: &[u8]) {
    let now = crate::origin();
    let mut all = Associations::new(0, Vec::new());
    all.set_assigned(vec![[100, 96, 0, 2].into(), [1_u16; 8].into()]);
    let host = IpAddr::from([127, 0, 0, 1]);
    let Some(id) = all.open(now, host, None) else {
        return;
    };
    let mut rest = data;
    while let Some((&length, tail)) = rest.split_first() {
        let (datagram, tail) = tail.split_at(tail.len().min(usize::from(length)));
        let from = SocketAddr::new(host, 5000);
        match all.on_datagram(now, id, from, datagram, |_| true) {
            Outcome::Send(packet) => {
                assert!(packet.len() <= MTU && Header::parse(&packet).is_some());
            }
            Outcome::Resolve(name) => {
                let found = all.on_resolved(now, id, &name, Some([192, 0, 2, 1].into()));
                assert_eq!(found.len(), 1);
            }
            Outcome::Wait | Outcome::Drop(_) => {}
        }
        if let Arrival::Deliver(delivery) = all.on_packet(now, datagram) {
            assert_eq!((delivery.id, delivery.to), (id, from));
            assert!(socks::decode_datagram(&delivery.datagram).is_ok());
        }
        rest = tail;
    }
    all.close(id);
    assert!(all.is_empty());
}

pub(crate) fn socks5_seeds() -> Vec<Vec<u8>> {
    vec![
        b"\x05\x02\x00\x02".to_vec(),
        b"\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x50".to_vec(),
        b"\x05\x01\x00\x03\x0bexample.com\x01\xbb".to_vec(),
        [b"\x05\x01\x00\x04".as_slice(), &[0x20; 16], b"\x01\xbb"].concat(),
        b"\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00".to_vec(),
        b"\0\0\0\x01\x0a\x00\x00\x01\x00\x35query".to_vec(),
        b"\x0f\0\0\0\x01\x0a\x00\x00\x01\x00\x35query\x14\0\0\0\x03\x0bexample.com\x00\x357"
            .to_vec(),
    ]
}

pub(crate) fn connect(data: &[u8]) {
    match forward::decode(data) {
        Ok(Some((asked, used))) => {
            assert!(used <= data.len() && used <= MAX_HEAD);
            assert_eq!(forward::decode(&data[..used]), forward::decode(data));
            if let Asked::Forward(request) = asked {
                // What goes on to the origin is one head and no more.
                let end = request
                    .head
                    .windows(4)
                    .position(|bytes| bytes == b"\r\n\r\n");
                assert_eq!(end, Some(request.head.len() - 4));
                let rest = &data[used..];
                let _ = forward::decode_response(rest, &request);
                chunks(rest);
            }
        }
        Ok(None) => assert!(data.len() < MAX_HEAD),
        Err(error) => drop(error.reply()),
    }
}

/// However a body of chunks is cut, it ends at the same place.
fn chunks(data: &[u8]) {
    let mut whole = Chunks::default();
    let taken = whole.take(data);
    let mut pieces = Chunks::default();
    let bytes = data.iter().try_fold(0, |sum, byte| {
        let more = pieces.take(std::slice::from_ref(byte))?;
        Some(sum + more)
    });
    assert_eq!(taken, bytes);
}

pub(crate) fn connect_seeds() -> Vec<Vec<u8>> {
    vec![
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n\x16\x03\x01".to_vec(),
        b"CONNECT [2001:db8::1]:443 HTTP/1.1\r\n\r\n".to_vec(),
        b"GET http://example.com/ HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nHTTP/1.1 101 S\r\n\r\n".to_vec(),
        b"GET http://a:8080/?b HTTP/1.1\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc".to_vec(),
        b"POST http://a/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nA: b\r\n\r\n".to_vec(),
    ]
}

pub(crate) fn opening(data: &[u8]) {
    if let Some(opening) = Opening::decode(data) {
        assert_eq!(
            opening.source.is_ipv4(),
            opening.destination.is_ipv4(),
            "{opening:?}"
        );
    }
}

pub(crate) fn opening_seeds() -> Vec<Vec<u8>> {
    let segment = [
        0x80, 1, 0, 25, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0,
    ];
    let ipv4 = [
        0x45, 0, 0, 40, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 10, 0, 2, 10, 30, 0, 2,
    ];
    let mut ipv6 = vec![0x60, 0, 0, 0, 0, 20, 6, 64];
    ipv6.extend([0x20; 32]);
    vec![
        [ipv4.as_slice(), &segment].concat(),
        [ipv6.as_slice(), &segment].concat(),
    ]
}

//! A server without a key: answers a client's first packet with a CONNECTION_CLOSE of its own making, which anybody on the
//! path can do (RFC 9001 §5.2: keys of Initial packets are public).

use std::net::{SocketAddr, UdpSocket};

use rustls::Side;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::quic::{Keys, Version};

/// Length of the packet number, in bytes.
const NUMBER: usize = 4;

pub(crate) struct Forger(UdpSocket);

impl Forger {
    pub(crate) fn new(socket: UdpSocket) -> Self {
        Self(socket)
    }

    /// Answers the next Initial packet with CONNECTION_CLOSE.
    pub(crate) fn close(&self, code: u16, reason: &[u8]) {
        let mut buffer = [0; 2000];
        loop {
            let (length, client) = self.0.recv_from(&mut buffer).expect("a client");
            let packet = &buffer[..length];
            if packet[0] & 0xf0 == 0xc0 {
                let (theirs, ours) = connection_ids(packet);
                return self.send(client, theirs, ours, code, reason);
            }
        }
    }

    fn send(&self, to: SocketAddr, key: &[u8], client: &[u8], code: u16, reason: &[u8]) {
        let mut frame = vec![0x1c];
        frame.extend((0x4000 | code).to_be_bytes());
        frame.push(0);
        frame.extend((0x4000 | reason.len() as u16).to_be_bytes());
        frame.extend(reason);
        frame.resize(400, 0);
        let suite = TLS13_AES_128_GCM_SHA256.tls13().expect("of TLS 1.3");
        let quic = suite.quic.expect("for QUIC");
        let keys = Keys::initial(Version::V1, suite, quic, key, Side::Server).local;
        let mut packet = vec![0xc3, 0, 0, 0, 1, client.len() as u8];
        packet.extend(client);
        packet.extend([4, b'f', b'a', b'k', b'e', 0]);
        let length = NUMBER + frame.len() + keys.packet.tag_len();
        packet.extend((0x4000 | length as u16).to_be_bytes());
        let head = packet.len();
        packet.extend([0; NUMBER]);
        let tag = keys
            .packet
            .encrypt_in_place(0, &packet, &mut frame)
            .expect("a packet");
        packet.extend(&frame);
        packet.extend(tag.as_ref());
        let sample = packet[head + 4..][..keys.header.sample_len()].to_vec();
        let (start, number) = packet.split_at_mut(head);
        let (first, number) = (&mut start[0], &mut number[..NUMBER]);
        keys.header
            .encrypt_in_place(&sample, first, number)
            .expect("a sample");
        self.0.send_to(&packet, to).expect("sent");
    }
}

/// Destination and source connection ID of a packet with a long header.
fn connection_ids(packet: &[u8]) -> (&[u8], &[u8]) {
    let (length, rest) = (usize::from(packet[5]), &packet[6..]);
    let (destination, rest) = rest.split_at(length);
    (destination, &rest[1..][..usize::from(rest[0])])
}

//! Both ends, a PEP between them that has K2 alone, and who has neither.

mod bits;
mod copies;
mod segments;
mod vectors;

use bentpipe_proto::packets::write_checksums;
use bytes::BytesMut;
use zeroize::Zeroizing;

use super::*;
use crate::Exporter;

/// TCP's flags.
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;
const URG: u8 = 32;

/// Roots of association `count`, the same at both ends.
fn roots(count: u32) -> Roots {
    let exporter = Exporter::new(Zeroizing::new([count as u8; 32]));
    let [to_b, to_a] = [0x1000, 0x1001].map(|base| Spi::new(base + 2 * count).unwrap());
    Roots::derive(&exporter, count, &[7; 32], None, SpiPair { to_b, to_a })
}

/// Sender of A, receiver of B.
fn ends(roots: &Roots) -> (EndSender, EndReceiver) {
    (roots.end_a().0, roots.end_b().1)
}

/// Both halves of a PEP, in the direction to B.
fn pep(roots: &Roots) -> (HeaderReader, HeaderWriter) {
    let spi = roots.spis().to_b;
    let reader = HeaderReader::new(roots.header().clone(), spi, Toward::B);
    let writer = HeaderWriter::new(roots.header(), spi, Toward::B, Writer::FIRST_PEP);
    (reader, writer)
}

/// Inner TCP packet from port 51000 to 443, with its checksums.
#[derive(Clone)]
struct Segment {
    v6: bool,
    source_port: u16,
    sequence: u32,
    flags: u8,
    options: Vec<u8>,
    payload: Vec<u8>,
}

impl Segment {
    fn new(v6: bool, flags: u8, payload: &[u8]) -> Self {
        Self {
            v6,
            source_port: 51000,
            sequence: 0x0102_0304,
            flags,
            options: Vec::new(),
            payload: payload.to_vec(),
        }
    }

    fn options(mut self, options: &[u8]) -> Self {
        self.options = options.to_vec();
        self
    }

    fn port(mut self, port: u16) -> Self {
        self.source_port = port;
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut tcp = [self.source_port, 443].map(u16::to_be_bytes).concat();
        tcp.extend([self.sequence, 0x0a0b_0c0d].map(u32::to_be_bytes).concat());
        let words = (20 + self.options.len()) / 4;
        tcp.extend([(words << 4) as u8, self.flags, 0x20, 0, 0, 0, 0, 9]);
        tcp.extend_from_slice(&self.options);
        tcp.extend_from_slice(&self.payload);
        packet(self.v6, 6, &tcp)
    }
}

/// Inner packet with this transport, and its checksums.
fn packet(v6: bool, protocol: u8, transport: &[u8]) -> Vec<u8> {
    let mut out = if v6 {
        let mut head = vec![0x60, 0x12, 0x34, 0x56, 0, 0, protocol, 63];
        head[4..6].copy_from_slice(&(transport.len() as u16).to_be_bytes());
        head.extend((1..=32).chain([]));
        head
    } else {
        let mut head = vec![0x45, 0, 0, 0, 0x77, 0x88, 0x40, 0, 63, protocol, 0, 0];
        head[2..4].copy_from_slice(&(20 + transport.len() as u16).to_be_bytes());
        head.extend([192, 168, 1, 10, 192, 0, 2, 1]);
        head
    };
    out.extend_from_slice(transport);
    assert!(write_checksums(&mut out));
    out
}

/// Inner UDP packet.
fn datagram(v6: bool, payload: &[u8]) -> Vec<u8> {
    let words = [5353, 443, 8 + payload.len() as u16, 0].map(u16::to_be_bytes);
    packet(v6, 17, &[&words.concat(), payload].concat())
}

fn seal(sender: &mut EndSender, packet: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    sender.seal(packet, &mut out).expect("carried");
    out.to_vec()
}

/// What the receiver makes of a packet.
fn open(
    receiver: &mut EndReceiver,
    flows: &mut Flows,
    sealed: &[u8],
) -> Result<(Delivered, Vec<u8>), Discarded> {
    let mut out = vec![0xee; 3];
    let delivered = receiver.open(sealed, flows, &mut out)?;
    Ok((delivered, out))
}

/// What a receiver that has seen nothing yet makes of a packet to B.
fn fresh(roots: &Roots, sealed: &[u8]) -> Result<(Delivered, Vec<u8>), Discarded> {
    open(&mut roots.end_b().1, &mut Flows::default(), sealed)
}

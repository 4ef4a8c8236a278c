//! The cryptography of a client that is honest but for one thing: its ACK frames say that everything has arrived.

use std::any::Any;
use std::sync::Arc;

use bytes::BytesMut;
use quinn_proto::crypto::{
    ClientConfig, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey,
    Session,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError};

/// ACK frames without and with counts of ECN marks (RFC 9000 §19.3).
const ACK: [u8; 2] = [0x02, 0x03];

/// A client's configuration, forging.
pub(crate) struct Forger(pub(crate) Arc<dyn ClientConfig>);

impl ClientConfig for Forger {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let session = self.0.clone().start_session(version, server_name, params)?;
        Ok(Box::new(Forging { session, keys: 0 }))
    }
}

struct Forging {
    session: Box<dyn Session>,
    /// Sets of keys that were handed out: the second is that of 1-RTT packets.
    keys: u32,
}

impl Session for Forging {
    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let mut keys = self.session.write_handshake(buf)?;
        self.keys += 1;
        if self.keys == 2 {
            keys.packet.local = Box::new(ForgingKey(keys.packet.local));
        }
        Some(keys)
    }

    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        self.session.initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.session.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.session.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.session.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.session.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.session.read_handshake(buf)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.session.transport_parameters()
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let mut keys = self.session.next_1rtt_keys()?;
        keys.local = Box::new(ForgingKey(keys.local));
        Some(keys)
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.session.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.session.export_keying_material(output, label, context)
    }
}

struct ForgingKey(Box<dyn PacketKey>);

impl PacketKey for ForgingKey {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        let end = buf.len() - self.0.tag_len();
        if ACK.contains(&buf[header_len]) {
            fill_gaps(&mut buf[header_len..end]);
        }
        self.0.encrypt(packet, buf, header_len);
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.0.decrypt(packet, header, payload)
    }

    fn tag_len(&self) -> usize {
        self.0.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.0.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.0.integrity_limit()
    }
}

/// The width of the number that begins with `byte` (RFC 9000 §16).
fn width(byte: u8) -> usize {
    1 << (byte >> 6)
}

/// Leaves one range, from the largest packet to the first, and PADDING in place of the others and of the ECN counts.
fn fill_gaps(payload: &mut [u8]) {
    let delay = 1 + width(payload[1]);
    let largest = payload[1..delay].to_vec();
    let count = delay + width(payload[delay]);
    let more = payload[count];
    assert!(more < 0x40, "fewer ranges than that");
    let ecn = if payload[0] == ACK[1] { 3 } else { 0 };
    let numbers = 2 + 2 * usize::from(more) + ecn;
    let end = (0..numbers).fold(count, |at, _| at + width(payload[at]));
    let first = count + 1..count + 1 + largest.len();
    // There is room if there was a second range.
    if more > 0 {
        payload[0] = ACK[0];
        payload[count..end].fill(0);
        payload[first].copy_from_slice(&largest);
    }
}

//! Which key exchanges are offered, and which one a connection used.
//!
//! quinn-proto does not tell the negotiated group (outside a private feature, which panics for a peer that needs a
//! HelloRetryRequest). So each group notes its name when it completes, and the session takes the note: within one
//! call on one thread, hence never another connection's.

use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;

use quinn_proto::crypto::{
    ClientConfig, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, ServerConfig,
    Session, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError};
use rustls::crypto::aws_lc_rs::kx_group;
use rustls::crypto::{ActiveKeyExchange, CompletedKeyExchange, SharedSecret, SupportedKxGroup};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, ProtocolVersion};

static HYBRID: Noting = Noting(kx_group::X25519MLKEM768);
static CLASSICAL: Noting = Noting(kx_group::X25519);

/// The key exchanges to offer and accept, best first.
pub(super) fn groups(allow_classical: bool) -> Vec<&'static dyn SupportedKxGroup> {
    if allow_classical {
        vec![&HYBRID, &CLASSICAL]
    } else {
        vec![&HYBRID]
    }
}

thread_local! {
    /// The group of the last key exchange that this thread completed.
    static COMPLETED: Cell<Option<NamedGroup>> = const { Cell::new(None) };
}

/// A group that notes when it was used.
#[derive(Debug)]
struct Noting(&'static dyn SupportedKxGroup);

impl SupportedKxGroup for Noting {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        Ok(Box::new(Started(self.0.start()?)))
    }

    fn start_and_complete(&self, peer: &[u8]) -> Result<CompletedKeyExchange, Error> {
        let completed = self.0.start_and_complete(peer)?;
        COMPLETED.set(Some(completed.group));
        Ok(completed)
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        self.0.ffdhe_group()
    }

    fn name(&self) -> NamedGroup {
        self.0.name()
    }

    fn fips(&self) -> bool {
        self.0.fips()
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        self.0.usable_for_version(version)
    }
}

/// A client's key exchange between its two messages.
struct Started(Box<dyn ActiveKeyExchange>);

impl ActiveKeyExchange for Started {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        let group = self.0.group();
        let secret = self.0.complete(peer)?;
        COMPLETED.set(Some(group));
        Ok(secret)
    }

    fn hybrid_component(&self) -> Option<(NamedGroup, &[u8])> {
        self.0.hybrid_component()
    }

    fn complete_hybrid_component(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        let group = self.0.hybrid_component().map(|(group, _)| group);
        let secret = self.0.complete_hybrid_component(peer)?;
        COMPLETED.set(group);
        Ok(secret)
    }

    fn pub_key(&self) -> &[u8] {
        self.0.pub_key()
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        self.0.ffdhe_group()
    }

    fn group(&self) -> NamedGroup {
        self.0.group()
    }
}

/// The `handshake_data` of our sessions.
pub(super) struct KeyExchange(pub(super) NamedGroup);

/// A TLS configuration whose sessions know their key exchange.
pub(super) struct Recording<C>(pub(super) Arc<C>);

impl<C: ClientConfig> ClientConfig for Recording<C> {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let session = self.0.clone().start_session(version, server_name, params)?;
        Ok(Box::new(RecordingSession {
            session,
            used: None,
        }))
    }
}

impl<C: ServerConfig> ServerConfig for Recording<C> {
    fn initial_keys(
        &self,
        version: u32,
        dst_cid: &ConnectionId,
    ) -> Result<Keys, UnsupportedVersion> {
        self.0.initial_keys(version, dst_cid)
    }

    fn retry_tag(&self, version: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.0.retry_tag(version, orig_dst_cid, packet)
    }

    fn start_session(
        self: Arc<Self>,
        version: u32,
        params: &TransportParameters,
    ) -> Box<dyn Session> {
        let session = self.0.clone().start_session(version, params);
        Box::new(RecordingSession {
            session,
            used: None,
        })
    }
}

struct RecordingSession {
    session: Box<dyn Session>,
    used: Option<NamedGroup>,
}

impl Session for RecordingSession {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        self.session.initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.used
            .map(|group| Box::new(KeyExchange(group)) as Box<dyn Any>)
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
        COMPLETED.set(None);
        let result = self.session.read_handshake(buf);
        self.used = COMPLETED.take().or(self.used);
        result
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.session.transport_parameters()
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        self.session.write_handshake(buf)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.session.next_1rtt_keys()
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

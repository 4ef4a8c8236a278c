//! What a tunnel reports: news, faults of the peer, counters.

use std::ops::AddAssign;

use bentpipe_proto::relay::CreditExceeded;
use bentpipe_proto::tunnel::{
    CloseCode, DecodeError, ENROL_KEY, EnrolCode, EpochRandom, Inbound, LesBody, LesKind, Open,
    Publish, PublishCode, ReplyCode, VERSION,
};
use bytes::Bytes;
use thiserror::Error;

use super::key::{FlowKey, QueryKey};

/// Event that the shell has to act on.
#[derive(Debug)]
pub enum TunnelEvent {
    /// The peer's HELLO arrived: flows may be opened.
    Ready,
    /// The peer opened a flow (server only); answer with [`super::Tunnel::reply`].
    Opened(FlowKey, Box<Open>),
    /// A connection to a published port has come (client only); answer with [`super::Tunnel::reply`].
    Inbound(FlowKey, Box<Inbound>),
    /// The peer opened a flow for the segments of a TCP connection; answer with [`super::Tunnel::reply`].
    Segments(FlowKey),
    /// The client asks for a port (server only); answer with [`super::Tunnel::published`].
    Publish(Publish),
    /// Outcome of a port that this side has asked for, by its number (client only).
    Published(u64, PublishCode),
    /// A client with an enrolment key names its own (server only); answer with [`super::Tunnel::enrolled`].
    Enrol([u8; ENROL_KEY]),
    /// What came of the key that this side has named, and since when its enrolment key is void, seconds since 1970 (client
    /// only).
    Enrolled(EnrolCode, u64),
    /// Something changed for this flow's LAN side: look at [`super::Tunnel::incoming`], [`super::Tunnel::capacity`].
    Flow(FlowKey),
    /// A DNS query (server only); answer with the connection's `answer`.
    Query(QueryKey, Bytes),
    /// The answer to a query (client only); `None`: there will be none.
    Answer(QueryKey, Option<Bytes>),
    /// Packets have come: take them with [`super::Tunnel::take_packet`].
    Packets,
    /// The server reaches other address families than before (client only): [`super::Agreement::remote`] says which.
    Families,
    /// Next epoch of SLE (server only), or the word that the server has begun it (client only). The last, 65,535, is the
    /// server's word that nothing more is to be sealed, unless the client has asked for that epoch.
    SleEpoch(u16, Option<EpochRandom>),
    /// Message of LES: Q1 and Q3 at a server, Q2 at a client.
    Les(LesKind, LesBody),
    /// The peer drains: it opens no more flows, and takes none.
    Goaway,
}

/// The peer broke the protocol; the tunnel must be closed with [`Fault::code`].
#[derive(Debug, Error)]
pub enum Fault {
    /// A frame or header that cannot be decoded.
    #[error("peer sent a malformed frame: {0}")]
    Malformed(#[from] DecodeError),
    /// More data than our credit allowed.
    #[error(transparent)]
    Credit(#[from] CreditExceeded),
    /// Something that this protocol never allows at that point.
    #[error("peer broke the protocol: {0}")]
    Violation(&'static str),
    /// A version that we do not speak.
    #[error("peer speaks version {0} of the tunnel protocol, we speak {VERSION}")]
    Version(u64),
}

impl Fault {
    /// The code for CONNECTION_CLOSE.
    pub fn code(&self) -> CloseCode {
        match self {
            Self::Malformed(_) | Self::Violation(_) => CloseCode::ProtocolViolation,
            Self::Credit(_) => CloseCode::CreditExceeded,
            Self::Version(_) => CloseCode::VersionUnsupported,
        }
    }
}

/// Reason why a flow cannot be opened now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum OpenError {
    /// No HELLO yet, or the connection is closing.
    #[error("the tunnel is not ready")]
    NotReady,
    /// The peer's limit on flows is reached.
    #[error("the peer's limit on flows is reached")]
    LimitReached,
    /// The peer drains.
    #[error("the peer is shutting down")]
    Draining,
}

/// Counters for `status`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct TunnelStats {
    /// Flows opened so far.
    pub opened: u64,
    /// Flows that could not be connected.
    pub refused: u64,
    /// Refusals by cause.
    pub refusals: Refusals,
    /// Payload bytes taken from the LAN side.
    pub lan_in: u64,
    /// Payload bytes given to the LAN side.
    pub lan_out: u64,
    /// Flows reset because the tunnel was at its memory ceiling.
    pub shed: u64,
    /// Bytes written into streams.
    pub sent: Carried,
    /// Bytes that came in streams.
    pub(crate) received: Carried,
}

/// Flows that could not be connected, by cause.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Refusals {
    /// The server's policy forbids the destination.
    pub denied: u64,
    /// The destination refused.
    pub refused: u64,
    /// No route, or no answer in time.
    pub unreachable: u64,
    /// The name does not exist, or nobody could tell.
    pub name: u64,
    /// A limit on flows was reached.
    pub limit: u64,
    /// The server has no route of the address family.
    pub family: u64,
    /// Anything else.
    pub other: u64,
}

impl Refusals {
    /// Counts one flow that ended with `code`.
    pub(super) fn count(&mut self, code: ReplyCode) {
        *match code {
            ReplyCode::Ok => return,
            ReplyCode::Denied => &mut self.denied,
            ReplyCode::Refused => &mut self.refused,
            ReplyCode::NetworkUnreachable | ReplyCode::HostUnreachable | ReplyCode::TimedOut => {
                &mut self.unreachable
            }
            ReplyCode::NameNotFound => &mut self.name,
            ReplyCode::LimitReached => &mut self.limit,
            ReplyCode::FamilyUnsupported => &mut self.family,
            ReplyCode::Internal | ReplyCode::Draining => &mut self.other,
        } += 1;
    }
}

impl AddAssign for Refusals {
    fn add_assign(&mut self, other: Self) {
        self.denied += other.denied;
        self.refused += other.refused;
        self.unreachable += other.unreachable;
        self.name += other.name;
        self.limit += other.limit;
        self.family += other.family;
        self.other += other.other;
    }
}

impl AddAssign for TunnelStats {
    fn add_assign(&mut self, other: Self) {
        self.opened += other.opened;
        self.refused += other.refused;
        self.refusals += other.refusals;
        self.lan_in += other.lan_in;
        self.lan_out += other.lan_out;
        self.shed += other.shed;
        self.sent += other.sent;
        self.received += other.received;
    }
}

impl AddAssign for Carried {
    fn add_assign(&mut self, other: Self) {
        self.flows += other.flows;
        self.dns += other.dns;
        self.packets += other.packets;
        self.repairs += other.repairs;
        self.trains += other.trains;
        self.control += other.control;
    }
}

/// Bytes in streams, each counted once however often it crossed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Carried {
    /// Of flows, with OPEN and REPLY.
    pub flows: u64,
    /// Of queries.
    pub dns: u64,
    /// Frames of packets.
    pub packets: u64,
    /// Frames of repairs.
    pub repairs: u64,
    /// Frames of trains, of which the engine knows.
    pub trains: u64,
    /// Of the control stream.
    pub control: u64,
}

//! Status report of a running daemon: one document, as JSON for programs and as text for people.
//!
//! ```text
//! daemon: snapshot() ──► StatusSocket ═ unix stream, one JSON document per connection ═► query() ──► StatusReport
//! ```
//!
//! Names carry their units. Fields may be added within schema 1; none is renamed or removed.

mod associations;
mod daemon;
mod dns;
mod event;
mod flows;
mod format;
mod health;
mod history;
mod les;
mod measured;
mod metering;
mod origin;
mod packets;
mod publish;
mod screen;
mod segments;
mod sle;
mod socket;
mod text;
mod tls_entrance;
mod tunnel;
mod web;

#[cfg(test)]
pub(crate) mod tests;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use format::{quantity, rate, size, span};

pub use associations::{AssociationDrops, Associations};
pub use daemon::{KernelRepair, RuleStatus, SandboxStatus};
pub use dns::Dns;
pub(crate) use event::Events;
pub use event::{Event, EventLevel};
pub use flows::{Flows, Refused, Volumes};
pub(crate) use history::{Curves, History, Sample};
pub use les::{Les, LesDropped, LesPepStatus, LesRefused};
pub use measured::{FILE as MEASURED_FILE, Measured};
pub use metering::Metering;
pub use origin::{OriginCertificate, OriginFigures, OriginRefused, OriginWebServer};
pub use packets::{PacketDrops, PacketKinds, PacketRefusals, Packets};
pub(crate) use publish::publish_refusal;
pub use publish::{PublishState, PublishStatus};
pub use screen::{Blocks, Screen};
pub use segments::{PepKeys, PepSide, Segments, SegmentsPassed, SegmentsRefused, SegmentsReset};
pub use sle::{Sle, SleRefused};
pub use socket::{Found, QueryError, SocketError, StatusSocket, query};
#[cfg(target_os = "linux")]
pub(crate) use socket::{on_closed_files, run_directories};
pub use tls_entrance::{TlsEntrance, TlsRefused};
pub(crate) use tunnel::is_heard_in_silence;
pub use tunnel::{
    Acks, ClassSource, Families, LinkClass, Receiving, Repairs, Sending, Tunnel, TunnelState,
    WireKind,
};
pub use web::{ObjectsFailed, PagesAhead, PagesBounded, SealedPages};

use crate::config::{Role, Transport};
use bentpipe_tunnel::engine::Ledger;
use bentpipe_tunnel::transport::MemoryPool;

/// Version of the document's schema.
pub const SCHEMA: u32 = 1;

/// The state of one daemon at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusReport {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of the program.
    pub version: String,
    /// Process id, in the daemon's own PID namespace.
    pub pid: u32,
    /// Seconds since the daemon started.
    pub uptime_s: u64,
    /// The configuration it runs on.
    pub config_file: PathBuf,
    /// Carrier of the connections; absent at an origin, which has no tunnel and splits nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// Rights that the daemon has given up; absent while it holds all that it was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxStatus>,
    /// Decisions of a client's rules with an `action`, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleStatus>,
    /// Parts of the kernel's state that others took away and that were put back, since the daemon started, and those that cannot be
    /// changed at present.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel: Vec<KernelRepair>,
    /// The last events, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// Memory of all tunnels of the daemon together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_tunnels_memory: Option<Memory>,
    /// Figures that depend on the role; these fields stand beside the ones above, with `"role"` telling which they are.
    #[serde(flatten)]
    pub side: Side,
}

/// Milliseconds of `span`, to the microsecond, as reports have them.
pub(crate) fn milliseconds(span: Duration) -> f64 {
    span.as_micros() as f64 / 1e3
}

impl StatusReport {
    /// The report of this process and program version.
    #[must_use]
    pub fn new(config_file: PathBuf, uptime_s: u64, side: Side) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self {
            schema: SCHEMA,
            version,
            pid: std::process::id(),
            uptime_s,
            config_file,
            transport: (!matches!(side, Side::Origin { .. })).then_some(Transport::Quic),
            sandbox: None,
            rules: Vec::new(),
            kernel: Vec::new(),
            events: Vec::new(),
            all_tunnels_memory: None,
            side,
        }
    }

    /// True unless the daemon is sure to run on another file than `file`.
    pub(crate) fn runs_on(&self, file: &Path) -> bool {
        let of_daemon = fs::canonicalize(&self.config_file).ok();
        let both = of_daemon.zip(fs::canonicalize(file).ok());
        both.is_none_or(|(of_daemon, own)| of_daemon == own)
    }

    /// The document for programs: indented JSON without a newline at the end.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report has string keys only")
    }

    /// End of the tunnel that reports.
    #[must_use]
    pub fn role(&self) -> Role {
        match self.side {
            Side::Client(_) => Role::Client,
            Side::Server { .. } => Role::Server,
            Side::Pep(_) => Role::Pep,
            Side::Origin { .. } => Role::Origin,
        }
    }
}

/// Figures that depend on the role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum Side {
    /// A client has one tunnel.
    Client(Box<Session>),
    /// A server has a tunnel for every client that is connected.
    Server {
        /// UDP addresses served.
        listen: Vec<SocketAddr>,
        /// TCP addresses that take TLS connections in place of UDP.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        listen_tls: Vec<SocketAddr>,
        /// TCP addresses that take flows which clients seal beside their tunnels.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        listen_sle: Vec<SocketAddr>,
        /// UDP addresses that take packets which clients seal beside their tunnels.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        listen_les: Vec<SocketAddr>,
        /// Address families that this machine has a route of.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        families: Option<Families>,
        /// Packets of clients that are not carried, why, and the mend; absent where all are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        packets_limited: Option<String>,
        /// Flows of all clients that are sealed beside their tunnels, if it takes some.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sle: Option<Box<Sle>>,
        /// Packets sealed beside tunnels that came and belong to no client, if it takes some.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        les: Option<LesRefused>,
        /// Connections to the TCP addresses that take TLS, if there are some.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tls: Option<Box<TlsEntrance>>,
        /// The clients that are connected.
        clients: Vec<ClientStatus>,
    },
    /// An operator's PEP has one tunnel, to another PEP.
    Pep(Box<PepSide>),
    /// An origin of DSSL has no tunnel.
    Origin {
        /// TCP addresses served.
        listen: Vec<SocketAddr>,
        /// Connections and objects.
        origin: Box<OriginFigures>,
    },
}

/// One client as its server sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientStatus {
    /// Name of the client in the configuration.
    pub name: String,
    /// Number of the thread that its tunnel lives on, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<u8>,
    /// Tunnel of the client and what crosses it.
    #[serde(flatten)]
    pub session: Session,
}

impl ClientStatus {
    /// Rate of both directions together, bit/s.
    #[must_use]
    pub fn rate_bit_s(&self) -> u64 {
        let tunnel = &self.session.tunnel;
        tunnel.send_rate_bit_s + tunnel.recv_rate_bit_s
    }
}

/// A tunnel and what crosses it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// The tunnel itself.
    pub tunnel: Tunnel,
    /// TCP connections.
    pub flows: Flows,
    /// Volumes: at a client since the daemon started, at a server since the tunnel began.
    pub bytes: Volumes,
    /// Buffered data.
    pub memory: Memory,
    /// Ledger of what the bytes on the link were for: at a client since the daemon started, at a server since the tunnel began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger_bytes: Option<Ledger>,
    /// Cost of the bytes, where a price or a cap is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metering: Option<Metering>,
    /// Result of the last `bentpipe measure`, at a client, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// DNS that this client answers, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<Dns>,
    /// IP packets that cross, where that is agreed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<Packets>,
    /// Datagrams of SOCKS5 applications, where there may be some (client).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub associations: Option<Associations>,
    /// Ports of the server that lead to hosts behind the client.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub publish: Vec<PublishStatus>,
    /// Flows that are sealed beside the tunnel, if some are to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sle: Option<Sle>,
    /// Packets that are sealed beside the tunnel, if some are to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub les: Option<Les>,
    /// Pages whose objects are fetched ahead, if some are to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub web: Option<PagesAhead>,
}

impl Session {
    /// Bytes on the link, received and sent: IP packets whole where that is counted.
    #[must_use]
    pub fn crossed(&self) -> [u64; 2] {
        match &self.ledger_bytes {
            Some(ledger) => [ledger.received.total(), ledger.sent.total()],
            None => [self.bytes.wire_in, self.bytes.wire_out],
        }
    }
}

/// Buffered data of a tunnel in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Held now.
    pub used: u64,
    /// Never exceeded.
    pub ceiling: u64,
}

impl Memory {
    /// As a pool has it.
    pub(crate) fn of(pool: &MemoryPool) -> Self {
        Self {
            used: pool.used(),
            ceiling: pool.ceiling(),
        }
    }
}

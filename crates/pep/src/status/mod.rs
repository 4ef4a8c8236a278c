//! What a running daemon tells about itself: one document, as JSON for programs and as text for people.
//!
//! ```text
//! daemon: snapshot() ──► StatusSocket ═ unix stream, one JSON document per connection ═► query() ──► StatusReport
//! ```
//!
//! Names carry their units. Fields may be added within schema 1; none is renamed or removed.

mod associations;
mod event;
mod health;
mod history;
mod publish;
mod screen;
mod socket;
mod text;

#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub(crate) use text::{quantity, rate, size};

pub use associations::{AssociationDrops, Associations};
pub(crate) use event::Events;
pub use event::{Event, EventLevel};
pub(crate) use history::{Curves, History, Sample};
pub use publish::{PublishState, PublishStatus};
pub use screen::{Blocks, Screen};
#[cfg(target_os = "linux")]
pub(crate) use socket::run_directories;
pub use socket::{Found, QueryError, SocketError, StatusSocket, query};

use crate::config::{Action, Period, Role, Transport};
use bentpipe_tunnel::engine::{Ledger, Profile};
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
    /// What carries the connections.
    #[serde(default)]
    pub transport: Transport,
    /// What the daemon has given up; absent while it holds all that it was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxStatus>,
    /// What a client's rules with an `action` have decided on, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleStatus>,
    /// Parts of the kernel's state that others took away and that were put back, since the daemon started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel: Vec<KernelRepair>,
    /// The last events, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// Memory of all tunnels of the daemon together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_tunnels_memory: Option<Memory>,
    /// What depends on the role; its fields stand beside the ones above, with `"role"` telling which they are.
    #[serde(flatten)]
    pub side: Side,
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
            transport: Transport::Quic,
            sandbox: None,
            rules: Vec::new(),
            kernel: Vec::new(),
            events: Vec::new(),
            all_tunnels_memory: None,
            side,
        }
    }

    /// The document for programs: indented JSON without a newline at the end.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report has string keys only")
    }

    /// Which end of the tunnel reports.
    #[must_use]
    pub fn role(&self) -> Role {
        match self.side {
            Side::Client(_) => Role::Client,
            Side::Server { .. } => Role::Server,
        }
    }
}

/// What holds for a daemon that has entered its sandbox, and for the programs that it starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxStatus {
    /// The capabilities that are left, such as `net_admin`.
    pub capabilities: Vec<String>,
    /// Whether no program that is started can gain privileges.
    pub no_new_privs: bool,
    /// How far the file system is closed by Landlock: `enforced`, `partly` or `unavailable`, as the kernel has it.
    pub files: String,
}

/// What one rule has decided on since the client started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleStatus {
    /// Its place among the `[[rule]]` of the file, from 1.
    pub rule: usize,
    /// What it says.
    pub action: Action,
    /// Packets of intercepted traffic, as they came in; at most a few seconds old.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: u64,
    /// Connections of proxies.
    pub connections: u64,
}

/// A part of the kernel's state that others took away or changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelRepair {
    /// Its name, such as `table inet bentpipe_client`.
    pub part: String,
    /// Times that it was put back.
    pub repairs_total: u64,
    /// Seconds since the last attempt to put it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_s: Option<u64>,
    /// The process that changed it last, as far as the kernel tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_by: Option<String>,
    /// How it differs now, or why it cannot be put back; absent while it is as it should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// What depends on the role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum Side {
    /// A client has one tunnel.
    Client(Box<Session>),
    /// A server has a tunnel for every client that is connected.
    Server {
        /// UDP addresses served.
        listen: Vec<SocketAddr>,
        /// Address families that this machine has a route of.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        families: Option<Families>,
        /// The clients that are connected.
        clients: Vec<ClientStatus>,
    },
}

/// One client as its server sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientStatus {
    /// Its name in the configuration.
    pub name: String,
    /// Number of the thread that its tunnel lives on, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<u8>,
    /// Its tunnel and what crosses it.
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
    /// What the bytes on the link were for: at a client since the daemon started, at a server since the tunnel began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger_bytes: Option<Ledger>,
    /// What they cost, where a price or a cap is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metering: Option<Metering>,
    /// DNS that this client answers, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<Dns>,
    /// What crosses as IP packets, where that is agreed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<Packets>,
    /// Datagrams of SOCKS5 applications, where there may be some (client).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub associations: Option<Associations>,
    /// Ports of the server that lead to hosts behind the client.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub publish: Vec<PublishStatus>,
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

/// Bytes on the link in both directions, IP packets whole, in the present period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metering {
    /// What is counted as one: a month, a day or the time since the daemon started.
    #[serde(default)]
    pub period: Period,
    /// Used so far.
    pub used_bytes: u64,
    /// Most that may be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_bytes: Option<u64>,
    /// Price of what was used, in the currency of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// The cap is reached.
    pub used_up: bool,
}

/// DNS answered at the terminal; totals since the daemon started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dns {
    /// Queries of hosts.
    pub queries_total: u64,
    /// Of these, answered at once.
    pub local_total: u64,
    /// Of these, answered with what was past its TTL.
    pub stale_total: u64,
    /// Of these, answered with a failure.
    pub failed_total: u64,
    /// Questions that crossed the link, prefetched ones among them.
    pub asked_total: u64,
    /// Questions asked before the answer at hand had expired.
    pub prefetched_total: u64,
    /// Answers withheld for a private address in them.
    #[serde(default)]
    pub withheld_total: u64,
    /// Questions given up for those of hosts that had fewer under way.
    #[serde(default)]
    pub evicted_total: u64,
    /// Answers in the cache now.
    pub cached_answers: u64,
    /// Memory of the cache now, bytes.
    pub cached_bytes: u64,
}

/// IP packets of this tunnel: all but TCP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packets {
    /// The client's addresses in the tunnel.
    pub assigned: Vec<IpAddr>,
    /// Prefixes behind the client that are routed as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routed: Vec<IpNet>,
    /// Prefixes that are to be, and the server does not route (client).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unrouted: Vec<IpNet>,
    /// Which the server carries.
    #[serde(default)]
    pub carried: PacketKinds,
    /// Sockets that stand for addresses and ports of the client (server without a device).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mappings: Option<u64>,
    /// Packets sent into the tunnel.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets that came out of it.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Marked "congestion experienced" instead of dropped.
    pub marked: u64,
    /// What did not cross, by cause.
    pub dropped: PacketDrops,
}

/// Which packets a server carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PacketKinds {
    /// All of IP.
    #[default]
    All,
    /// UDP and ICMP echo, for want of a device.
    UdpAndEcho,
    /// UDP alone: it may not ping either.
    Udp,
}

/// Packets that did not cross, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketDrops {
    /// Waited too long for the link.
    pub age: u64,
    /// Taken by CoDel, for their flow to slow down.
    pub codel: u64,
    /// No room in the queue, or faster than the device or a socket takes them.
    pub overflow: u64,
    /// Pieces whose other pieces the link has lost.
    pub incomplete: u64,
    /// No tunnel (client).
    pub no_tunnel: u64,
    /// No IP packets.
    pub malformed: u64,
    /// From addresses that are not the client's (server).
    pub spoofed: u64,
    /// To destinations that the client may not reach (server).
    pub policy: u64,
    /// More in a second than the client may send (server).
    #[serde(default)]
    pub limit: u64,
    /// Of kinds that the server cannot carry (server without a device).
    #[serde(default)]
    pub unsupported: u64,
}

/// Packets of a client that its server did not let pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketRefusals {
    /// No IP packets.
    pub malformed: u64,
    /// From addresses that are not the client's.
    pub spoofed: u64,
    /// To destinations that the client may not reach.
    pub policy: u64,
    /// More in a second than the client may send.
    pub limit: u64,
}

/// State of a tunnel; what is not known yet is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tunnel {
    /// Where it stands.
    pub state: TunnelState,
    /// Address of the other end, as `IP:PORT` or, unresolved, `NAME:PORT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Seconds in this state.
    pub since_s: u64,
    /// Seconds since the other end was last heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heard_s: Option<u64>,
    /// Seconds until the next attempt to reach a server, while one is wanted (client).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_s: Option<u64>,
    /// Why the last attempt or session ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Smoothed RTT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<f64>,
    /// Lowest RTT of this connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rtt_ms: Option<f64>,
    /// Sent in the last second, bit/s at the IP layer.
    pub send_rate_bit_s: u64,
    /// Received in the last second, bit/s at the IP layer.
    pub recv_rate_bit_s: u64,
    /// Packets lost of those sent in this connection, 0 to 1.
    pub loss_ratio: f64,
    /// Congestion window in bytes.
    pub window_bytes: u64,
    /// Rate the controller paces at, bit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pacing_rate_bit_s: Option<u64>,
    /// Rate known from an earlier connection over this path that the controller goes by, bit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_rate_bit_s: Option<u64>,
    /// Key exchange agreed on, by its TLS name, such as `X25519MLKEM768`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_exchange: Option<String>,
    /// Largest UDP payload that the path takes, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// What the link was taken for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkClass>,
    /// How this end sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sending: Option<Sending>,
    /// How the other end sends, as far as it has said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiving: Option<Receiving>,
    /// Address families that the server reaches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub families: Option<Families>,
    /// Losses repaired without retransmission, in both directions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fec: Option<Repairs>,
}

impl Tunnel {
    /// Rates that the ways out and in are believed to have, bit/s: as measured, else as sold, and no more than is allowed. An
    /// end measures its own way out.
    #[must_use]
    pub fn capacities(&self) -> (Option<u64>, Option<u64>) {
        let allowed = |known: Option<u64>, most: Option<u64>| match (known, most) {
            (Some(known), Some(most)) => Some(known.min(most)),
            (known, most) => known.or(most),
        };
        let send = self.sending.as_ref().and_then(|sending| {
            let known = sending.bottleneck_rate_bit_s.or(sending.rate_bit_s);
            allowed(known, sending.max_rate_bit_s)
        });
        let receive = self
            .receiving
            .as_ref()
            .and_then(|receiving| allowed(receiving.rate_bit_s, receiving.max_rate_bit_s));
        (send, receive)
    }
}

/// What was repaired in this connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Repairs {
    /// Repairs sent, and what left a second time as a precaution: voice, handshakes, requests, DNS.
    pub sent_bytes: u64,
    /// Their share of all bytes sent, 0 to 1.
    pub overhead_ratio: f64,
    /// Repairs received, without such copies.
    pub received_bytes: u64,
    /// Bytes of streams that they mended.
    pub recovered_bytes: u64,
    /// Repairs received that were not needed.
    pub wasted_bytes: u64,
}

/// What a link was taken for when the tunnel began, and why.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkClass {
    /// The profile configured, or that the client has hinted at.
    pub profile: Profile,
    /// The class in force; `auto` while it is unknown.
    pub class: Profile,
    /// Where that comes from.
    pub source: ClassSource,
    /// The RTT that it rests on, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<f64>,
    /// The class that was measured meanwhile, if it is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_class: Option<Profile>,
}

/// Where the class of a link comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClassSource {
    /// The configuration.
    Configured,
    /// An earlier connection over the same path.
    Remembered,
    /// This connection's handshake.
    Measured,
    /// The client's first packet (server).
    Hinted,
    /// Nowhere yet.
    Unknown,
}

/// Sending over the link; rates in bit/s.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sending {
    /// Congestion controller.
    pub controller: String,
    /// Rate it paces at, UDP payload.
    pub pacing_rate_bit_s: u64,
    /// Congestion window.
    pub window_bytes: u64,
    /// Sent and neither acknowledged nor lost.
    pub in_flight_bytes: u64,
    /// What the path was measured to deliver, UDP payload; absent until it was used enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bottleneck_rate_bit_s: Option<u64>,
    /// Lowest RTT of this connection.
    pub min_rtt_ms: f64,
    /// Packets lost of those sent, 0 to 1.
    pub loss_ratio: f64,
    /// Datagrams sent a second time, beyond the retransmissions of what was lost.
    #[serde(default)]
    pub repeated_datagrams: u64,
    /// Highest rate allowed, IP layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rate_bit_s: Option<u64>,
    /// Rate that was sold, IP layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bit_s: Option<u64>,
    /// When the other end was asked to acknowledge.
    pub acks: Acks,
}

/// The other end's sending; rates in bit/s at the IP layer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Receiving {
    /// Congestion controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// Highest rate allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rate_bit_s: Option<u64>,
    /// Rate that was sold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bit_s: Option<u64>,
    /// When this end was asked to acknowledge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acks: Option<Acks>,
}

/// When to acknowledge: whichever comes first.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Acks {
    /// After so many packets.
    pub packets: u64,
    /// After this time, or one RTT.
    pub delay_ms: f64,
}

/// Where a tunnel stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TunnelState {
    /// Not up; a client is trying, a server is waiting.
    #[default]
    Connecting,
    /// HELLO received; flows cross.
    Ready,
    /// There is a tunnel, and an answer of the other end is overdue.
    Silent,
    /// The other end does not know this key; a client keeps trying.
    Refused,
    /// Stopping; open flows may end, no new ones start.
    Draining,
}

/// TCP connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flows {
    /// Open now.
    pub active: u64,
    /// Opened so far: at a client since the daemon started, at a server since the tunnel began.
    pub opened_total: u64,
    /// Refused so far, likewise.
    pub refused_total: u64,
    /// The same by cause.
    #[serde(default)]
    pub refused: Refused,
    /// Waiting for the tunnel now.
    pub waiting: u64,
}

/// Connections that were refused, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Refused {
    /// The server's policy forbids the destination.
    pub denied: u64,
    /// The destination refused.
    pub refused: u64,
    /// No route to it, or no answer in time.
    pub unreachable: u64,
    /// The name does not exist, or no resolver could tell.
    pub name: u64,
    /// A limit on flows was reached.
    pub limit: u64,
    /// The server has no route of the address family.
    pub family: u64,
    /// Anything else.
    pub other: u64,
}

/// Address families that the server reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Families {
    /// IPv4.
    pub ipv4: bool,
    /// IPv6.
    pub ipv6: bool,
}

impl From<bentpipe_proto::tunnel::Families> for Families {
    fn from(families: bentpipe_proto::tunnel::Families) -> Self {
        Self {
            ipv4: families.ipv4,
            ipv6: families.ipv6,
        }
    }
}

impl Volumes {
    /// As the other end of the link has them.
    #[must_use]
    pub fn turned(self) -> Self {
        Self {
            lan_in: self.lan_out,
            lan_out: self.lan_in,
            wire_in: self.wire_out,
            wire_out: self.wire_in,
        }
    }
}

/// Volumes in bytes: at a client since the daemon started, at a server since the tunnel began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volumes {
    /// Payload read from TCP connections.
    pub lan_in: u64,
    /// Payload written to TCP connections.
    pub lan_out: u64,
    /// Received from the link: UDP payload, or TCP payload with `transport = "plain"`.
    pub wire_in: u64,
    /// Sent to the link, likewise.
    pub wire_out: u64,
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

//! IP packets of a tunnel, and why some of them did not cross.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

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
    /// Kinds of packets that the server carries.
    #[serde(default)]
    pub carried: PacketKinds,
    /// Sockets that stand for addresses and ports of the client (server without a device).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mappings: Option<u64>,
    /// Packets sent into the tunnel.
    pub sent: u64,
    /// Bytes of the sent packets.
    pub sent_bytes: u64,
    /// Packets that came out of it.
    pub received: u64,
    /// Bytes of the received packets.
    pub received_bytes: u64,
    /// Marked "congestion experienced" instead of dropped.
    pub marked: u64,
    /// Packets that did not cross, by cause.
    pub dropped: PacketDrops,
}

/// Kinds of packets that a server carries.
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
    /// None: it carries TCP alone.
    None,
}

impl From<bentpipe_proto::tunnel::PacketKinds> for PacketKinds {
    fn from(kinds: bentpipe_proto::tunnel::PacketKinds) -> Self {
        use bentpipe_proto::tunnel::PacketKinds as Agreed;
        match kinds {
            Agreed::All => Self::All,
            Agreed::Sockets => Self::UdpAndEcho,
            Agreed::Udp => Self::Udp,
        }
    }
}

impl PacketKinds {
    /// Line for a client's operator about packets that the server does not carry, with the mend; `None`: it carries all.
    pub(crate) const fn lack(self) -> Option<&'static str> {
        match self {
            Self::All => None,
            Self::UdpAndEcho => Some(
                "the server carries TCP, UDP and ping only: all else is refused; give it CAP_NET_ADMIN, or what else `bentpipe status` there \
                 says that it lacks",
            ),
            Self::Udp => Some(
                "the server carries TCP and UDP only: ping and all else are refused; give it CAP_NET_ADMIN, or what else `bentpipe status` there \
                 says that it lacks",
            ),
            Self::None => Some(
                "the server carries TCP only: UDP, ICMP and all else are dropped; set `enabled = true` in [packets] of its configuration",
            ),
        }
    }
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
    /// Of kinds that the server cannot carry (server without a device), or all where it carries none (client).
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

//! Where a client's connections can go just now: what front ends watch of the other side.

use std::net::{IpAddr, SocketAddr};

use bentpipe_proto::tunnel::Families;
use ipnet::IpNet;

/// A server at one of its places: what was learned of what lies behind it holds for that place alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerPlace {
    /// Index of the server in the configuration.
    pub(crate) index: usize,
    /// Address that the tunnel leads to.
    pub(crate) address: IpAddr,
}

/// Reach of the other side of a carrier, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reach {
    /// True if the other side is there.
    pub(crate) carries: bool,
    /// Address families that it reaches; both while that is unknown.
    pub(crate) families: Families,
    /// Addresses of our servers.
    pub(crate) servers: Vec<IpAddr>,
    /// The server of the tunnel, now or last; `None` before there was one.
    pub(crate) server: Option<ServerPlace>,
    /// UDP ports of the server, and the hosts that they lead to.
    pub(crate) published: Vec<(u16, SocketAddr)>,
    /// Prefixes behind this machine that the server routes here as they are.
    pub(crate) routed: Vec<IpNet>,
    /// True if the device for all but TCP has addresses.
    pub(crate) addressed: bool,
    /// True if TCP of the prefixes of `[les]` goes into the device.
    pub(crate) leads_tcp: bool,
}

impl Reach {
    /// Reach over `servers` of which nothing else is known.
    pub(super) fn of(servers: Vec<IpAddr>) -> Self {
        Self {
            carries: true,
            families: Families {
                ipv4: true,
                ipv6: true,
            },
            servers,
            server: None,
            published: Vec::new(),
            routed: Vec::new(),
            addressed: false,
            leads_tcp: false,
        }
    }
}

//! Where a contender has its ends: at terminal and gateway, as between sites, or at the hosts that talk, where an operator's PEP sees no
//! more than its packets.
//!
//! ```text
//!  Nodes   user ─────── terminal ══ link ══ gateway ─────── web
//!                          └── contender ─────┘
//!  Hosts   user ─────── terminal ══ link ══ gateway ─────── web
//!            └────────────────── contender ──────────────────┘
//! ```

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::Result;
use bentpipe_emulator::topology::{
    GATEWAY_SAT, TERMINAL_LAN, TERMINAL_SAT, Topology, USER, VPN_HOST,
};
use bentpipe_sys::netns::NetNs;

/// Time that anybody has for a handshake over the satellite: the patience of the QPEP papers, whose links
/// fade. A run that is timed has its own.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(180);

/// An end's addresses inside a VPN, IPv4 and IPv6.
pub(super) type Inside = [&'static str; 2];

/// The networks of the web.
pub(super) const WEB_NETWORKS: Inside = ["10.30.0.0/24", "fd00:30::/64"];

/// Nodes that have a contender's ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Between {
    /// Terminal and gateway.
    #[default]
    Nodes,
    /// User and web.
    Hosts,
}

/// One end of a contender.
#[derive(Debug, Clone, Copy)]
pub(super) struct End<'a> {
    /// Name of its node.
    pub(super) name: &'static str,
    pub(super) namespace: &'a NetNs,
    /// Address of the contender's own packets.
    pub(super) address: Ipv4Addr,
}

impl Between {
    /// The user's end and the other, with their own packets' way outside of the VPN.
    pub(super) fn ends(self, topology: &Topology) -> Result<[End<'_>; 2]> {
        let end = |name, namespace, address| End {
            name,
            namespace,
            address,
        };
        Ok(match self {
            Self::Nodes => [
                end("terminal", topology.terminal(), TERMINAL_SAT),
                end("gateway", topology.gateway(), GATEWAY_SAT),
            ],
            Self::Hosts => {
                let (user, web) = (topology.user(), topology.web());
                let address = format!("addr replace {VPN_HOST}/32 dev eth0\n");
                topology.configure(web, &address)?;
                let way = format!("route replace {VPN_HOST}/32 via {TERMINAL_LAN}\n");
                topology.configure(user, &way)?;
                [end("user", user, USER), end("web", web, VPN_HOST)]
            }
        })
    }

    /// Sends what is for the other end's side through the VPN's `devices`: all that the nodes route over the satellite, or what
    /// the hosts say to each other. `inside` are the addresses of the user's end there.
    pub(super) fn route_through(
        self,
        topology: &Topology,
        [near, far]: [&str; 2],
        inside: Inside,
    ) -> Result<()> {
        match self {
            Self::Nodes => {
                let all = |device| {
                    format!("route replace default dev {device}\nroute replace ::/0 dev {device}\n")
                };
                topology.configure(topology.terminal(), &all(near))?;
                topology.configure(topology.gateway(), &all(far))
            }
            Self::Hosts => {
                let each = |to: Inside, device: &str| -> String {
                    let lines = to.map(|to| format!("route replace {to} dev {device}\n"));
                    lines.concat()
                };
                topology.configure(topology.user(), &each(WEB_NETWORKS, near))?;
                topology.configure(topology.web(), &each(inside, far))
            }
        }
    }
}

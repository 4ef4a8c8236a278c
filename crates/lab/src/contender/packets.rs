//! Packets that a contender sends of its own, by which captures know them, and what may be in them or beside them.

use super::vpn::Pep;
use super::{Carrier, Contender, SERVER_PORT, segments, split};
use crate::capture::{ExpectedPackets, Tunnel};

impl Contender {
    /// Packets of its own that cross the satellite; `None` where any may. `names`: they are asked for, and pass beside one that takes
    /// in TCP alone.
    #[must_use]
    pub fn on_link(&self, names: bool) -> Option<ExpectedPackets> {
        let tunnel = self.tunnel()?;
        Some(ExpectedPackets {
            tunnel,
            idle: self.idle_tunnels(),
            names_beside: names && self.leaves_names(),
        })
    }

    /// Packets of its own that cross the LANs of both ends, if it reaches from host to host.
    #[must_use]
    pub fn on_lans(&self) -> Option<ExpectedPackets> {
        match &self.carrier {
            Carrier::Hosts(vpn, pep) => Some(ExpectedPackets {
                idle: [
                    vpn.idle_tunnel(),
                    matches!(pep, Some(Pep::Segments)).then_some(Tunnel::Udp(segments::KEYS_PORT)),
                    None,
                ],
                ..vpn.tunnel().into()
            }),
            _ => None,
        }
    }

    /// Tunnel that crosses the satellite if it does its work; without, everything may.
    pub(super) fn tunnel(&self) -> Option<Tunnel> {
        match &self.carrier {
            // SYNs cross as they are, and what is not relayed.
            Carrier::Plain | Carrier::Segments => None,
            Carrier::Bentpipe(variant) => Some(variant.tunnel()),
            Carrier::Accelerator => Some(Tunnel::Udp(SERVER_PORT)),
            Carrier::Split(split::Place::Distributed) => Some(Tunnel::Tcp(split::PORT)),
            Carrier::Split(_) => None,
            Carrier::Hosts(_, Some(Pep::Segments)) => Some(Tunnel::Udp(SERVER_PORT)),
            Carrier::Hosts(vpn, Some(pep)) if vpn.is_tcp() => {
                pep.tunnel().or_else(|| Some(vpn.tunnel()))
            }
            Carrier::Vpn(vpn, ..) | Carrier::Hosts(vpn, _) => Some(vpn.tunnel()),
            Carrier::Program(program) => program.tunnel(),
        }
    }

    /// Tunnels beside [`Self::tunnel`] that cross the satellite without the content of TCP: an operator's PEP under a VPN that it
    /// does not split, and bentpipe's where TCP is sealed beside it.
    pub(super) fn idle_tunnels(&self) -> [Option<Tunnel>; 3] {
        match &self.carrier {
            Carrier::Bentpipe(variant) => [variant.idle_tunnel(), None, None],
            // SYNs, and what is not relayed; the ends' own tunnel; keys of headers.
            Carrier::Hosts(vpn, Some(Pep::Segments)) => [
                Some(vpn.tunnel()),
                vpn.idle_tunnel(),
                Some(Tunnel::Udp(segments::KEYS_PORT)),
            ],
            Carrier::Hosts(vpn, Some(pep)) if !vpn.is_tcp() => {
                [pep.tunnel(), vpn.idle_tunnel(), None]
            }
            Carrier::Hosts(vpn, _) => [vpn.idle_tunnel(), None, None],
            _ => [None; 3],
        }
    }

    /// True if it takes in TCP alone, so that names are asked for beside it: the terminal forwards what it does not take.
    fn leaves_names(&self) -> bool {
        match &self.carrier {
            Carrier::Split(_) | Carrier::Accelerator => true,
            Carrier::Program(program) => program.intercepts(),
            _ => false,
        }
    }

    /// True if content may be read in its tunnel.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        match &self.carrier {
            Carrier::Split(_) => true,
            Carrier::Program(program) => program.readable(),
            _ => false,
        }
    }
}

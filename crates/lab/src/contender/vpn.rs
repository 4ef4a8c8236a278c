//! VPNs, and the PEP of an operator that one between hosts may have under it.

use anyhow::Result;
use bentpipe_emulator::topology::{Process, Topology};

use super::ends::Between;
use super::openvpn::OpenVpnProtocol;
use super::program::Program;
use super::{SERVER_PORT, Stable, Tuning, first_line, ipsec, openvpn, split, wireguard};
use crate::capture::Tunnel;

/// A VPN that the lab starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Vpn {
    WireGuard,
    Openvpn(OpenVpnProtocol),
    Ipsec,
}

/// An operator's PEP between terminal and gateway, under a VPN of the hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pep {
    Accelerator,
    Split,
    Pepsal(Program),
}

impl Vpn {
    /// True if its packets are carried in TCP, which a PEP splits.
    pub(super) fn is_tcp(self) -> bool {
        self == Self::Openvpn(OpenVpnProtocol::Tcp)
    }

    pub(super) fn tunnel(self) -> Tunnel {
        match self {
            Self::WireGuard => Tunnel::Udp(wireguard::PORT),
            Self::Openvpn(protocol) => protocol.tunnel(),
            Self::Ipsec => Tunnel::Ipsec,
        }
    }

    pub(super) fn version(self, stable: &Stable) -> Result<String, String> {
        let build = match self {
            Self::WireGuard => &stable.wireguard,
            Self::Openvpn(_) => return stable.openvpn.clone(),
            Self::Ipsec => &stable.ipsec,
        };
        build
            .as_ref()
            .map(ToString::to_string)
            .map_err(Clone::clone)
    }

    /// Starts both ends; traffic crosses in it when this returns.
    pub(super) fn start(
        self,
        stable: &Stable,
        tuning: Tuning,
        topology: &Topology,
        between: Between,
    ) -> Result<Vec<Process>> {
        match self {
            Self::WireGuard => wireguard::start(&stable.wireguard, tuning, topology, between),
            Self::Openvpn(protocol) => openvpn::start(protocol, tuning, topology, between),
            Self::Ipsec => ipsec::start(&stable.ipsec, tuning, topology, between),
        }
    }
}

impl Pep {
    /// Traffic of it that crosses the satellite; `None` where it sends the hosts' TCP on as it is.
    pub(super) fn tunnel(&self) -> Option<Tunnel> {
        match self {
            Self::Accelerator => Some(Tunnel::Udp(SERVER_PORT)),
            Self::Split => Some(Tunnel::Tcp(split::PORT)),
            Self::Pepsal(program) => program.tunnel(),
        }
    }

    pub(super) fn version(&self, stable: &Stable) -> Result<String, String> {
        match self {
            Self::Accelerator | Self::Split => first_line(&stable.bentpipe, &["--version"]),
            Self::Pepsal(program) => program.version(),
        }
    }
}

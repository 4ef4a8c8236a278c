//! VPNs, SLE and LES, which have their ends where VPNs have theirs, and the PEP of an operator that one between hosts may have under it.

use anyhow::Result;
use bentpipe_emulator::topology::{Process, Topology};

use super::bentpipe::{Daemons, HOSTS_PORT, SLE_PORT};
use super::ends::Between;
use super::les::{LES_PORT, Layers};
use super::openvpn::OpenVpnProtocol;
use super::program::Program;
use super::settings::Settings;
use super::{Available, SERVER_PORT, Tuning, first_line, ipsec, openvpn, split, wireguard};
use crate::capture::Tunnel;

/// A VPN that the lab starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Vpn {
    WireGuard,
    Openvpn(OpenVpnProtocol),
    Ipsec,
    /// bentpipe with `[sle]`: not a VPN, but it runs between hosts as VPNs do.
    Sle(OuterEnd),
    /// bentpipe with `[les]`: packets of TCP in two zones, which run between hosts as those of VPNs do.
    Les(Layers),
}

/// End of SLE's outer connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OuterEnd {
    /// Port of the server.
    Server,
    /// Destination of each flow, on whose way the server takes them in.
    Destination,
}

/// An operator's PEP between terminal and gateway, under a VPN of the hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pep {
    Accelerator,
    Split,
    Pepsal(Program),
    /// PEPs to which LES hands the key of its headers.
    Segments,
}

impl Vpn {
    /// True if its packets are carried in TCP, which a PEP splits.
    pub(super) fn is_tcp(self) -> bool {
        matches!(self, Self::Openvpn(OpenVpnProtocol::Tcp) | Self::Sle(_))
    }

    pub(super) fn tunnel(self) -> Tunnel {
        match self {
            Self::WireGuard => Tunnel::Udp(wireguard::PORT),
            Self::Openvpn(protocol) => protocol.tunnel(),
            Self::Ipsec => Tunnel::Ipsec,
            Self::Sle(OuterEnd::Server) => Tunnel::Tcp(SLE_PORT),
            Self::Sle(OuterEnd::Destination) => Tunnel::EveryTcp,
            Self::Les(_) => Tunnel::Udp(LES_PORT),
        }
    }

    /// True of bentpipe's own roads for TCP beside its tunnel; all else goes through the tunnel.
    pub(super) fn is_bentpipe(self) -> bool {
        matches!(self, Self::Sle(_) | Self::Les(_))
    }

    /// Tunnel of its own beside [`Self::tunnel`], without the content of TCP.
    pub(super) fn idle_tunnel(self) -> Option<Tunnel> {
        self.is_bentpipe().then_some(Tunnel::Udp(HOSTS_PORT))
    }

    pub(super) fn version(self, available: &Available) -> Result<String, String> {
        let build = match self {
            Self::WireGuard => &available.wireguard,
            Self::Openvpn(_) => return available.openvpn.clone(),
            Self::Ipsec => &available.ipsec,
            Self::Sle(_) | Self::Les(_) => return first_line(&available.bentpipe, &["--version"]),
        };
        build
            .as_ref()
            .map(ToString::to_string)
            .map_err(Clone::clone)
    }

    /// Starts both ends; traffic crosses in it when this returns.
    pub(super) fn start(
        self,
        available: &Available,
        tuning: Tuning,
        topology: &Topology,
        between: Between,
    ) -> Result<Vec<Process>> {
        match self {
            Self::WireGuard => wireguard::start(&available.wireguard, tuning, topology, between),
            Self::Openvpn(protocol) => openvpn::start(protocol, tuning, topology, between),
            Self::Ipsec => ipsec::start(&available.ipsec, tuning, topology, between),
            Self::Sle(end) => {
                let settings = Settings {
                    sle: Some(end),
                    ..Settings::default()
                };
                start_bentpipe(available, topology, between, settings)
            }
            Self::Les(layers) => {
                let settings = Settings {
                    les: Some(layers),
                    ..Settings::default()
                };
                start_bentpipe(available, topology, between, settings)
            }
        }
    }
}

/// Starts bentpipe with SLE or LES as `settings` say.
fn start_bentpipe(
    available: &Available,
    topology: &Topology,
    between: Between,
    settings: Settings,
) -> Result<Vec<Process>> {
    let settings = Settings {
        between,
        ..settings
    };
    Daemons::start(&available.bentpipe, topology, &settings).map(Daemons::into_processes)
}

impl Pep {
    /// Traffic of it that crosses the satellite; `None` where it sends the hosts' TCP on as it is.
    pub(super) fn tunnel(&self) -> Option<Tunnel> {
        match self {
            Self::Accelerator | Self::Segments => Some(Tunnel::Udp(SERVER_PORT)),
            Self::Split => Some(Tunnel::Tcp(split::PORT)),
            Self::Pepsal(program) => program.tunnel(),
        }
    }

    pub(super) fn version(&self, available: &Available) -> Result<String, String> {
        match self {
            Self::Accelerator | Self::Split | Self::Segments => {
                first_line(&available.bentpipe, &["--version"])
            }
            Self::Pepsal(program) => program.version(&available.envoy),
        }
    }
}

//! What carries a client's connections on: the tunnel, or TCP in clear. Front ends ask here, and know neither.

use std::io;
use std::net::IpAddr;
#[cfg(target_os = "linux")]
use std::net::SocketAddr;
use std::rc::Rc;
#[cfg(target_os = "linux")]
use std::sync::Arc;

use bentpipe_proto::tunnel::{Destination, Families, Host};
#[cfg(target_os = "linux")]
use ipnet::IpNet;
use tokio::sync::watch;

use super::plain::Splitter;
use super::session::Session;
#[cfg(target_os = "linux")]
use crate::client::frontend::upkeep::KeptDevice;
use crate::config::FrontEnds;

/// The transport of a running client.
#[derive(Clone)]
pub(crate) enum Transport {
    /// The QUIC tunnel.
    Tunnel(Rc<Session>),
    /// A TCP connection for each, in clear.
    Plain(Rc<Splitter>),
}

impl Transport {
    /// What the client takes in.
    pub(crate) fn front(&self) -> &FrontEnds {
        match self {
            Self::Tunnel(session) => session.front(),
            Self::Plain(splitter) => splitter.front(),
        }
    }

    /// Whether what it takes in reaches the other side just now, as far as is known.
    pub(crate) fn carries(&self) -> bool {
        match self {
            Self::Tunnel(session) => session.carries(),
            Self::Plain(_) => true,
        }
    }

    /// Whether an application hears "connected" before the server has connected.
    pub(crate) fn is_optimistic(&self, destination: &Destination) -> bool {
        let front = self.front();
        let address = match destination.host {
            Host::Ip(address) => Some(address),
            Host::Name(_) => None,
        };
        front.is_optimistic(address, destination.port)
    }

    /// Address families that the other side reaches; both while that is unknown.
    pub(crate) fn families(&self) -> Families {
        match self {
            Self::Tunnel(session) => session.families(),
            Self::Plain(_) => Families {
                ipv4: true,
                ipv6: true,
            },
        }
    }

    /// Where our servers are, as far as is known.
    pub(crate) fn server_addresses(&self) -> Vec<IpAddr> {
        match self {
            Self::Tunnel(session) => session.server_addresses(),
            Self::Plain(splitter) => splitter.server_addresses(),
        }
    }

    /// UDP ports of the server, and the hosts that they lead to.
    #[cfg(target_os = "linux")]
    pub(crate) fn published(&self) -> Vec<(u16, SocketAddr)> {
        match self {
            Self::Tunnel(session) => session.published_packets(),
            Self::Plain(_) => Vec::new(),
        }
    }

    /// Prefixes behind this machine that the server routes here as they are.
    #[cfg(target_os = "linux")]
    pub(crate) fn routed(&self) -> Vec<IpNet> {
        match self {
            Self::Tunnel(session) => session.routed(),
            Self::Plain(_) => Vec::new(),
        }
    }

    /// Makes a device for all but TCP, if that is to be carried; false if not.
    pub(crate) fn open_device(&self) -> io::Result<bool> {
        match self {
            Self::Tunnel(session) => session.open_device(),
            Self::Plain(_) => Ok(false),
        }
    }

    /// What is to be kept of the device, if there is one.
    #[cfg(target_os = "linux")]
    pub(crate) fn kept_device(&self) -> Option<Arc<KeptDevice>> {
        match self {
            Self::Tunnel(session) => session.kept_device(),
            Self::Plain(_) => None,
        }
    }

    /// Whether the device has addresses.
    pub(crate) fn has_addresses(&self) -> bool {
        match self {
            Self::Tunnel(session) => session.has_addresses(),
            Self::Plain(_) => false,
        }
    }

    /// Hears of every change of families and addresses.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        match self {
            Self::Tunnel(session) => session.changes(),
            Self::Plain(splitter) => splitter.changes(),
        }
    }
}

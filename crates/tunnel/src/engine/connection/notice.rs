//! What the engine reports of a connection.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use quinn_proto::ConnectionError;

use super::super::identity;
use crate::transport::{Fault, TunnelEvent};

/// An ICMP error about datagrams of a handshake. Anybody may have forged it: a hint, and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreachable {
    /// Cause.
    pub cause: UnreachableCause,
    /// Sender of the ICMP message.
    pub from: Option<IpAddr>,
    /// Address that the datagram was sent to, in its own family's form.
    pub to: SocketAddr,
}

/// Cause that an ICMP error gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnreachableCause {
    /// No program listens at the port.
    Port,
    /// The host does not answer its router.
    Host,
    /// No route leads there.
    Network,
    /// A firewall rejects it.
    Prohibited,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.cause {
            UnreachableCause::Port => "port unreachable",
            UnreachableCause::Host => "host unreachable",
            UnreachableCause::Network => "network unreachable",
            UnreachableCause::Prohibited => "prohibited by a firewall",
        })?;
        match self.from {
            Some(from) => write!(f, ", says {} (ICMP)", from.to_canonical()),
            None => f.write_str(" (ICMP)"),
        }
    }
}

/// Report of the engine on a connection.
#[derive(Debug)]
pub enum ConnectionNotice {
    /// The handshake is complete (for a client: on its side).
    Connected,
    /// Something happened in the tunnel.
    Tunnel(TunnelEvent),
    /// An outage has begun (true) or ended.
    Outage(bool),
    /// The network says that nobody can be reached there (client, before the handshake is complete).
    Unreachable(Unreachable),
    /// The peer broke the tunnel protocol; the connection is being closed.
    Fault(Fault),
    /// The peer has shown this key, from this address, and nobody accepts it; that it holds the private half is not
    /// proved.
    UnknownKey(identity::PublicKey, SocketAddr),
    /// The connection is over.
    Lost(ConnectionError),
}

//! What the engine reports of a connection.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use quinn_proto::ConnectionError;

use super::super::identity;
use crate::transport::{Fault, TunnelEvent};

/// Report that datagrams do not arrive: an ICMP error about those of a handshake, which anybody may have forged and which is a hint and nothing
/// else, or the word of this machine's own kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreachable {
    /// Cause.
    pub cause: UnreachableCause,
    /// Sender of the ICMP message; `None` where there was none, or where it is not known.
    pub from: Option<IpAddr>,
    /// Address that the datagram was sent to, in its own family's form.
    pub to: SocketAddr,
}

/// Cause that an ICMP error gives, or the kernel.
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
    /// A firewall of this machine drops it on its way out, says the kernel.
    Barred,
    /// No route of this machine leads there, says the kernel.
    NoRoute,
    /// The interface, or the path as far as the kernel knows it, carries no `packet` of so many bytes, and none of the `least` size that QUIC
    /// needs.
    TooLarge {
        /// Size of the packet, bytes.
        packet: usize,
        /// Size of packets that QUIC has to send, bytes.
        least: usize,
    },
}

/// Words for what this machine's own firewall drops, and where to look.
const BARRED: &str = "a firewall of this machine drops it on its way out; `nft list ruleset` shows its chains of the hook `output`";

impl Unreachable {
    /// Fault of this machine as a line for its operator; `None` where the cause is elsewhere.
    #[must_use]
    pub fn own_fault(&self) -> Option<String> {
        let is_own = match self.cause {
            UnreachableCause::Barred
            | UnreachableCause::NoRoute
            | UnreachableCause::TooLarge { .. } => true,
            UnreachableCause::Port
            | UnreachableCause::Host
            | UnreachableCause::Network
            | UnreachableCause::Prohibited => false,
        };
        is_own.then(|| {
            format!(
                "what is sent to {} does not leave this machine: {self}",
                self.to
            )
        })
    }
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.cause {
            UnreachableCause::Port => "port unreachable",
            UnreachableCause::Host => "host unreachable",
            UnreachableCause::Network => "network unreachable",
            UnreachableCause::Prohibited => "prohibited by a firewall",
            UnreachableCause::Barred => return f.write_str(BARRED),
            UnreachableCause::NoRoute => return f.write_str("no route of this machine leads there"),
            UnreachableCause::TooLarge { packet, least } => {
                return write!(
                    f,
                    "its interface, or the path, carries no packet of {packet} bytes: QUIC needs an MTU of {least}"
                );
            }
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

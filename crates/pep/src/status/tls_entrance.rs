//! Part of a server's `status` about the TCP port that takes TLS connections in place of UDP.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use super::format::{counted, quantity};

/// Connections to `listen_tls`; totals since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TlsEntrance {
    /// Connections in which a client has shown its key.
    pub clients_total: u64,
    /// Connections that were led to the web server behind the port.
    pub guests_total: u64,
    /// Connections that were refused, by cause.
    pub refused_total: TlsRefused,
}

/// Connections to `listen_tls` that were refused, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TlsRefused {
    /// Connections of hosts or networks that have had their share.
    pub crowded: u64,
    /// Connections that gave way to a newer stranger's.
    pub displaced: u64,
    /// Connections that ended, or said nothing for ten seconds, before their first datagram.
    pub incomplete: u64,
    /// Connections whose TLS handshake failed.
    pub handshake: u64,
    /// Connections in whose TLS something else came than datagrams.
    pub content: u64,
    /// Connections in which nobody has shown the key of a client.
    pub unproven: u64,
    /// Connections for the web server behind the port, where there is none, or no place at it.
    pub no_fallback: u64,
    /// Connections for which the tunnels' threads had no place.
    pub busy: u64,
}

impl TlsEntrance {
    /// True if nobody has come so far.
    pub(super) fn is_idle(&self) -> bool {
        *self == Self::default()
    }
}

impl Display for TlsEntrance {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of clients",
            quantity(self.clients_total, "connection")
        )?;
        if self.guests_total > 0 {
            write!(f, ", {} of the web server's guests", self.guests_total)?;
        }
        let refused = self.refused_total;
        if refused != TlsRefused::default() {
            write!(f, "; refused {refused}")?;
        }
        Ok(())
    }
}

impl Display for TlsRefused {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let causes = [
            (self.crowded, "of hosts that have had their share"),
            (self.displaced, "for newer ones"),
            (self.incomplete, "incomplete"),
            (self.handshake, "whose handshake failed"),
            (self.content, "without datagrams"),
            (self.unproven, "without a client's key"),
            (self.no_fallback, "for no web server"),
            (self.busy, "for want of room"),
        ];
        f.write_str(&counted(&causes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_by_their_cause() {
        let mut entrance = TlsEntrance::default();
        assert!(entrance.is_idle());
        entrance.clients_total = 1;
        assert_eq!(entrance.to_string(), "1 connection of clients");
        entrance.guests_total = 2;
        entrance.refused_total.handshake = 3;
        entrance.refused_total.unproven = 1;
        assert_eq!(
            entrance.to_string(),
            "1 connection of clients, 2 of the web server's guests; refused 3 whose handshake failed, 1 without a client's key"
        );
    }
}

//! What `status` says of UDP associations of SOCKS5.

use std::fmt::{self, Display, Formatter};

use bentpipe_proto::proxy::associate::AssociateStats;
use serde::{Deserialize, Serialize};

use super::format::counted;

/// UDP associations of SOCKS5 applications; totals since the client started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Associations {
    /// Open now.
    pub open: u64,
    /// Opened so far.
    pub opened_total: u64,
    /// Datagrams that became packets.
    pub sent: u64,
    /// Datagrams that came for applications.
    pub received: u64,
    /// The others, by cause.
    pub dropped: AssociationDrops,
}

/// Datagrams of associations that were dropped, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssociationDrops {
    /// Not from the application that has the association.
    pub stranger: u64,
    /// Without a head that can be read, or with wrong lengths or checksums.
    pub malformed: u64,
    /// Fragments of SOCKS5.
    pub fragment: u64,
    /// Longer than one packet of 1500 bytes.
    pub large: u64,
    /// To an address family of which the server has assigned no address.
    pub family: u64,
    /// To a name that has no address.
    pub unresolved: u64,
    /// No room while a name was looked up, or in the application's socket.
    pub overflow: u64,
    /// A rule keeps them from the tunnel.
    pub rule: u64,
    /// No tunnel.
    pub no_tunnel: u64,
}

impl Associations {
    pub(crate) fn new(open: usize, stats: &AssociateStats) -> Self {
        let dropped = stats.dropped;
        Self {
            open: open as u64,
            opened_total: stats.opened,
            sent: stats.sent,
            received: stats.received,
            dropped: AssociationDrops {
                stranger: dropped.stranger,
                malformed: dropped.malformed,
                fragment: dropped.fragment,
                large: dropped.large,
                family: dropped.family,
                unresolved: dropped.unresolved,
                overflow: dropped.overflow,
                rule: dropped.rule,
                no_tunnel: dropped.no_tunnel,
            },
        }
    }
}

impl Display for Associations {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { open, sent, .. } = self;
        let (opened, received) = (self.opened_total, self.received);
        write!(
            f,
            "{open} associations open, {opened} opened so far; {sent} datagrams sent, {received} received"
        )?;
        let drops = self.dropped;
        let causes = [
            (drops.stranger, "of strangers"),
            (drops.malformed, "malformed"),
            (drops.fragment, "fragments"),
            (drops.large, "too large"),
            (drops.family, "to a family without an address"),
            (drops.unresolved, "to names without an address"),
            (drops.overflow, "for want of room"),
            (drops.rule, "by rules"),
            (drops.no_tunnel, "without a tunnel"),
        ];
        let counted = counted(&causes);
        match counted.is_empty() {
            true => Ok(()),
            false => write!(f, "; dropped {counted}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_dropped_is_named_by_its_cause() {
        let mut stats = AssociateStats {
            opened: 3,
            sent: 5,
            received: 4,
            ..AssociateStats::default()
        };
        let text = |stats: &AssociateStats| Associations::new(1, stats).to_string();
        let plain = "1 associations open, 3 opened so far; 5 datagrams sent, 4 received";
        assert_eq!(text(&stats), plain);
        (stats.dropped.stranger, stats.dropped.large) = (2, 1);
        let dropped = format!("{plain}; dropped 2 of strangers, 1 too large");
        assert_eq!(text(&stats), dropped);
    }
}

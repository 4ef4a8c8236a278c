//! The connections made *to* this machine before the table was there, an administrator's ssh above all.
//!
//! Conntrack tells replies from requests only for connections whose beginning it saw, and it may not
//! have been running. So with `local` they are listed once, at install.

use std::collections::BTreeSet;

use bentpipe_sys::connections::Inbound;

use crate::firewall::{Family, Set};

/// The sets `inbound4` and `inbound6`: peer address, peer port, own port.
pub(super) fn set(connections: &[Inbound]) -> String {
    let set = |family: Family| {
        let own = connections
            .iter()
            .filter(|(peer, _)| Family::of(peer.ip()) == family);
        let elements: BTreeSet<_> = own
            .map(|(peer, port)| format!("{} . {} . {port}", peer.ip(), peer.port()))
            .collect();
        let kind = format!("{} . inet_service . inet_service", family.address());
        Set::new(format!("inbound{}", family.digit()), kind)
            .elements(elements)
            .to_string()
    };
    Family::BOTH.map(set).concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_name_peer_and_ports() {
        let inbound =
            ["198.51.100.8:50000", "198.51.100.7:50000"].map(|peer| (peer.parse().unwrap(), 22));
        let text = set(&inbound);
        assert!(
            text.contains("{ 198.51.100.7 . 50000 . 22, 198.51.100.8 . 50000 . 22 }"),
            "{text}"
        );
        assert!(!set(&[]).contains("elements"));
    }
}

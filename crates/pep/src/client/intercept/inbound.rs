//! The connections made *to* this machine before the table was there, an administrator's ssh above all.
//!
//! Conntrack tells replies from requests only for connections whose beginning it saw, and it may not
//! have been running. So with `local` they are listed once, at install.

use std::fmt::Write as _;

use bentpipe_sys::connections::Inbound;

/// The sets `inbound4` and `inbound6`: peer address, peer port, own port.
pub(super) fn set(connections: &[Inbound]) -> String {
    let mut text = String::new();
    for (family, kind) in [("4", "ipv4_addr"), ("6", "ipv6_addr")] {
        let mut list: Vec<String> = connections
            .iter()
            .filter(|(peer, _)| peer.is_ipv4() == (family == "4"))
            .map(|(peer, port)| format!("{} . {} . {port}", peer.ip(), peer.port()))
            .collect();
        list.sort();
        list.dedup();
        let elements = match list.is_empty() {
            true => String::new(),
            false => format!("    elements = {{ {} }}\n", list.join(", ")),
        };
        let _ = writeln!(
            text,
            "  set inbound{family} {{\n    type {kind} . inet_service . inet_service\n{elements}  }}"
        );
    }
    text
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

//! Which terminal a packet of the gateway is for.

use std::net::IpAddr;

use bentpipe_link::TerminalId;
use ipnet::IpNet;

/// The networks behind each terminal. A link with a single terminal has no use for them: all is for that one.
#[derive(Debug, Clone, Default)]
pub struct Router {
    networks: Vec<(IpNet, TerminalId)>,
}

impl Router {
    /// Everything goes to the only terminal.
    #[must_use]
    pub fn single() -> Self {
        Self::default()
    }

    /// By destination: the networks of terminal 0, 1 and so on.
    pub fn new(networks: impl IntoIterator<Item = Vec<IpNet>>) -> Self {
        let all = networks.into_iter().enumerate().flat_map(|(index, own)| {
            own.into_iter()
                .map(move |network| (network, TerminalId::new(index)))
        });
        let mut networks: Vec<_> = all.collect();
        // The most specific first.
        networks.sort_by_key(|(network, _)| std::cmp::Reverse(network.prefix_len()));
        Self { networks }
    }

    /// The terminal for a packet to `destination`; none if no terminal has it, as with multicast.
    pub(crate) fn terminal(&self, destination: Option<IpAddr>) -> Option<TerminalId> {
        if self.networks.is_empty() {
            return Some(TerminalId::new(0));
        }
        let destination = destination?;
        let found = self
            .networks
            .iter()
            .find(|(network, _)| network.contains(&destination));
        found.map(|(_, terminal)| *terminal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_network_decides() {
        let networks = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let router = Router::new([
            networks(&["10.0.0.0/8"]),
            networks(&["10.1.0.0/16", "fd00::/64"]),
        ]);
        let found = |address: &str| {
            router
                .terminal(Some(address.parse().unwrap()))
                .map(TerminalId::index)
        };
        assert_eq!(
            (found("10.0.0.1"), found("10.1.0.1"), found("fd00::1")),
            (Some(0), Some(1), Some(1))
        );
        assert_eq!((found("224.0.0.1"), router.terminal(None)), (None, None));
        assert_eq!(Router::single().terminal(None), Some(TerminalId::new(0)));
    }
}

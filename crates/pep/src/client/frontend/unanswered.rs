//! Networks whose hosts hear no answer: what they send comes in by an intercepted interface, and no route leads back to them by one.
//!
//! Another router of the LAN sends such hosts' packets here. Their handshakes do not end, so that no listener ever hears of them; the
//! packet sockets that see opening segments do, and the guardian asks the kernel for the way back, once for each network.
//!
//! ```text
//!   segment ─► note ─► unknown ─┬ a route leads back ─► answered, asked again after a minute
//!                               └ none does ─► unanswered, told once hosts have tried for PERSISTS
//! ```

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ipnet::IpNet;

/// Networks that are remembered. Whoever forges addresses fills the table, and costs the kernel no more lookups than that.
const MAX_NETWORKS: usize = 64;

/// Networks that are told of at once.
const MAX_TOLD: usize = 8;

/// Time for which hosts try before it is told: a host that has an address of another LAN for a moment is no fault of the router's.
const PERSISTS: Duration = Duration::from_secs(6);

/// Time after which a network that was not heard of is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(300);

/// Age of an answer that is asked for again.
const ANSWERED_FOR: Duration = Duration::from_secs(60);

/// Lengths of the prefixes that hosts are taken together by: those of most LANs.
const LENGTHS: [u8; 2] = [24, 64];

/// A network whose hosts hear no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnansweredNetwork {
    /// Prefix of a host's address that was seen; the network may be wider.
    pub(super) network: IpNet,
    /// Interface by which it came in.
    pub(super) interface: String,
}

/// Networks that connections came from.
#[derive(Debug, Default)]
pub(super) struct Sources(HashMap<IpNet, Source>);

#[derive(Debug)]
struct Source {
    /// A host of the network.
    host: IpAddr,
    interface: String,
    first: Instant,
    last: Instant,
    /// Instant of the kernel's last word, and whether a route leads back.
    way: Option<(Instant, bool)>,
}

impl Source {
    fn is_unanswered(&self) -> bool {
        matches!(self.way, Some((_, false)))
    }

    fn is_told(&self) -> bool {
        self.is_unanswered() && self.last.saturating_duration_since(self.first) >= PERSISTS
    }
}

impl Sources {
    /// Takes in that `host` has begun a connection by `interface`.
    pub(super) fn note(&mut self, now: Instant, host: IpAddr, interface: &str) {
        let length = LENGTHS[usize::from(host.is_ipv6())];
        let Ok(network) = IpNet::new(host, length).map(|net| net.trunc()) else {
            return;
        };
        if let Some(source) = self.0.get_mut(&network) {
            source.last = now;
            return;
        }
        if self.0.len() >= MAX_NETWORKS {
            self.0.retain(|_, source| source.is_told());
        }
        if self.0.len() < MAX_NETWORKS {
            let source = Source {
                host,
                interface: interface.to_owned(),
                first: now,
                last: now,
                way: None,
            };
            self.0.insert(network, source);
        }
    }

    /// Hosts whose way back is to be asked for.
    pub(super) fn due(&mut self, now: Instant) -> Vec<(IpNet, IpAddr)> {
        let is_heard = |source: &Source| now.saturating_duration_since(source.last) < FORGOTTEN;
        self.0.retain(|_, source| is_heard(source));
        let is_due = |source: &Source| match source.way {
            Some((at, true)) => {
                source.last > at && now.saturating_duration_since(at) >= ANSWERED_FOR
            }
            // A route may have come meanwhile.
            Some((_, false)) | None => true,
        };
        let due = self.0.iter().filter(|(_, source)| is_due(source));
        due.map(|(network, source)| (*network, source.host))
            .collect()
    }

    /// Takes in whether a route leads back to `network`.
    pub(super) fn on_way(&mut self, now: Instant, network: IpNet, leads_back: bool) {
        if let Some(source) = self.0.get_mut(&network) {
            if leads_back {
                source.first = source.last;
            }
            source.way = Some((now, leads_back));
        }
    }

    /// Networks that are told of.
    pub(super) fn unanswered(&self) -> Vec<UnansweredNetwork> {
        let told = self.0.iter().filter(|(_, source)| source.is_told());
        let mut told: Vec<_> = told
            .map(|(network, source)| UnansweredNetwork {
                network: *network,
                interface: source.interface.clone(),
            })
            .collect();
        told.sort_unstable_by_key(|one| one.network);
        told.truncate(MAX_TOLD);
        told
    }
}

impl UnansweredNetwork {
    /// Name of the part that is missing.
    pub(super) fn name(&self) -> String {
        format!(
            "way back by {} to hosts of {}",
            self.interface, self.network
        )
    }

    /// Reason why nobody puts it back, with the mend.
    pub(super) fn mend(&self) -> String {
        let Self { network, interface } = self;
        format!(
            "what they send comes in by {interface}, and answers to them would leave elsewhere; if they are behind another router of \
             that LAN, tell this machine the way (`ip route add {network} via ROUTER dev {interface}`, or the wider prefix that it \
             has), and if not, they have addresses of another LAN"
        )
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "one base instant; all else is virtual"
)]
mod tests {
    use super::*;

    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 9, 0, 5));

    fn network() -> IpNet {
        "10.9.0.0/24".parse().unwrap()
    }

    #[test]
    fn hosts_that_try_on_without_a_way_back_are_told_once_for_their_network() {
        let (mut sources, start) = (Sources::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        sources.note(at(0), HOST, "lan0");
        assert_eq!(sources.due(at(0)), [(network(), HOST)]);
        sources.on_way(at(0), network(), false);
        assert!(sources.unanswered().is_empty(), "a first attempt");
        sources.note(at(7), "10.9.0.6".parse().unwrap(), "lan0");
        let told = sources.unanswered();
        assert_eq!(told.len(), 1);
        assert!(
            told[0]
                .mend()
                .contains("ip route add 10.9.0.0/24 via ROUTER dev lan0")
        );
        // The route comes; should it go again, hosts try anew before it is told.
        assert_eq!(sources.due(at(8)).len(), 1);
        sources.on_way(at(8), network(), true);
        assert!(sources.unanswered().is_empty() && sources.due(at(9)).is_empty());
        sources.note(at(69), HOST, "lan0");
        assert_eq!(sources.due(at(69)).len(), 1, "asked again after a minute");
        // Nobody is heard any more.
        sources.on_way(at(69), network(), false);
        assert!(sources.due(at(69) + FORGOTTEN).is_empty());
    }

    #[test]
    fn forged_addresses_cost_a_bounded_number_of_lookups_and_lines() {
        let (mut sources, start) = (Sources::default(), Instant::now());
        for round in 0..3_u64 {
            let now = start + PERSISTS.saturating_mul(round as u32);
            for third in 0..=255 {
                sources.note(now, IpAddr::from([10, third, 0, 1]), "lan0");
            }
            let asked = sources.due(now);
            assert!(asked.len() <= MAX_NETWORKS, "{} lookups", asked.len());
            for (network, _) in asked {
                sources.on_way(now, network, false);
            }
            assert!(sources.unanswered().len() <= MAX_TOLD);
        }
    }
}

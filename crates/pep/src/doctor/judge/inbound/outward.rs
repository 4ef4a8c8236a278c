//! Chains of this machine that drop what a daemon sends to its far end, to which nothing is wrong.

use std::net::SocketAddr;

use super::condition::FilteredPacket;
use super::fate::{self, Fate};
use super::{Chains, far_ends, title};
use crate::doctor::Finding;
use crate::doctor::facts::{
    Content, FarFacts, HandshakeResult, ListenProtocol, SideFacts, WayThere,
};
use crate::doctor::judge::{fail, warn};

impl Chains<'_> {
    /// Findings on chains at which ends what a daemon sends to a far end that does not answer.
    pub(super) fn for_ways_out(&self, content: &Content) -> Vec<Finding> {
        let protocol = match content.plain {
            true => ListenProtocol::Tcp,
            false => ListenProtocol::Udp,
        };
        // Datagrams of a client that takes in its own machine's traffic have its mark.
        let marked = matches!(&content.side, SideFacts::Client(client) if client.local);
        let ways = far_ends(&content.side)
            .iter()
            .filter_map(|far| Some((far, far.way.as_ref()?)));
        let silent = ways.filter(|(_, way)| !matches!(way.reached, HandshakeResult::TunnelUp(_)));
        let dropped = silent.flat_map(|(far, way)| {
            goals(protocol, far, way)
                .into_iter()
                .flat_map(|goal| self.on_way_to(goal, way, marked))
                .collect::<Vec<_>>()
        });
        dropped.collect()
    }

    /// Findings on chains that drop what is sent to an address by this `way`.
    fn on_way_to(
        &self,
        (protocol, to): (ListenProtocol, SocketAddr),
        way: &WayThere,
        marked: bool,
    ) -> Vec<Finding> {
        let packet = FilteredPacket {
            protocol,
            to: to.ip().to_canonical(),
            port: Some(to.port()),
            answer_from: None,
            device: way.device.clone(),
            mark: (!self.mark && !marked).then_some(0),
            may_be_translated: self.translate,
            leaves: true,
        };
        let is_unsent = matches!(way.reached, HandshakeResult::Unsent(_));
        let (name, _) = protocol.known_as();
        let met = self.met_by(&packet).filter_map(|(chain, _, table)| {
            let title = title(chain);
            let rule = fate::dropping(chain, table, &packet).unwrap_or_default();
            let drops = format!(
                "chain `{title}` of this machine drops {} to {to} by `{rule}`",
                name.to_uppercase()
            );
            let version = if packet.to.is_ipv4() { "ip" } else { "ip6" };
            let mend = format!(
                "let it leave: `nft insert rule {title} {version} daddr {} {name} dport {} accept`, and where that firewall keeps its rules",
                packet.to,
                to.port()
            );
            match fate::at(chain, table, &packet) {
                Fate::Dropped => Some(fail("firewall", drops, Some(mend))),
                Fate::Unclear(accepting) if is_unsent => {
                    let text = format!("{drops}, unless `{accepting}` lets it leave");
                    Some(warn("firewall", text, Some(mend)))
                }
                Fate::Unclear(_) | Fate::Opened(_) | Fate::Passes => None,
            }
        });
        met.collect()
    }
}

/// Addresses that a daemon sends to by this `way` to `far`, and by TLS in place of UDP.
fn goals(
    protocol: ListenProtocol,
    far: &FarFacts,
    way: &WayThere,
) -> Vec<(ListenProtocol, SocketAddr)> {
    let tls = far.tls.iter().map(|to| (ListenProtocol::Tcp, *to));
    std::iter::once((protocol, way.to)).chain(tls).collect()
}

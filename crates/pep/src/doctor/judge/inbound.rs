//! Firewalls of this machine: the chains of others, judged by their rules for the ports that daemons listen at, for what daemons take in,
//! and for what they send to the far end (`outward.rs`).
//!
//! ```text
//! nft list table ─► listing ─► condition ─► fate ─► Finding
//!                   rules      yes, no,     passes, opened by a rule,
//!                              perhaps      dropped, not to be told
//! ```
//!
//! A packet of one's own does not cross the chain as a stranger's does, so nothing is sent: rules are read, and what they hang on that is not
//! known here (senders, sets that change, rates) is no fault.

mod condition;
mod fate;
mod listing;
mod outward;
mod translated;

#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bentpipe_sys::nftables::{BaseChain, INPUT};

use super::{fail, ok, warn};
use crate::doctor::Finding;
use crate::doctor::facts::{
    Content, Facts, FarFacts, HandshakeResult, ListenFacts, ListenProtocol, MeetingFacts, PepFacts,
    SideFacts,
};
use condition::FilteredPacket;
use fate::Fate;
use listing::TableListing;

/// A chain of others, with its table as it was listed.
type ListedChain = (BaseChain, String);

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let network = &facts.network;
    let Some(Ok(chains)) = &network.inward_chains else {
        return Vec::new();
    };
    let chains = Chains::new(chains, &network.uplinks);
    let outward = network
        .outward_chains
        .as_ref()
        .and_then(|it| it.as_ref().ok());
    let outward = outward.map(|outward| Chains::new(outward, &network.uplinks));
    let contents = facts.subjects.iter().flat_map(|one| &one.content);
    let findings = contents.flat_map(|content| {
        let mut found = chains.for_marked(&content.side);
        found.extend(chains.for_answers(&content.side));
        found.extend(outward.iter().flat_map(|it| it.for_ways_out(content)));
        let mut seen = Vec::new();
        for listen in listens(&content.side) {
            let port = (listen.protocol, listen.address.port());
            if !seen.contains(&port) {
                seen.push(port);
                found.extend(chains.at_port(port, content));
            }
        }
        found
    });
    // Of both families, and of several interfaces, the same is said.
    once(findings)
}

/// The findings, each once.
fn once(findings: impl Iterator<Item = Finding>) -> Vec<Finding> {
    let mut all: Vec<Finding> = Vec::new();
    for finding in findings {
        if !all.contains(&finding) {
            all.push(finding);
        }
    }
    all
}

/// Addresses that others come to.
pub(super) fn listens(side: &SideFacts) -> impl Iterator<Item = &ListenFacts> {
    let all = match side {
        SideFacts::Server(server) => &server.listen[..],
        SideFacts::Origin(origin) => &origin.listen,
        SideFacts::Pep(pep) => match &pep.meeting {
            MeetingFacts::Here(addresses) => &addresses[..],
            MeetingFacts::There(_) => &[],
        },
        SideFacts::Client(_) => &[],
    };
    all.iter().filter(|it| !it.address.ip().is_loopback())
}

/// True if a rule of a table changes destinations.
fn translates(listing: &str) -> bool {
    listing.lines().any(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        (0..words.len()).any(|at| {
            // Both are names of states and of ICMP types, too.
            matches!(
                &words[at..],
                ["dnat", "to" | "ip" | "ip6" | "prefix", ..]
                    | ["redirect", "to", ..]
                    | ["redirect"]
                    | ["\"DNAT\"" | "\"REDIRECT\"", ..]
            )
        })
    })
}

/// True if a rule of a table sets the mark of packets.
fn marks(listing: &str) -> bool {
    ["mark set ", "\"MARK\"", "\"CONNMARK\""]
        .iter()
        .any(|word| listing.contains(word))
}

/// Chains of others that a packet comes to.
struct Chains<'a> {
    chains: &'a [ListedChain],
    /// One for each chain.
    tables: Vec<TableListing>,
    /// Devices of default routes.
    uplinks: &'a [String],
    /// Some rule changes destinations.
    translate: bool,
    /// Some rule sets marks.
    mark: bool,
}

impl<'a> Chains<'a> {
    fn new(chains: &'a [ListedChain], uplinks: &'a [String]) -> Self {
        let tables = chains
            .iter()
            .map(|(_, listing)| TableListing::read(listing));
        Self {
            chains,
            tables: tables.collect(),
            uplinks,
            translate: chains.iter().any(|(_, listing)| translates(listing)),
            mark: chains.iter().any(|(_, listing)| marks(listing)),
        }
    }
}

impl Chains<'_> {
    /// Findings on what comes to a port that a daemon listens at.
    fn at_port(&self, (protocol, port): (ListenProtocol, u16), content: &Content) -> Vec<Finding> {
        let (name, _) = protocol.known_as();
        let shown = name.to_uppercase();
        let what = format!("{shown} to port {port} of the {}", content.role);
        let (mut faults, mut opened) = (Vec::new(), None);
        let same = listens(&content.side)
            .filter(|it| (it.protocol, it.address.port()) == (protocol, port));
        for listen in same {
            let packet = FilteredPacket {
                protocol,
                to: listen.address.ip(),
                port: Some(port),
                answer_from: None,
                device: None,
                mark: (!self.mark).then_some(0),
                may_be_translated: self.translate,
                leaves: false,
            };
            faults.extend(self.leading_away(&packet, &what));
            for (chain, listing, table) in self.met_by(&packet) {
                let title = title(chain);
                let mend = || Some(opening(chain, listing, name, port));
                let drops = format!("chain `{title}` drops {what}");
                faults.extend(match self.fate(chain, table, &packet) {
                    (Fate::Dropped, None) => Some(fail("firewall", drops, mend())),
                    (_, Some(device)) => {
                        let text = format!("{drops} that comes in by {device}");
                        Some(warn("firewall", text, mend()))
                    }
                    (Fate::Unclear(rule), None) => {
                        let unless = "lets it in, which cannot be told from here";
                        let text = format!("{drops}, unless `{rule}` {unless}");
                        Some(warn("firewall", text, mend()))
                    }
                    (Fate::Opened(rule), None) => {
                        opened = Some(format!("chain `{title}` opens it by `{rule}`"));
                        None
                    }
                    (Fate::Passes, None) => None,
                });
            }
        }
        if faults.is_empty() {
            let found =
                opened.unwrap_or_else(|| "no chain of another program closes it".to_owned());
            faults.push(ok("firewall", format!("{shown} port {port}: {found}")));
        }
        faults
    }

    /// Fate of `packet` at a chain, whichever interface it comes in by, or the uplink by which it is dropped.
    fn fate(
        &self,
        chain: &BaseChain,
        table: &TableListing,
        packet: &FilteredPacket,
    ) -> (Fate, Option<&String>) {
        let general = fate::at(chain, table, packet);
        if matches!(general, Fate::Dropped | Fate::Opened(_)) {
            return (general, None);
        }
        let by = |device: &String| {
            let device = Some(device.clone());
            fate::at(
                chain,
                table,
                &FilteredPacket {
                    device,
                    ..packet.clone()
                },
            )
        };
        let dropping = self.uplinks.iter().find(|it| by(it) == Fate::Dropped);
        let passes = |it: &String| !matches!(by(it), Fate::Unclear(_) | Fate::Dropped);
        match !self.uplinks.is_empty() && self.uplinks.iter().all(passes) {
            true => (Fate::Passes, None),
            false => (general, dropping),
        }
    }

    /// Warnings of chains at which TCP ends that a daemon has taken in on its way, for that is delivered to this machine.
    fn for_marked(&self, side: &SideFacts) -> Vec<Finding> {
        let (role, what, mark, devices) = match side {
            SideFacts::Client(client) if client.intercepts.is_some() => {
                let own = client.local.then(|| "lo".to_owned());
                let devices = client.interfaces.iter().cloned().chain(own);
                let what = "TCP and names of the hosts";
                ("client", what, 0x1000_0000, devices.map(Some).collect())
            }
            SideFacts::Server(server) if server.intake.is_some() => {
                let what = "connections that `[sle]` takes in on their way";
                ("server", what, 0x8000_0000, vec![None])
            }
            _ => return Vec::new(),
        };
        let arrivals = devices.iter().flat_map(|device| {
            let to: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
            to.map(|to| FilteredPacket {
                protocol: ListenProtocol::Tcp,
                to,
                port: None,
                answer_from: None,
                device: device.clone(),
                mark: Some(mark),
                may_be_translated: self.translate,
                leaves: false,
            })
        });
        let closed = arrivals.flat_map(|packet| {
            let met = self
                .met_by(&packet)
                .filter(|(chain, ..)| chain.hook == INPUT);
            let ends = |fate| matches!(fate, Fate::Dropped | Fate::Unclear(_));
            let closed = met.filter(|(chain, _, table)| ends(fate::at(chain, table, &packet)));
            closed
                .map(|(chain, ..)| closed_to_marked(chain, role, what, mark))
                .collect::<Vec<_>>()
        });
        closed.collect()
    }

    /// Faults of chains at which the answers of the far end are dropped, to whom nothing is wrong with the way there.
    fn for_answers(&self, side: &SideFacts) -> Vec<Finding> {
        let ways = far_ends(side).iter().filter_map(|one| one.way.as_ref());
        let silent = ways.filter(|way| !matches!(way.reached, HandshakeResult::TunnelUp(_)));
        let dropped = silent.flat_map(|way| {
            let answer = FilteredPacket {
                protocol: ListenProtocol::Udp,
                to: match way.to {
                    SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                    SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
                },
                port: None,
                answer_from: Some(way.to.port()),
                device: way.device.clone(),
                mark: (!self.mark).then_some(0),
                may_be_translated: self.translate,
                leaves: false,
            };
            let met = self
                .met_by(&answer)
                .filter(|(chain, _, table)| fate::at(chain, table, &answer) == Fate::Dropped);
            met.map(|(chain, ..)| drops_answers(chain, way.to))
                .collect::<Vec<_>>()
        });
        dropped.collect()
    }

    /// Chains of the family of `packet`.
    fn met_by(
        &self,
        packet: &FilteredPacket,
    ) -> impl Iterator<Item = (&BaseChain, &str, &TableListing)> {
        let other = if packet.to.is_ipv4() { "ip6" } else { "ip" };
        let all = self.chains.iter().zip(&self.tables);
        all.filter(move |((chain, _), table)| chain.family != other && !table.is_dormant())
            .map(|((chain, listing), table)| (chain, listing.as_str(), table))
    }
}

/// Ends that a daemon connects to.
fn far_ends(side: &SideFacts) -> &[FarFacts] {
    match side {
        SideFacts::Client(client) => &client.servers,
        SideFacts::Pep(PepFacts {
            meeting: MeetingFacts::There(peer),
            ..
        }) => std::slice::from_ref(peer),
        _ => &[],
    }
}

fn closed_to_marked(chain: &BaseChain, role: &str, what: &str, mark: u32) -> Finding {
    let title = title(chain);
    let text = format!("chain `{title}` drops what comes in, and with it {what}");
    let mend = format!(
        "accept what the {role} has marked: `nft insert rule {title} meta mark and 0xf0000000 == {mark:#x} accept`, and where that firewall keeps its rules"
    );
    warn("firewall", text, Some(mend))
}

fn drops_answers(chain: &BaseChain, from: SocketAddr) -> Finding {
    let title = title(chain);
    let text = format!("chain `{title}` of this machine drops the answers of {from}");
    let mend = format!(
        "accept answers: `nft insert rule {title} ct state established,related accept`, and where that firewall keeps its rules"
    );
    fail("firewall", text, Some(mend))
}

fn title(chain: &BaseChain) -> String {
    format!("{} {} {}", chain.family, chain.table, chain.name)
}

/// Mend that lets strangers come to a port, in the words of the firewall that `chain` is of.
fn opening(chain: &BaseChain, listing: &str, protocol: &str, port: u16) -> String {
    match chain.table.as_str() {
        "firewalld" => format!(
            "open it: `firewall-cmd --permanent --add-port={port}/{protocol}`, then `firewall-cmd --reload`"
        ),
        "fw4" => format!(
            "open it: in /etc/config/firewall a `config rule` with `option src wan`, `option proto {protocol}`, `option dest_port {port}` and \
             `option target ACCEPT`, then `service firewall reload`"
        ),
        _ if listing.contains("chain ufw") => format!("open it: `ufw allow {port}/{protocol}`"),
        _ => format!(
            "open it: `nft insert rule {} {protocol} dport {port} accept`, and where that firewall keeps its rules",
            title(chain)
        ),
    }
}

//! Facts about an operator's PEP for the doctor: its table, its interfaces, the kernel's forwarding, firewalls, and the other PEP.

use std::net::SocketAddr;

use bentpipe_sys::link;

use super::super::handshake::{self, HandshakeAsker};
use super::super::tried;
use super::server::listens;
use super::{far, is_at, resolve};
use crate::config::{MeetingPlace, PepConfig};
use crate::doctor::facts::{HandshakeResult, ListenProtocol, MeetingFacts, PepFacts};
use crate::keys;
use crate::segments;
use crate::status::{Side, StatusReport, TunnelState};
use bentpipe_sys::privilege;

pub(super) fn pep(config: &PepConfig, running: Option<&StatusReport>) -> PepFacts {
    let links = link::links().unwrap_or_default();
    let addresses = link::addresses().unwrap_or_default();
    let net_admin = privilege::has_net_admin();
    let sides = &config.sides;
    let interfaces = [&sides.lan[..], &sides.wan].concat();
    let missing = |name: &&String| !links.iter().any(|link| link.name == **name);
    PepFacts {
        missing: interfaces.iter().filter(missing).cloned().collect(),
        table: tried(net_admin, || segments::trial(config)),
        forwarding: segments::forwarding(sides, &links, &addresses),
        closed_chains: tried(net_admin, segments::closed_chains).map(|found| {
            let told = |chains: Vec<_>| chains.into_iter().map(|it| (segments::mend(&it), it));
            found.map(|chains| told(chains).map(|(mend, chain)| (chain, mend)).collect())
        }),
        public_key: keys::read(&config.identity.private_key_file)
            .ok()
            .map(|key| key.public().to_string()),
        meeting: match &config.peer.meeting {
            MeetingPlace::Here(address) => {
                let addresses = address.implied(vec![**address]);
                MeetingFacts::Here(listens(&addresses, running, ListenProtocol::Udp))
            }
            MeetingPlace::There(address) => {
                let peer = running.and_then(peer_of_tunnel);
                let reach = |to: SocketAddr| match &peer {
                    Some((peer, health)) if is_at(address, peer) => {
                        HandshakeResult::TunnelUp(health.clone())
                    }
                    _ => shake(config, to),
                };
                MeetingFacts::There(far(&address.to_string(), resolve(address), reach))
            }
        },
    }
}

/// The other end of a running PEP's tunnel that answers, and what is said of its health.
fn peer_of_tunnel(report: &StatusReport) -> Option<(String, String)> {
    let Side::Pep(pep) = &report.side else {
        return None;
    };
    let tunnel = &pep.session.tunnel;
    let ready = tunnel.state == TunnelState::Ready;
    let health = report.health().ok().filter(|_| ready)?;
    Some((tunnel.peer.clone()?, health))
}

fn shake(config: &PepConfig, to: SocketAddr) -> HandshakeResult {
    match keys::read(&config.identity.private_key_file) {
        Err(fault) => HandshakeResult::NotTried(fault),
        Ok(key) => {
            let asker = HandshakeAsker {
                key: &key,
                peer: config.peer.public_key,
                allow_classical: config.identity.allow_classical,
                profile: config.link.profile,
                mark: None,
            };
            handshake::shake(&asker, to)
        }
    }
}

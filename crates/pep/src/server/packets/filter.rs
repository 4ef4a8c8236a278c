//! Which of a client's packets may go on: only its own, and only to where it may go.
//!
//! Asks the same judge as `dial.rs`, for every packet. What it said is remembered for a moment, and no longer than until
//! the kernel tells of a changed address or route.

use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bentpipe_proto::packets::{Header, Prohibited, prohibited};
use bentpipe_proto::tunnel::PacketKinds;
use bytes::Bytes;

use super::plan::Assigned;
use crate::bucket::Bucket;
use crate::config::Service;
use crate::net::judge::{Judge, Refusal};
use crate::server::clients::Client;
use crate::server::notices::Notices;
use crate::status::{PacketRefusals, Session};
use bentpipe_tunnel::engine::Connection;

/// Time for which a verdict holds at most.
const VERDICT: Duration = Duration::from_secs(5);

/// Destinations that verdicts are kept for; who talks to more asks anew.
const MOST_VERDICTS: usize = 4096;

/// Errors that a client is sent: at once, and in a second.
const ERRORS: f64 = 20.0;
const ERRORS_PER_SECOND: f64 = 10.0;

/// Protocols that begin with the ports of source and destination: TCP, UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];

/// State that filters share: who decides on a shard, and what was said already.
#[derive(Clone)]
pub(in crate::server) struct Rule {
    pub(in crate::server) judge: Rc<Judge>,
    pub(in crate::server) notices: Arc<Notices>,
}

/// Fate of a packet.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The packet goes on.
    Pass,
    /// The packet does not go on, and the client is told so.
    Answer(Bytes),
    /// The packet does not go on.
    Drop,
}

/// The filter of one client's packets.
pub(in crate::server) struct Filter {
    assigned: Assigned,
    client: Arc<Client>,
    rule: Rule,
    from: Prohibited,
    carried: PacketKinds,
    verdicts: HashMap<(IpAddr, Service), (Instant, bool)>,
    /// Of the judge, when they were found.
    generation: u64,
    /// Errors that may be sent.
    errors: Bucket,
    refused: PacketRefusals,
    /// The client has lost or changed rights: what it was permitted may go on from the other side.
    withdrawn: bool,
}

impl Filter {
    pub(super) fn new(
        assigned: Assigned,
        client: Arc<Client>,
        rule: Rule,
        from: Prohibited,
        carried: PacketKinds,
    ) -> Self {
        Self {
            assigned,
            client,
            rule,
            from,
            carried,
            verdicts: HashMap::new(),
            generation: 0,
            errors: Bucket::with_burst(ERRORS_PER_SECOND, ERRORS),
            refused: PacketRefusals::default(),
            withdrawn: false,
        }
    }

    /// Addresses that errors come from.
    pub(super) const fn own(&self) -> Prohibited {
        self.from
    }

    /// Name of the client.
    pub(super) fn client_name(&self) -> &str {
        &self.client.name
    }

    pub(super) fn assigned(&self) -> &Assigned {
        &self.assigned
    }

    /// Takes what is not in `own` for somebody else's from now on, and says what that was.
    pub(super) fn keep_only(&mut self, own: &Assigned) -> Assigned {
        self.assigned.keep_only(own)
    }

    /// The client's addresses.
    pub(in crate::server) fn addresses(&self) -> Vec<IpAddr> {
        self.assigned.addresses.clone()
    }

    /// The client is told, in HELLO, what it has.
    pub(in crate::server) fn announce(&self, connection: &mut Connection) {
        let Assigned { addresses, routed } = self.assigned.clone();
        connection
            .tunnel
            .agreement_mut()
            .set_packets(addresses, routed, self.carried);
    }

    /// Adds what was refused here.
    pub(in crate::server) fn count(&self, session: &mut Session) {
        if let Some(packets) = &mut session.packets {
            packets.dropped.malformed += self.refused.malformed;
            packets.dropped.spoofed = self.refused.spoofed;
            packets.dropped.policy = self.refused.policy;
            packets.dropped.limit = self.refused.limit;
        }
    }

    /// The client's rights have changed.
    pub(in crate::server) fn set_client(&mut self, client: Arc<Client>) {
        self.client = client;
        self.verdicts.clear();
        self.withdrawn = true;
    }

    /// To be called before packets are checked: verdicts that a change of addresses or routes has made doubtful go.
    pub(super) fn refresh(&mut self) {
        let generation = self.rule.judge.generation();
        if std::mem::replace(&mut self.generation, generation) != generation {
            self.verdicts.clear();
        }
    }

    pub(super) fn check(&mut self, now: Instant, packet: &[u8]) -> Verdict {
        let Some(header) = Header::parse(packet) else {
            self.refused.malformed += 1;
            return Verdict::Drop;
        };
        if !self.assigned.holds(header.source) {
            self.refused.spoofed += 1;
            return Verdict::Drop;
        }
        if !self.client.may_send(now) {
            self.refused.limit += 1;
            self.tell("packets", |name| {
                format!("{name} sends more packets a second than it may: the rest is dropped (max_packets_per_s)")
            });
            return Verdict::Drop;
        }
        let service = service(packet, &header, PortEnd::Destination);
        if self.permits(now, header.destination, service) {
            return Verdict::Pass;
        }
        self.refused.policy += 1;
        if self.may_tell(now)
            && let Some(error) = prohibited(packet, &header, self.from)
        {
            return Verdict::Answer(error);
        }
        Verdict::Drop
    }

    /// True if a packet from outside may go on to the client: from where it has lost the right to send nothing comes
    /// either, be it begun earlier.
    pub(in crate::server) fn admits(&mut self, now: Instant, packet: &[u8]) -> bool {
        if !self.withdrawn {
            return true;
        }
        let Some(header) = Header::parse(packet) else {
            return true;
        };
        // Routers on the way speak from wherever they are.
        if header.is_icmp_error(packet) {
            return true;
        }
        let service = service(packet, &header, PortEnd::Source);
        self.refresh();
        let admitted = self.permits(now, header.source, service);
        self.refused.policy += u64::from(!admitted);
        admitted
    }

    /// True if something at `address` may still be spoken to.
    pub(super) fn permits_any(&mut self, now: Instant, address: IpAddr) -> bool {
        self.permits(now, address, Service::Related)
    }

    fn permits(&mut self, now: Instant, address: IpAddr, service: Service) -> bool {
        let policy = &self.client.rights.policy;
        let service = match policy.has_ports() {
            true => service,
            false => Service::Related,
        };
        let fresh = |(since, _): &(Instant, bool)| now.saturating_duration_since(*since) < VERDICT;
        let key = (address, service);
        if let Some(known) = self.verdicts.get(&key).filter(|known| fresh(known)) {
            return known.1;
        }
        if self.verdicts.len() >= MOST_VERDICTS {
            self.verdicts.clear();
        }
        match self.rule.judge.check(policy, address, service) {
            Ok(()) => drop(self.verdicts.insert(key, (now, true))),
            Err(Refusal::Denied(denied)) => {
                self.tell(&format!("{address} {denied:?}"), |name| {
                    format!("{address} is denied: {denied} of [[client]] {name}")
                });
                self.verdicts.insert(key, (now, false));
            }
            // Nothing was found out: nothing is remembered.
            Err(Refusal::Unknown(_) | Refusal::Unsettled) => return false,
        }
        self.verdicts
            .get(&key)
            .is_some_and(|(_, permitted)| *permitted)
    }

    fn tell(&self, what: &str, text: impl FnOnce(&str) -> String) {
        let name = &self.client.name;
        self.rule.notices.tell_of_client(name, what, text);
    }

    /// True if the client may be sent another error now.
    pub(super) fn may_tell(&mut self, now: Instant) -> bool {
        self.errors.take(now)
    }
}

/// End of a packet whose port is meant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PortEnd {
    Source,
    Destination,
}

/// Service that a packet is about.
fn service(packet: &[u8], header: &Header, side: PortEnd) -> Service {
    // Without the first fragment the others are worth nothing, and that one is judged.
    if header.later_fragment || header.is_icmp_error(packet) {
        return Service::Related;
    }
    if !WITH_PORTS.contains(&header.protocol) {
        return Service::Portless;
    }
    let at = header.offset + if side == PortEnd::Source { 0 } else { 2 };
    let port = packet.get(at..).and_then(<[u8]>::first_chunk);
    port.map_or(Service::Portless, |port| {
        Service::Port(u16::from_be_bytes(*port))
    })
}

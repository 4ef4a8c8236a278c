//! Which of a client's packets may go on: only its own, and only to where it may go.
//!
//! Asks the same policy as `dial.rs`, for every packet; what it said is remembered for a moment, since asking the kernel
//! whether an address is its own is dear.

use std::collections::HashMap;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bentpipe_proto::packets::{Header, Prohibited, prohibited};
use bentpipe_proto::tunnel::PacketKinds;
use bytes::Bytes;

use super::plan::Assigned;
use crate::engine::Connection;
use crate::server::clients::Client;
use crate::status::{PacketRefusals, Session};

/// How long a verdict holds: so long a changed address of this machine may pass for another's.
const VERDICT: Duration = Duration::from_secs(5);

/// Destinations that verdicts are kept for; who talks to more asks anew.
const MOST_VERDICTS: usize = 4096;

/// Errors that a client is sent: at once, and in a second.
const ERRORS: u32 = 20;
const ERRORS_PER_SECOND: f64 = 10.0;

/// What becomes of a packet.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It goes on.
    Pass,
    /// It does not, and the client is told so.
    Answer(Bytes),
    /// It does not.
    Drop,
}

/// The filter of one client's packets.
#[derive(Debug)]
pub(in crate::server) struct Filter {
    assigned: Assigned,
    client: Arc<Client>,
    from: Prohibited,
    carried: PacketKinds,
    verdicts: HashMap<IpAddr, (Instant, bool)>,
    /// Errors that may be sent now, and since when that is known.
    errors: (f64, Instant),
    refused: PacketRefusals,
}

impl Filter {
    pub(super) fn new(
        assigned: Assigned,
        client: Arc<Client>,
        from: Prohibited,
        carried: PacketKinds,
        now: Instant,
    ) -> Self {
        Self {
            assigned,
            client,
            from,
            carried,
            verdicts: HashMap::new(),
            errors: (f64::from(ERRORS), now),
            refused: PacketRefusals::default(),
        }
    }

    /// Whom errors come from.
    pub(super) const fn own(&self) -> Prohibited {
        self.from
    }

    pub(super) fn assigned(&self) -> &Assigned {
        &self.assigned
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
            .set_packets(addresses, routed, self.carried);
    }

    /// Adds what was refused here.
    pub(in crate::server) fn count(&self, session: &mut Session) {
        if let Some(packets) = &mut session.packets {
            packets.dropped.malformed += self.refused.malformed;
            packets.dropped.spoofed = self.refused.spoofed;
            packets.dropped.policy = self.refused.policy;
        }
    }

    /// The client's rights have changed.
    pub(in crate::server) fn set_client(&mut self, client: Arc<Client>) {
        self.client = client;
        self.verdicts.clear();
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
        if self.permits(now, header.destination) {
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

    fn permits(&mut self, now: Instant, address: IpAddr) -> bool {
        let fresh = |(since, _): &(Instant, bool)| now.saturating_duration_since(*since) < VERDICT;
        if let Some(known) = self.verdicts.get(&address).filter(|known| fresh(known)) {
            return known.1;
        }
        if self.verdicts.len() >= MOST_VERDICTS {
            self.verdicts.clear();
        }
        let policy = &self.client.rights.policy;
        let permitted =
            policy.check(address).is_ok() && (policy.allows_own(address) || !is_own(address));
        self.verdicts.insert(address, (now, permitted));
        permitted
    }

    /// Whether the client may be sent another error now.
    pub(super) fn may_tell(&mut self, now: Instant) -> bool {
        let (left, since) = self.errors;
        let earned = now.saturating_duration_since(since).as_secs_f64() * ERRORS_PER_SECOND;
        let left = (left + earned).min(f64::from(ERRORS));
        let may = left >= 1.0;
        self.errors = (if may { left - 1.0 } else { left }, now);
        may
    }
}

/// True if `address` is one of this machine's: only then can a socket be bound to it.
fn is_own(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

//! Turns a connection's counters into the figures of `status`: rates over the last second, totals.

use std::time::Instant;

use bentpipe_units::BitRate;
use quinn_proto::Side;

use crate::status::{
    Acks, ClassSource, Families, Flows, LinkClass, Memory, PacketDrops, Packets, Receiving,
    Refused, Repairs, Sending, Session, Tunnel, TunnelState, Volumes, WireKind, milliseconds,
    quantity,
};
use crate::throttle::Throttle;
use bentpipe_tunnel::engine::{Connection, Profile, identity};
use bentpipe_tunnel::text::printable;
use bentpipe_tunnel::transport::{PacketStats, Refusals};

/// IPv4 and UDP headers, in bytes: `status` gives rates at the IP layer.
const HEADERS: u64 = 28;

/// Remembers the last look at one connection.
pub(crate) struct Sampler {
    since: Instant,
    last: Option<(Instant, u64, u64)>,
    shed: ShedNotice,
}

/// Notice of connections that were reset for want of memory: one a minute, so that none goes untold.
struct ShedNotice {
    told: u64,
    throttle: Throttle,
}

impl ShedNotice {
    /// Number of connections that are to be told of now, of `total` since the tunnel began.
    fn take(&mut self, now: Instant, total: u64) -> Option<u64> {
        let untold = total.saturating_sub(self.told);
        if untold == 0 || !self.throttle.is_due(now) {
            return None;
        }
        self.told = total;
        Some(untold)
    }
}

impl Sampler {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            since: now,
            last: None,
            shed: ShedNotice {
                told: 0,
                throttle: Throttle::new(),
            },
        }
    }

    /// Warns of connections that were reset for want of memory, if there are new ones; `of`: the client whose they were, at a
    /// server.
    pub(crate) fn tell_of_shed(&mut self, now: Instant, connection: &Connection, of: &str) {
        let total = connection.tunnel.stats().shed;
        if let Some(count) = self.shed.take(now, total) {
            let connections = quantity(count, "connection");
            tracing::warn!(
                "memory was used up, and {connections}{of} that held most of it had to be reset: raise `memory` or `total_memory` \
                 of [limits], whichever `status` shows near its end"
            );
        }
    }

    pub(crate) fn sample(
        &mut self,
        now: Instant,
        connection: &Connection,
        state: TunnelState,
    ) -> Session {
        let stats = connection.quic().stats();
        let (tx, rx) = (stats.udp_tx, stats.udp_rx);
        let sent = tx.bytes + tx.datagrams * HEADERS;
        let received = rx.bytes + rx.datagrams * HEADERS;
        let rates = self.rates(now, sent, received);
        let counters = connection.tunnel.stats();
        let (used, ceiling) = connection.tunnel.memory();
        Session {
            tunnel: self.tunnel(now, connection, state, rates),
            flows: Flows {
                active: connection.tunnel.flow_count() as u64,
                opened_total: counters.opened,
                refused_total: counters.refused,
                refused: refused(&counters.refusals),
                shed_total: counters.shed,
                waiting: 0,
            },
            bytes: Volumes {
                lan_in: counters.lan_in,
                lan_out: counters.lan_out,
                wire_in: rx.bytes,
                wire_out: tx.bytes,
            },
            memory: Memory { used, ceiling },
            ledger_bytes: Some(connection.ledger()),
            metering: None,
            measured: None,
            dns: None,
            packets: packets(connection),
            associations: None,
            publish: Vec::new(),
            sle: None,
            les: None,
            web: None,
        }
    }

    /// Bits per second that were sent and received since the last look, of `sent` and `received` bytes in all.
    fn rates(&mut self, now: Instant, sent: u64, received: u64) -> (u64, u64) {
        let last = self.last.replace((now, sent, received));
        last.map_or((0, 0), |(then, before_sent, before_received)| {
            let elapsed = now.saturating_duration_since(then).as_secs_f64().max(1e-3);
            let rate = |after: u64, before: u64| {
                ((after.saturating_sub(before)) as f64 * 8.0 / elapsed) as u64
            };
            (rate(sent, before_sent), rate(received, before_received))
        })
    }

    fn tunnel(
        &self,
        now: Instant,
        connection: &Connection,
        state: TunnelState,
        (sent, received): (u64, u64),
    ) -> Tunnel {
        let path = connection.quic().stats().path;
        let (rtt, min_rtt) = connection.rtt();
        let (window, pacing, _) = connection.congestion();
        let draining = connection.tunnel.is_draining();
        let silent = connection.silent_since(now).filter(|_| !draining);
        let since = silent.unwrap_or(self.since);
        Tunnel {
            state: match draining {
                true => TunnelState::Draining,
                false if silent.is_some() => TunnelState::Silent,
                false => state,
            },
            peer: Some(connection.peer().to_string()),
            wire: Some(match connection.is_on_reliable_wire() {
                true => WireKind::Tls,
                false => WireKind::Udp,
            }),
            since_s: now.saturating_duration_since(since).as_secs(),
            last_heard_s: connection
                .heard()
                .map(|heard| now.saturating_duration_since(heard).as_secs()),
            next_attempt_s: None,
            last_error: None,
            rtt_ms: Some(milliseconds(rtt)),
            min_rtt_ms: Some(milliseconds(min_rtt)),
            send_rate_bit_s: sent,
            recv_rate_bit_s: received,
            loss_ratio: path.lost_packets as f64 / path.sent_packets.max(1) as f64,
            window_bytes: window,
            pacing_rate_bit_s: Some(pacing.as_u64()),
            resumed_rate_bit_s: connection.resumed().map(|saved| saved.rate.as_u64()),
            key_exchange: identity::key_exchange(connection.quic()).map(str::to_owned),
            mtu: Some(path.current_mtu),
            link: hinted(connection),
            sending: Some(sending(now, connection)),
            receiving: receiving(connection),
            families: families(connection),
            fec: repairs(connection),
        }
    }
}

pub(crate) fn refused(refusals: &Refusals) -> Refused {
    Refused {
        denied: refusals.denied,
        refused: refusals.refused,
        unreachable: refusals.unreachable,
        name: refusals.name,
        limit: refusals.limit,
        family: refusals.family,
        other: refusals.other,
    }
}

/// Families that a client has been told that its server reaches; a server says that of itself once.
fn families(connection: &Connection) -> Option<Families> {
    let hello = connection.tunnel.agreement().remote()?;
    let client = connection.quic().side().is_client();
    client.then(|| hello.families.into())
}

/// Packets that cross, where both ends have agreed to that.
fn packets(connection: &Connection) -> Option<Packets> {
    let tunnel = &connection.tunnel;
    let server = match connection.quic().side() {
        Side::Client => tunnel.agreement().remote()?,
        Side::Server => tunnel.agreement().local(),
    };
    tunnel.agreement().carries_packets().then(|| {
        let mut packets = Packets {
            assigned: server.assigned.clone(),
            routed: server.routed.clone(),
            unrouted: Vec::new(),
            carried: server.carried.into(),
            ..Packets::default()
        };
        packets.count(&tunnel.packet_stats());
        packets
    })
}

impl Packets {
    /// Takes the figures of one tunnel, or of several together.
    pub(crate) fn count(&mut self, stats: &PacketStats) {
        self.sent = stats.sent;
        self.sent_bytes = stats.sent_bytes;
        self.received = stats.received;
        self.received_bytes = stats.received_bytes;
        self.marked = stats.marked;
        self.dropped = PacketDrops {
            age: stats.dropped.age,
            codel: stats.dropped.codel,
            overflow: stats.dropped.overflow + stats.overrun,
            incomplete: stats.incomplete,
            malformed: stats.malformed,
            ..self.dropped
        };
    }
}

/// Class that a client hints at; it knows itself why (`client/link.rs`).
fn hinted(connection: &Connection) -> Option<LinkClass> {
    let link = connection.link();
    connection.quic().side().is_server().then(|| LinkClass {
        profile: link.profile,
        class: link.profile,
        source: match link.profile {
            Profile::Auto => ClassSource::Unknown,
            _ => ClassSource::Hinted,
        },
        rtt_ms: link.rtt.map(milliseconds),
        next_class: None,
    })
}

fn sending(now: Instant, connection: &Connection) -> Sending {
    let path = connection.quic().stats().path;
    let (window, pacing, in_flight) = connection.congestion();
    let (_, min_rtt) = connection.rtt();
    let wishes = connection.sends_with();
    let asks = connection.asks();
    Sending {
        controller: connection.controller().name().to_owned(),
        pacing_rate_bit_s: pacing.as_u64(),
        window_bytes: window,
        in_flight_bytes: in_flight,
        bottleneck_rate_bit_s: connection.saved(now).map(|saved| saved.rate.as_u64()),
        min_rtt_ms: milliseconds(min_rtt),
        loss_ratio: path.lost_packets as f64 / path.sent_packets.max(1) as f64,
        packets_total: path.sent_packets,
        lost_packets_total: path.lost_packets,
        repeated_datagrams: connection.repeated(),
        max_rate_bit_s: wishes.max_rate.map(BitRate::as_u64),
        rate_bit_s: wishes.rate.map(BitRate::as_u64),
        acks: Acks {
            packets: asks.packets.into(),
            delay_ms: milliseconds(asks.delay),
        },
    }
}

/// Repairs that were made, if there were any.
fn repairs(connection: &Connection) -> Option<Repairs> {
    let received = connection.lane().fec().received;
    // Copies of voice and of what stands alone are overhead like repairs.
    let sent = connection.ledger().sent;
    (sent.repair + received.repairs > 0).then(|| Repairs {
        sent_bytes: sent.repair,
        overhead_ratio: sent.repair as f64 / sent.total().max(1) as f64,
        received_bytes: received.repairs,
        recovered_bytes: received.mended,
        wasted_bytes: received.repairs.saturating_sub(received.used),
    })
}

/// Settings of the peer's sending that its HELLO tells.
fn receiving(connection: &Connection) -> Option<Receiving> {
    let hello = connection.tunnel.agreement().remote()?;
    let acks = hello.acks.map(|acks| Acks {
        packets: acks.packets,
        delay_ms: milliseconds(acks.delay),
    });
    let forward = Some(&hello.forward).filter(|_| connection.quic().side().is_client());
    Some(Receiving {
        controller: match forward {
            Some(forward) => forward.controller.as_ref().map(printable),
            None => hello.return_controller.as_ref().map(printable),
        },
        max_rate_bit_s: forward
            .and_then(|forward| forward.max_rate)
            .map(BitRate::as_u64),
        rate_bit_s: forward
            .and_then(|forward| forward.rate)
            .map(BitRate::as_u64),
        acks,
        blocked_ratio: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    fn connections_that_were_reset_are_told_of_once_a_minute_and_none_is_left_out() {
        let mut notice = ShedNotice {
            told: 0,
            throttle: Throttle::new(),
        };
        let start = Instant::now();
        let totals = [
            (0, 0),
            (1, 3),
            (2, 5),
            (60, 5),
            (61, 6),
            (62, 6),
            (200, 6),
            (300, 7),
        ];
        let told: Vec<_> = totals
            .iter()
            .map(|(second, total)| notice.take(start + Duration::from_secs(*second), *total))
            .collect();
        assert_eq!(
            told,
            [None, Some(3), None, None, Some(3), None, None, Some(1)]
        );
    }
}

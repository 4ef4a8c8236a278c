//! Acknowledgements in both directions: what the peer is owed, and what it is asked for.

use std::time::{Duration, Instant};

use bentpipe_proto::tunnel::Acks;
use quinn_proto::FrameStats;

use super::super::ack_demand::{AckDemand, AckDuty};
use super::super::profile::{ACK_DELAY, AckPolicy};

/// Fewer datagrams than this do not open the gate by their number, however few to an ACK the peer wishes.
const FEWEST_OWED: u64 = 16;

/// Time in which [`BULK`] packets with content make a peer that sends in bulk, and for which it counts as one.
const BUSY: Duration = Duration::from_millis(100);

/// Packets with content in [`BUSY`], some 3 Mbit/s: far more than credit and requests come to.
const BULK: u64 = 25;

/// Shortest ACK delay that quinn takes; it asks for none that is shorter than a round trip.
const SHORTEST_DELAY: Duration = Duration::from_millis(25);

/// Acknowledgements that both sides of a connection want and owe.
#[derive(Debug)]
pub(super) struct Acknowledgements {
    /// Policy by which the peer wants to be acknowledged, as it has told QUIC.
    policy: Acks,
    /// Acknowledgements that this side wants where round trips are short, and that the peer wants.
    demand: AckDemand,
    duty: AckDuty,
    inbound: Inbound,
    /// Datagrams received and still unanswered: when the oldest came, and how many there are.
    unanswered: Option<(Instant, u64)>,
}

impl Acknowledgements {
    /// The peer is taken to want `asked` until it says otherwise, and is told `asks`.
    pub(super) fn new(asked: AckPolicy, asks: AckPolicy) -> Self {
        Self {
            policy: asked.announced(),
            demand: AckDemand::new(asks),
            duty: AckDuty::default(),
            inbound: Inbound::default(),
            unanswered: None,
        }
    }

    /// Sets the policy that the peer has told QUIC.
    pub(super) fn set_policy(&mut self, policy: Acks) {
        self.policy = policy;
    }

    /// Takes the peer's wish beyond that.
    pub(super) fn on_wish(&mut self, wish: Acks) {
        self.duty.ask(wish);
    }

    /// Notes that a datagram came.
    pub(super) fn on_datagram(&mut self, now: Instant) {
        self.unanswered.get_or_insert((now, 0)).1 += 1;
    }

    /// Notes what quinn has read; it has counted these `frames` so far.
    pub(super) fn on_frames(&mut self, now: Instant, frames: &FrameStats) {
        if self.duty.on_received(now, frames) {
            self.inbound.on_content(now);
        }
    }

    /// Notes that packets left.
    pub(super) fn on_sent(&mut self) {
        self.unanswered = None;
    }

    /// Notes what quinn has written; it has counted these `frames` so far.
    pub(super) fn on_frames_sent(&mut self, frames: &FrameStats) {
        self.duty.on_sent(frames.acks);
    }

    /// True if an ACK is due that quinn alone would hold back.
    pub(super) fn take_due(&mut self, now: Instant) -> bool {
        self.duty.take_due(now)
    }

    /// Notes that the ACK that was due cannot leave, because quinn sends nothing: it would be due again and again.
    pub(super) fn on_unsendable(&mut self) {
        self.duty.forget();
    }

    /// True if the peer has been owed an answer for longer than it was promised; it is then taken to leave.
    pub(super) fn take_overdue(&mut self, now: Instant, rtt: Duration) -> bool {
        let overdue = self.unanswered.is_some_and(|(since, count)| {
            count > self.policy.packets.max(FEWEST_OWED) || now >= since + self.within(rtt)
        });
        if overdue {
            self.unanswered = None;
        }
        overdue
    }

    /// Instant at which an answer will be overdue.
    pub(super) fn overdue_at(&self, rtt: Duration) -> Option<Instant> {
        self.unanswered.map(|(since, _)| since + self.within(rtt))
    }

    /// Instant at which an ACK is due that quinn alone would hold back.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.duty.poll_timeout()
    }

    /// Time within which the peer wants to be answered, as quinn bounds it.
    fn within(&self, rtt: Duration) -> Duration {
        let longest = rtt.max(SHORTEST_DELAY);
        self.policy.delay.clamp(ACK_DELAY[0], longest)
    }

    /// Longest time that the peer may hold an ACK back now.
    pub(super) fn held_by_peer(&self, now: Instant, rtt: Duration) -> Duration {
        self.demand.delay(now).min(rtt.max(SHORTEST_DELAY))
    }

    /// Time for which windows are to allow on top of the round trip. While the peer sends in bulk as well, its ACKs wait in the
    /// queue behind its data.
    pub(super) fn allowance(&self, now: Instant, rtt: Duration) -> Duration {
        self.demand.allowance(now, rtt, self.inbound.is_bulk(now))
    }

    /// Wish for a window of `packets`, if the peer is to hear of it.
    pub(super) fn poll_wish(&mut self, now: Instant, packets: u64, rtt: Duration) -> Option<Acks> {
        self.demand.poll(now, packets, rtt)
    }
}

/// Packets with content that the peer sends.
#[derive(Debug, Default)]
struct Inbound {
    /// Beginning of the present span, and the packets with content in it.
    span: Option<(Instant, u64)>,
    bulk_at: Option<Instant>,
}

impl Inbound {
    /// A packet with content came.
    fn on_content(&mut self, now: Instant) {
        let span = self.span.filter(|(start, _)| now < *start + BUSY);
        let (start, before) = span.unwrap_or((now, 0));
        let count = before + 1;
        self.span = Some((start, count));
        if count >= BULK {
            self.bulk_at = Some(now);
        }
    }

    /// True while the peer sends in bulk.
    fn is_bulk(&self, now: Instant) -> bool {
        self.bulk_at.is_some_and(|at| now < at + BUSY)
    }
}

/// Frames sent so far that the peer has to acknowledge (RFC 9000 §13.2.1), other than those of which
/// each connection sends a handful.
pub(super) fn ack_eliciting(sent: &FrameStats) -> u64 {
    let flow_control = sent.max_data + sent.max_stream_data + sent.max_streams_bidi;
    let ends = sent.reset_stream + sent.stop_sending;
    let path = sent.ping + sent.path_challenge + sent.path_response;
    sent.stream + sent.datagram + sent.crypto + flow_control + ends + path
}

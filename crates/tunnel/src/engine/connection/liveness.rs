//! What a connection does when it hears nothing: whom silence matters to, when it asks, and what an outage is.

use std::time::{Duration, Instant};

use quinn_proto::Side;

use super::UnreachableCause;
use crate::engine::gate::{LEAST_MTU, Progress};
use crate::engine::prober::Prober;
use crate::transport::Streams;

/// Not to hear of a peer for so long is an outage: where flows are open, either side asks before.
const SILENT: Duration = Duration::from_secs(6);

/// In an outage the peer is excused for what it owes, and for so long after it: what was lost has to leave once more.
const CATCH_UP: Duration = Duration::from_secs(10);

/// A peer that is not heard for this long although an answer is overdue is called silent.
const UNHEARD: Duration = Duration::from_secs(5);

/// A peer that is heard, and answers nothing of what is sent to it for this long, is called silent as well: the path is blocked in
/// this direction. Longer than queues that fill make an answer wait.
const UNANSWERED: Duration = Duration::from_secs(10);

/// Silence after which an end with open flows asks whether the path still stands: if a client's address has changed,
/// a server that only sends can never reach it, and after an outage a receiver is to say where it waits.
const SILENCE: Duration = Duration::from_secs(3);

/// Datagrams that ask loudly are this far apart: there are dozens of probes a second.
const QUIET: Duration = Duration::from_millis(250);

/// For how long after the last payload a flow counts as waiting for more.
const RECENT: Duration = Duration::from_secs(60);
/// And so much longer in an outage.
const PATIENT: Duration = Duration::from_secs(240);

/// A peer who is heard after so long keeps the tunnel alive.
const LONG: Duration = Duration::from_secs(20);

/// A peer holds its ACKs back for so long at most, if it was not told otherwise (RFC 9000 §18.2).
const MAX_HELD: Duration = Duration::from_millis(25);

/// Granularity of timers (RFC 9002 §6.1.2).
pub(super) const GRANULARITY: Duration = Duration::from_millis(1);

/// Soon after payload the path is listened to so often.
const LISTEN: Duration = Duration::from_secs(20);

/// A probe of ours gives way to one of QUIC's that comes this soon.
const GIVEN_WAY: Duration = Duration::from_millis(250);

/// Probe timeouts without an acknowledgement after which a probe of ours gives way to nothing: by then QUIC has sent two of its own
/// and given a size up that the path does not take. A peer that asks all the time keeps a timer of QUIC's near, that of its ACK.
const GIVEN_WAY_AT_MOST: u32 = SIZE_DOUBTED + 1;

/// Probe timeouts without an acknowledgement of a large datagram after which the path is believed to take smaller ones only.
/// A single one that was lost is sent again, and acknowledged, within three round trips, which are two probe timeouts.
const SIZE_DOUBTED: u32 = 3;

/// Record of when the peer was heard, and what its silence means.
pub(super) struct Liveness {
    prober: Prober,
    /// Instant at which the peer was last heard, or asked because it was not.
    received: Instant,
    /// Instant at which the peer was last heard.
    heard: Instant,
    /// Instant at which the last outage ended.
    silence_ended: Option<Instant>,
    /// Instant at which payload last came.
    payload: Instant,
    /// Instant at which the path was last listened to at rest.
    listened: Instant,
    /// Instant at which one of a client's probes is to be loud again.
    quiet_until: Option<Instant>,
    /// Flows wait for the end of an outage before they are opened.
    wanted: bool,
    /// The shell was last told of an outage.
    told_outage: bool,
    /// Reason to believe nothing that was heard before.
    doubt: Option<Doubt>,
    /// Instant at which the peer was last heard in an outage.
    returned: Option<Instant>,
    /// Instant at which the present size of datagrams is given up.
    size_deadline: Option<Instant>,
    /// Instant from which on probes give way to nothing.
    firm_from: Instant,
    /// Datagrams that QUIC had sent when one last did not leave this machine, and why not.
    unsent: Option<(u64, UnreachableCause)>,
}

/// Question whether the peer still answers.
#[derive(Clone, Copy)]
struct Doubt {
    since: Instant,
    /// The peer was asked.
    asked: bool,
}

impl Liveness {
    pub(super) fn new(prober: Prober, now: Instant) -> Self {
        Self {
            prober,
            received: now,
            heard: now,
            silence_ended: None,
            payload: now,
            listened: now,
            quiet_until: None,
            wanted: false,
            told_outage: false,
            doubt: None,
            returned: None,
            size_deadline: None,
            firm_from: now,
            unsent: None,
        }
    }

    /// Notes that a datagram, the last of as many as were `sent`, did not leave this machine.
    pub(super) fn on_unsent(&mut self, sent: u64, why: UnreachableCause) {
        self.unsent = Some((sent, why));
    }

    /// Cause for which the last of as many datagrams as were `sent` did not leave this machine.
    pub(super) fn unsent(&self, sent: u64) -> Option<UnreachableCause> {
        let last = self.unsent.filter(|(at, _)| *at == sent);
        last.map(|(_, why)| why)
    }

    /// Notes that a datagram came, while round trips take `rtt`. True if that ends a long silence: the peer's keep-alive puts off
    /// ours, whose answer would tell if somebody fills the path by now; so it is to be asked at once.
    pub(super) fn on_datagram(&mut self, now: Instant, rtt: Duration) -> bool {
        let silence = now.saturating_duration_since(self.received);
        if self.prober.is_outage() {
            self.returned = Some(now);
            if silence > rtt {
                self.prober.hurry(now);
            }
        }
        if self.is_unheard(now, SILENT) {
            self.silence_ended = Some(now);
        }
        self.received = now;
        self.heard = now;
        silence >= LONG
    }

    /// Has the next probe of an outage leave at once: the path is another one.
    pub(super) fn hurry(&mut self, now: Instant) {
        self.prober.hurry(now);
    }

    /// Has the peer asked whether it still answers. Until something is acknowledged that leaves from now on, that counts as an outage,
    /// the beginning of which is no news to whoever doubts. Only that is a proof: what was received before may come to hand later.
    pub(super) fn doubt(&mut self, now: Instant) {
        self.doubt = Some(Doubt {
            since: now,
            asked: false,
        });
        self.quiet_until = None;
        self.told_outage = true;
    }

    /// True in an outage, or while there is reason to doubt that there is none.
    fn is_outage(&self) -> bool {
        self.prober.is_outage() || self.doubt.is_some()
    }

    fn is_unheard(&self, now: Instant, span: Duration) -> bool {
        now.saturating_duration_since(self.heard) >= span
    }

    /// Instant at which the peer was last heard.
    pub(super) fn heard(&self) -> Instant {
        self.heard
    }

    /// Instant since which the peer answers nothing, in an outage: it may be heard all the same.
    pub(super) fn unanswered_since(&self) -> Option<Instant> {
        self.prober.outage_since()
    }

    /// Instant since which the peer is silent: an answer is overdue, and nothing has been heard for longer than short gaps of a link
    /// last, or nothing was answered for longer still. Who owes nothing is not silent, however long ago it was heard.
    pub(super) fn silent_since(&self, now: Instant) -> Option<Instant> {
        let unanswered = self.prober.outage_since()?;
        let unheard = self.heard.max(unanswered);
        let lasts = |since: Instant, span| now.saturating_duration_since(since) >= span;
        match lasts(unanswered, UNANSWERED) {
            true => Some(unanswered),
            false => lasts(unheard, UNHEARD).then_some(unheard),
        }
    }

    /// True while an outage excuses the peer for what it owes.
    pub(super) fn is_excused(&self, now: Instant) -> bool {
        let behind = self.silence_ended.is_some_and(|end| now < end + CATCH_UP);
        self.is_unheard(now, SILENT) || behind
    }

    /// True for a round trip after the peer was heard in an outage: only then is it of use to say again what it waits for.
    pub(super) fn has_returned(&self, now: Instant, rtt: Duration) -> bool {
        self.returned.is_some_and(|at| now < at + rtt)
    }

    /// The beginning of an outage (true) or its end, once each.
    pub(super) fn take_news(&mut self) -> Option<bool> {
        let outage = self.is_outage();
        let told = std::mem::replace(&mut self.told_outage, outage);
        (told != outage).then_some(outage)
    }

    /// Notes that payload came.
    pub(super) fn on_payload(&mut self, now: Instant) {
        self.payload = now;
    }

    /// True if a flow that is open probably waits for more. In an outage nothing comes for anybody: who waited when it began does
    /// so for some time.
    pub(super) fn is_payload_recent(&self, now: Instant) -> bool {
        let recent = match self.prober.is_outage() {
            true => RECENT + PATIENT,
            false => RECENT,
        };
        now.saturating_duration_since(self.payload) < recent
    }

    /// Notes that somebody waits for the end of an outage.
    pub(super) fn want(&mut self) {
        self.wanted = true;
    }

    /// True if somebody waits for the end of an outage.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Takes the present state: `unanswered`, something ack-eliciting is in flight; `waiting`, flows wait for the peer.
    pub(super) fn update(
        &mut self,
        now: Instant,
        progress: Progress,
        unanswered: bool,
        waiting: bool,
    ) {
        self.firm_from = progress.since + GIVEN_WAY_AT_MOST * progress.pto;
        self.prober.update(now, progress, unanswered, waiting);
        let is_proven = |doubt: &Doubt| progress.newest_sent >= Some(doubt.since);
        self.doubt = self.doubt.filter(|doubt| !is_proven(doubt));
        self.wanted &= self.is_outage();
    }

    /// True if a probe is to leave now.
    pub(super) fn poll_probe(&mut self, now: Instant, quic: &mut Streams) -> bool {
        if let Some(doubt) = self.doubt.as_mut().filter(|doubt| !doubt.asked) {
            // Once: if it is not answered, the prober finds an outage as it does any other time.
            doubt.asked = true;
            return true;
        }
        if let Some(until) = self.gives_way_until(now, quic) {
            self.prober.defer(until);
        }
        self.prober.poll(now, quic.rtt())
    }

    /// Instant at which the next probe is due.
    pub(super) fn probe_at(&self) -> Option<Instant> {
        let doubt = self.doubt.filter(|doubt| !doubt.asked);
        doubt
            .map(|doubt| doubt.since)
            .or_else(|| self.prober.poll_timeout())
    }

    /// Until when a probe that is due has to wait. A peer that is heard and acknowledges nothing may not get datagrams of
    /// this size any more. QUIC's own probes are small enough for every path, and find that out; but each probe of ours,
    /// which is filled up with payload, would put them off.
    fn gives_way_until(&self, now: Instant, quic: &mut Streams) -> Option<Instant> {
        let heard = now.saturating_duration_since(self.heard) <= 2 * quic.rtt().max(MAX_HELD);
        let firm = now >= self.firm_from || quic.current_mtu() <= LEAST_MTU;
        if !heard || firm || !self.prober.is_due(now) {
            return None;
        }
        let next = quic.poll_timeout()? + GRANULARITY;
        (next > now && next <= now + GIVEN_WAY).then_some(next)
    }

    /// True if a client's probe is to be loud, now and then; its next ones are not.
    pub(super) fn take_loud(&mut self, now: Instant) -> bool {
        let loud = self.quiet_until.is_none_or(|until| until <= now);
        if loud {
            self.quiet_until = Some(now + QUIET);
        }
        loud
    }

    /// Takes since when large datagrams have left without that any was acknowledged, if they have.
    pub(super) fn doubt_size(&mut self, unproven: Option<Instant>, pto: Duration) {
        self.size_deadline = unproven.map(|since| since + SIZE_DOUBTED * pto);
    }

    /// Instant at which the present size of datagrams is given up, if none of that size is acknowledged before.
    pub(super) fn size_deadline(&self) -> Option<Instant> {
        self.size_deadline
    }

    /// Instant at which to ask, soon after there was payload, whether somebody fills the path: more of it is likely to come.
    pub(super) fn listening_deadline(&self) -> Option<Instant> {
        let next = self.listened.max(self.payload) + LISTEN;
        (next < self.payload + RECENT).then_some(next)
    }

    /// Notes that the path is listened to.
    pub(super) fn on_listened(&mut self, now: Instant) {
        self.listened = now;
    }

    /// Instant at which to ask whether the path still stands; flows exist, if `has_flows`; packets may come until `packets_until`.
    pub(super) fn silence_deadline(
        &self,
        side: Side,
        rtt: Duration,
        has_flows: bool,
        packets_until: Option<Instant>,
    ) -> Option<Instant> {
        let patience = match side {
            Side::Client => SILENCE,
            // The client asks first.
            Side::Server => SILENCE + 2 * rtt,
        };
        let until = has_flows.then(|| self.payload + RECENT).max(packets_until);
        let deadline = self.received + patience;
        until
            .is_some_and(|until| deadline < until)
            .then_some(deadline)
    }

    /// Notes that the peer was asked. Once: from then on the prober sees an unanswered packet and takes over.
    pub(super) fn on_asked(&mut self, now: Instant) {
        self.received = now;
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "one base instant; all else is virtual"
)]
mod tests {
    use bentpipe_units::Seed;

    use super::*;

    #[test]
    fn only_an_answer_to_what_leaves_after_a_sleep_ends_the_doubt() {
        let start = Instant::now();
        let mut liveness = Liveness::new(Prober::new(Seed::new(1)), start);
        let woken = start + Duration::from_secs(20);
        liveness.doubt(woken);
        liveness.want();
        assert_eq!(
            liveness.probe_at(),
            Some(woken),
            "the peer is asked at once"
        );
        let acked = |sent| Progress {
            since: woken,
            pto: Duration::from_millis(900),
            newest_sent: Some(sent),
        };
        // An acknowledgement that has waited in the socket since before the sleep.
        liveness.on_datagram(woken, Duration::from_millis(600));
        liveness.update(woken, acked(woken - Duration::from_secs(1)), true, false);
        assert_eq!(liveness.take_news(), None);
        assert!(liveness.is_wanted(), "connections wait on");
        let answered = woken + Duration::from_millis(600);
        liveness.update(answered, acked(woken), false, false);
        assert_eq!(liveness.take_news(), Some(false));
        assert_eq!(liveness.take_news(), None, "once");
    }
}

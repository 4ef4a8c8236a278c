//! Acknowledgements on paths whose round trip is short beside QUIC's acknowledgement delay.
//!
//! quinn asks its peer once for an ACK after 200 packets or some milliseconds ([`AckPolicy`]), and
//! takes no other wish later. A window of fewer packets would then wait for the time to pass, once
//! for every window: the rate falls to window / delay, is measured, believed, and never rises again.
//! So a sender says in the control frame ACKS (`PROTOCOL.md` §5.7) what its window permits
//! ([`AckDemand`]), and the receiver answers with a packet of its own that makes quinn acknowledge
//! ([`AckDuty`]). Pure state: `now` is an argument, `connection/sending.rs` acts.

use std::time::{Duration, Instant};

use bentpipe_proto::tunnel::Acks;
use quinn_proto::FrameStats;

use super::profile::AckPolicy;

/// ACKs that a window brings at least: with four, three quarters of it are under way while one is answered.
const ACKS_PER_WINDOW: u64 = 4;
/// ACKs that a round trip brings by time alone.
const ACKS_PER_ROUND: u32 = 8;
/// Shortest time that is asked for: with less, ACKs cost more CPU time than the window that they save.
const SHORTEST: Duration = Duration::from_millis(1);
/// Part of QUIC's delay for which ACKs wait behind the peer's data where both directions are busy. With all of it a short queue
/// drops 4 to 40 % at 2 ms; without, one direction in two of 10 Mbit/s and 5 ms falls to half of its rate.
const BEHIND_DATA: u32 = 2;
/// Round trips that last so many times QUIC's delay need nothing but that.
const LONG: u32 = 4;

/// Sender's half: how it wants to be acknowledged, and for how long an ACK may be held back.
#[derive(Debug)]
pub(super) struct AckDemand {
    /// Policy that QUIC has told the peer; `None` for a fixed ratio, which the operator wants as it is.
    policy: Option<Acks>,
    /// Wish in force, or on its way.
    asked: Option<Acks>,
    /// Until then the peer may not have heard of `asked`.
    settled: Option<Instant>,
    /// Longest delay while that is so.
    before: Duration,
}

impl AckDemand {
    /// A demand beyond `policy`, of which QUIC has told the peer.
    pub(super) fn new(policy: AckPolicy) -> Self {
        let announced = policy.announced();
        Self {
            policy: (!policy.is_fixed()).then_some(announced),
            asked: None,
            settled: None,
            before: announced.delay,
        }
    }

    /// The wish for a window of `packets` and a round trip of `rtt`, if it differs from the last one
    /// by a factor of two.
    pub(super) fn poll(&mut self, now: Instant, packets: u64, rtt: Duration) -> Option<Acks> {
        let policy = self.policy?;
        let wanted = wanted(policy, packets, rtt);
        let asked = self.asked.unwrap_or(policy);
        if !(differs(asked.packets, wanted.packets)
            || differs(micros(asked.delay), micros(wanted.delay)))
        {
            return None;
        }
        self.before = self.delay(now).max(asked.delay);
        // The wish arrives within a round trip, and what the peer holds back by the old one in another.
        self.settled = Some(now + rtt * 2 + self.before);
        self.asked = Some(wanted);
        Some(wanted)
    }

    /// Longest time that the peer may hold an ACK back now, or that ACKs wait behind its data where both directions are busy; zero
    /// on paths that are long beside it, where windows have room for it anyway.
    pub(super) fn allowance(&self, now: Instant, rtt: Duration, both_busy: bool) -> Duration {
        match self.policy {
            Some(policy) if rtt < policy.delay * LONG => {
                let behind_data = if both_busy {
                    policy.delay / BEHIND_DATA
                } else {
                    Duration::ZERO
                };
                self.delay(now).max(behind_data)
            }
            Some(_) | None => Duration::ZERO,
        }
    }

    /// Longest time that the peer may hold an ACK back now.
    pub(super) fn delay(&self, now: Instant) -> Duration {
        match (self.asked, self.settled) {
            (Some(asked), Some(settled)) if settled <= now => asked.delay,
            (Some(asked), _) => asked.delay.max(self.before),
            (None, _) => self.before,
        }
    }
}

fn wanted(policy: Acks, packets: u64, rtt: Duration) -> Acks {
    if rtt >= policy.delay * LONG {
        return policy;
    }
    Acks {
        packets: (packets / ACKS_PER_WINDOW).clamp(1, policy.packets),
        delay: (rtt / ACKS_PER_ROUND).clamp(SHORTEST.min(policy.delay), policy.delay),
    }
}

fn differs(a: u64, b: u64) -> bool {
    a.max(b) >= 2 * a.min(b)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Receiver's half: whether an ACK is due that QUIC alone would hold back.
#[derive(Debug, Default)]
pub(super) struct AckDuty {
    asked: Option<Acks>,
    /// Frames with content that have come so far.
    content: u64,
    /// Time at which the oldest packet with content came that is not answered, and the number of such packets.
    unanswered: Option<(Instant, u64)>,
    /// ACK frames that have left so far.
    sent: u64,
}

impl AckDuty {
    /// The peer wants to be acknowledged so from now on. A delay below a millisecond is taken for one: the peer bounds our
    /// work by what it sends, not by what it wishes.
    pub(super) fn ask(&mut self, acks: Acks) {
        self.asked = Some(Acks {
            packets: acks.packets.max(1),
            delay: acks.delay.max(SHORTEST),
        });
    }

    /// A packet came; quinn has counted its `frames`. True if it holds content. One that holds none is not answered: two sides
    /// would answer each other for ever.
    pub(super) fn on_received(&mut self, now: Instant, frames: &FrameStats) -> bool {
        let content = frames.stream + frames.datagram;
        let has_content = std::mem::replace(&mut self.content, content) != content;
        if has_content {
            self.unanswered.get_or_insert((now, 0)).1 += 1;
        }
        has_content
    }

    /// Packets left, and `acks` ACK frames so far. Packets that data fills have no room for one: it is still owed.
    pub(super) fn on_sent(&mut self, acks: u64) {
        if std::mem::replace(&mut self.sent, acks) != acks {
            self.unanswered = None;
        }
    }

    /// Nothing may be sent: nothing is owed then.
    pub(super) fn forget(&mut self) {
        self.unanswered = None;
    }

    /// True if an ACK is due. What is owed is then counted anew, so that an ACK which has found no room is due again later, and
    /// not at once.
    pub(super) fn take_due(&mut self, now: Instant) -> bool {
        let due = self.is_due(now);
        if due {
            self.unanswered = Some((now, 0));
        }
        due
    }

    /// An ACK is due.
    fn is_due(&self, now: Instant) -> bool {
        let due = |(acks, (since, count)): (Acks, (Instant, u64))| {
            count >= acks.packets || now >= since + acks.delay
        };
        self.asked.zip(self.unanswered).is_some_and(due)
    }

    /// Instant at which an ACK is due by time.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let (acks, (since, _)) = self.asked.zip(self.unanswered)?;
        Some(since + acks.delay)
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "one base instant; all else is virtual"
)]
mod tests {
    use super::*;
    use crate::engine::profile::Link;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn frames(stream: u64) -> FrameStats {
        let mut frames = FrameStats::default();
        frames.stream = stream;
        frames
    }

    #[test]
    fn a_short_path_asks_for_a_quarter_of_its_window() {
        let (start, mut demand) = (
            Instant::now(),
            AckDemand::new(AckPolicy::of(Link::default(), None)),
        );
        let asked = demand.poll(start, 64, ms(2)).expect("a short path");
        assert_eq!((asked.packets, asked.delay), (16, ms(1)));
        assert_eq!(
            demand.poll(start, 100, ms(2)),
            None,
            "less than twice as much"
        );
        assert_eq!(
            demand.poll(start, 8, ms(2)).map(|acks| acks.packets),
            Some(2)
        );
        assert_eq!(
            demand.poll(start, 1, ms(2)).map(|acks| acks.packets),
            Some(1)
        );
        assert_eq!(
            demand.poll(start, 9999, ms(2)).map(|acks| acks.packets),
            Some(200)
        );
    }

    #[test]
    fn a_long_path_asks_for_nothing_and_one_that_became_long_for_the_usual() {
        let (start, mut demand) = (
            Instant::now(),
            AckDemand::new(AckPolicy::of(Link::default(), None)),
        );
        assert_eq!(demand.poll(start, 4, ms(600)), None);
        assert_eq!(demand.allowance(start, ms(600), false), Duration::ZERO);
        demand.poll(start, 4, ms(2));
        let usual = demand.poll(start, 4, ms(600)).expect("a long path");
        assert_eq!((usual.packets, usual.delay), (200, ms(25)));
        let fixed = AckPolicy::of(Link::default(), Some(10));
        assert_eq!(AckDemand::new(fixed).poll(start, 4, ms(2)), None);
    }

    #[test]
    fn the_old_delay_counts_until_the_wish_has_arrived() {
        let (start, mut demand) = (
            Instant::now(),
            AckDemand::new(AckPolicy::of(Link::default(), None)),
        );
        assert_eq!(demand.allowance(start, ms(2), false), ms(25));
        demand.poll(start, 8, ms(2));
        assert_eq!(demand.allowance(start + ms(28), ms(2), false), ms(25));
        assert_eq!(demand.allowance(start + ms(29), ms(2), false), ms(1));
        assert_eq!(demand.allowance(start + ms(29), ms(2), true), ms(25) / 2);
    }

    #[test]
    fn content_is_answered_after_so_many_packets_or_so_long() {
        let (start, mut duty) = (Instant::now(), AckDuty::default());
        duty.on_received(start, &frames(1));
        assert!(!duty.is_due(start + ms(500)), "nobody has asked");
        duty.ask(Acks {
            packets: 2,
            delay: ms(3),
        });
        assert_eq!(duty.poll_timeout(), Some(start + ms(3)));
        duty.on_received(start + ms(1), &frames(2));
        duty.on_sent(0);
        assert!(duty.take_due(start + ms(1)), "no ACK has left");
        assert!(!duty.take_due(start + ms(3)), "one may be on its way");
        assert!(duty.take_due(start + ms(4)), "it found no room");
        duty.on_sent(1);
        assert_eq!(duty.poll_timeout(), None);
        duty.on_received(start + ms(2), &frames(2));
        assert_eq!(
            duty.poll_timeout(),
            None,
            "nothing in it asks for an answer"
        );
        duty.on_received(start + ms(2), &frames(3));
        assert!(duty.is_due(start + ms(5)) && !duty.is_due(start + ms(4)));
    }
}

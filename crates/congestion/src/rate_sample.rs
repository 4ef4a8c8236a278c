//! Delivery-rate samples (draft-ietf-ccwg-bbr §4.1) keyed by send time.
//!
//! The engine's loop reports every send and every acknowledged packet; one sample per ACK frame goes to the controller.
//! quinn hands a controller no packet numbers, but the exact `Instant` of the send, so snapshots are taken once per
//! distinct `now` and found again by binary search. It does not filter samples: that is the controller's business.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bentpipe_units::BitRate;

/// Snapshots younger than this are kept whatever the round-trip time.
const MIN_AGE: Duration = Duration::from_secs(3);
/// Snapshots older than this many round trips belong to packets that are lost or forgotten.
const MAX_ROUNDS: u32 = 6;

/// One measurement of the rate at which the path delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateSample {
    /// `delivered` over `interval`, in UDP payload.
    pub rate: BitRate,
    /// The longer of the time it took to send and the time it took to have acknowledged; never zero.
    pub interval: Duration,
    /// The time it took to send them; shorter than `acked_in` where a queue grew, longer where one ran out.
    pub sent_in: Duration,
    /// The time it took to have them acknowledged.
    pub acked_in: Duration,
    /// Bytes delivered within the interval.
    pub delivered: u64,
    /// The sender ran out of data in the interval, so the path may be faster than `rate`.
    pub app_limited: bool,
    /// Bytes delivered in total when the newest packet of the sample was sent.
    pub prior_delivered: u64,
    /// What else was known then.
    pub at_send: AtSend,
}

/// What was known of the path when a packet left, seen from the time at which its fate is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtSend {
    /// Bytes in flight once it had left, with it.
    pub in_flight: u64,
    /// Bytes declared lost since.
    pub lost: u64,
    /// The sender had run out of data.
    pub app_limited: bool,
}

#[derive(Clone, Copy, Debug)]
struct Snapshot {
    at: Instant,
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    in_flight: u64,
    lost: u64,
    app_limited: bool,
}

/// Turns sends and acknowledgements into [`RateSample`]s.
#[derive(Clone, Debug)]
pub struct RateSampler {
    log: VecDeque<Snapshot>,
    delivered: u64,
    lost: u64,
    delivered_at: Instant,
    first_sent: Instant,
    /// Samples are app-limited until this many bytes are delivered; 0 = not limited.
    limited_until: u64,
    newest: Option<Snapshot>,
    max_age: Duration,
}

impl RateSampler {
    /// A sampler of a path on which nothing was sent yet.
    pub fn new(now: Instant) -> Self {
        Self {
            log: VecDeque::new(),
            delivered: 0,
            lost: 0,
            delivered_at: now,
            first_sent: now,
            limited_until: 0,
            newest: None,
            max_age: MIN_AGE,
        }
    }

    /// `bytes` left at `now`, which must not go backwards; `in_flight` includes them.
    pub fn on_sent(&mut self, now: Instant, bytes: u64, in_flight: u64) {
        if in_flight <= bytes {
            // The pipe was empty: time without packets is not time in which the path delivered slowly.
            self.first_sent = now;
            self.delivered_at = now;
        }
        if let Some(last) = self.log.back_mut().filter(|last| last.at >= now) {
            last.in_flight = in_flight;
            return;
        }
        self.prune(now);
        self.log.push_back(Snapshot {
            at: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            in_flight,
            lost: self.lost,
            app_limited: self.limited_until != 0,
        });
    }

    /// A packet of `bytes` that left at `sent` was acknowledged. Packets that were never reported to [`Self::on_sent`]
    /// (MTU probes) count as delivered but cannot carry a sample.
    pub fn on_ack(&mut self, sent: Instant, bytes: u64) {
        self.delivered += bytes;
        if self.newest.is_some_and(|newest| newest.at >= sent) {
            return;
        }
        if let Some(entry) = self.find(sent) {
            self.newest = Some(entry);
        }
    }

    /// `bytes` were declared lost, or marked if 0; the newest of these packets left at `newest_sent`.
    pub fn on_loss(&mut self, newest_sent: Instant, bytes: u64) -> Option<AtSend> {
        self.lost += bytes;
        self.find(newest_sent).map(|entry| self.at_send(&entry))
    }

    fn find(&self, sent: Instant) -> Option<Snapshot> {
        let found = self.log.binary_search_by(|entry| entry.at.cmp(&sent));
        found.ok().map(|index| self.log[index])
    }

    fn at_send(&self, entry: &Snapshot) -> AtSend {
        AtSend {
            in_flight: entry.in_flight,
            lost: self.lost - entry.lost,
            app_limited: entry.app_limited,
        }
    }

    /// All packets of one ACK frame that arrived at `now` were reported; `None` if none of them carries a sample.
    pub fn end_acks(&mut self, now: Instant) -> Option<RateSample> {
        if self.delivered > self.limited_until {
            self.limited_until = 0;
        }
        self.delivered_at = now;
        let newest = self.newest.take()?;
        self.first_sent = newest.at;
        self.max_age = MIN_AGE.max(now.saturating_duration_since(newest.at) * MAX_ROUNDS);
        self.prune(now);
        let sending = newest.at.saturating_duration_since(newest.first_sent);
        let acking = now.saturating_duration_since(newest.delivered_at);
        let interval = sending.max(acking);
        let delivered = self.delivered - newest.delivered;
        let bits = u128::from(delivered) * 8 * 1_000_000_000;
        let rate = u64::try_from(bits.checked_div(interval.as_nanos())?).unwrap_or(u64::MAX);
        Some(RateSample {
            rate: BitRate::bits_per_second(rate),
            interval,
            sent_in: sending,
            acked_in: acking,
            delivered,
            app_limited: newest.app_limited,
            prior_delivered: newest.delivered,
            at_send: self.at_send(&newest),
        })
    }

    /// The sender could send but has nothing to send: what is in flight now, and what follows, may understate the path.
    pub fn set_app_limited(&mut self, in_flight: u64) {
        self.limited_until = (self.delivered + in_flight).max(1);
    }

    /// True if packets sent now are marked app-limited.
    pub fn is_app_limited(&self) -> bool {
        self.limited_until != 0
    }

    /// Bytes acknowledged in total.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    fn prune(&mut self, now: Instant) {
        while self
            .log
            .front()
            .is_some_and(|entry| now.saturating_duration_since(entry.at) > self.max_age)
        {
            self.log.pop_front();
        }
    }
}

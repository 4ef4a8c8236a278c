//! The sending end: what is in flight, what is lost, when to send again.
//!
//! A segment is lost when three transmissions later than its own have arrived: with selective acknowledgements that is
//! RFC 6675's rule, it holds for retransmissions as well, and nothing that arrived is sent twice. When nothing comes
//! back at all, the retransmission timer declares everything lost (RFC 6298).

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::ranges::Ranges;
use super::window::Window;
use super::{Ack, Acked, Config, Segment};

/// Transmissions that may overtake one.
const REORDERING: u64 = 3;
/// As in kernels; RFC 6298 would have a second.
const MIN_TIMEOUT: Duration = Duration::from_millis(200);
const FIRST_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_TIMEOUT: Duration = Duration::from_secs(120);

/// One segment that was sent and is not acknowledged cumulatively.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SegmentState {
    /// As this transmission.
    InFlight(u64),
    Lost,
    Arrived,
}

/// Counts of a sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SenderStats {
    /// Segments sent, retransmissions included.
    pub sent: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Times that the window was reduced.
    pub reductions: u64,
    /// Times that nothing came back.
    pub timeouts: u64,
}

/// Sends bulk data.
#[derive(Debug)]
pub struct Sender {
    config: Config,
    window: Window,
    /// The first segment that is not acknowledged, and the state of it and those after it.
    first: u64,
    segments: VecDeque<SegmentState>,
    arrived: Ranges,
    /// Transmissions in flight in the order in which they left, some of them obsolete.
    order: VecDeque<(u64, u64)>,
    /// Lost segments to be sent again, some of them obsolete.
    lost: VecDeque<u64>,
    in_flight: u64,
    transmissions: u64,
    /// The window was reduced for losses of transmissions below this.
    recovery: u64,
    /// Losses are still being repaired.
    recovering: bool,
    rtt: Option<(Duration, Duration)>,
    backoff: u32,
    timer: Option<Instant>,
    stats: SenderStats,
}

impl Sender {
    /// A sender that has sent nothing yet.
    pub fn new(config: Config) -> Self {
        Self {
            window: Window::new(&config),
            config,
            first: 0,
            segments: VecDeque::new(),
            arrived: Ranges::default(),
            order: VecDeque::new(),
            lost: VecDeque::new(),
            in_flight: 0,
            transmissions: 0,
            recovery: 0,
            recovering: false,
            rtt: None,
            backoff: 0,
            timer: None,
            stats: SenderStats::default(),
        }
    }

    /// The next segment that may leave now.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Segment> {
        if self.in_flight as f64 + 1.0 > self.window.size() {
            return None;
        }
        let sequence = self.next_lost().or_else(|| self.next_new())?;
        let transmission = self.transmissions;
        self.transmissions += 1;
        self.in_flight += 1;
        self.stats.sent += 1;
        let state = SegmentState::InFlight(transmission);
        let index = (sequence - self.first) as usize;
        if index == self.segments.len() {
            self.segments.push_back(state);
        } else {
            self.segments[index] = state;
            self.stats.retransmitted += 1;
        }
        self.order.push_back((transmission, sequence));
        self.timer.get_or_insert(now + self.timeout());
        Some(Segment {
            sequence,
            transmission,
            sent: now,
            ecn: self.config.ecn,
            marked: false,
        })
    }

    fn next_lost(&mut self) -> Option<u64> {
        while let Some(sequence) = self.lost.pop_front() {
            let index = sequence.checked_sub(self.first);
            let state = index.and_then(|index| self.segments.get(index as usize));
            if state == Some(&SegmentState::Lost) {
                return Some(sequence);
            }
        }
        None
    }

    fn next_new(&self) -> Option<u64> {
        let next = self.first + self.segments.len() as u64;
        let room = (self.segments.len() as u64) < self.config.receive_window;
        let wanted = self.config.limit.is_none_or(|limit| next < limit);
        (room && wanted).then_some(next)
    }

    /// An acknowledgement has come.
    pub fn handle_ack(&mut self, now: Instant, ack: &Ack) {
        let mut count = self.note_arrived(self.first..ack.cumulative);
        for range in &ack.selective {
            count += self.note_arrived(range.start.max(self.first)..range.end);
        }
        while self.first < ack.cumulative && self.segments.pop_front().is_some() {
            self.first += 1;
        }
        self.arrived.forget_below(self.first);
        if count == 0 {
            return;
        }
        self.backoff = 0;
        let rtt = now.saturating_duration_since(ack.sent);
        let smoothed_rtt = self.measure(rtt);
        let lost = self.detect_losses(ack.transmission);
        let marked = ack.marked.then_some(ack.transmission);
        // What left before the last reduction says nothing about the window that it led to.
        if lost
            .max(marked)
            .is_some_and(|newest| newest >= self.recovery)
        {
            self.reduce();
        }
        self.recovering &= ack.transmission < self.recovery || !self.lost.is_empty();
        if !self.recovering
            && self.in_flight as f64 + count as f64 + 1.0 >= self.window.size() / 2.0
        {
            self.window.on_ack(&Acked {
                now,
                count,
                rtt,
                smoothed_rtt,
                sent: self.transmissions,
                newest: ack.transmission,
            });
        }
        self.timer = (!self.segments.is_empty()).then(|| now + self.timeout());
    }

    /// Segments in `range` have arrived; answers how many of them that was not known of.
    fn note_arrived(&mut self, range: Range<u64>) -> u64 {
        let mut count = 0;
        for new in self.arrived.insert(range) {
            for sequence in new {
                let index = (sequence - self.first) as usize;
                let Some(state) = self.segments.get_mut(index) else {
                    break;
                };
                self.in_flight -= u64::from(matches!(state, SegmentState::InFlight(_)));
                *state = SegmentState::Arrived;
                count += 1;
            }
        }
        count
    }

    /// Declares lost what `newest` and others have overtaken; answers the last of these transmissions.
    fn detect_losses(&mut self, newest: u64) -> Option<u64> {
        let mut last = None;
        while let Some(&(transmission, sequence)) = self.order.front() {
            let index = sequence.checked_sub(self.first).map(|index| index as usize);
            let state = index.and_then(|index| self.segments.get_mut(index));
            match state {
                Some(state) if *state == SegmentState::InFlight(transmission) => {
                    if transmission + REORDERING > newest {
                        return last;
                    }
                    *state = SegmentState::Lost;
                    self.in_flight -= 1;
                    self.lost.push_back(sequence);
                    last = Some(transmission);
                }
                _ => {}
            }
            self.order.pop_front();
        }
        last
    }

    fn reduce(&mut self) {
        self.window.on_congestion();
        self.recovery = self.transmissions;
        self.recovering = true;
        self.stats.reductions += 1;
    }

    /// RFC 6298 §2; answers the smoothed RTT.
    fn measure(&mut self, rtt: Duration) -> Duration {
        let (smoothed, variation) = match self.rtt {
            None => (rtt, rtt / 2),
            Some((smoothed, variation)) => (
                (smoothed * 7 + rtt) / 8,
                (variation * 3 + smoothed.abs_diff(rtt)) / 4,
            ),
        };
        self.rtt = Some((smoothed, variation));
        smoothed
    }

    fn timeout(&self) -> Duration {
        let base = self.rtt.map_or(FIRST_TIMEOUT, |(smoothed, variation)| {
            smoothed + (variation * 4).max(MIN_TIMEOUT)
        });
        (base * (1 << self.backoff.min(10))).min(MAX_TIMEOUT)
    }

    /// Instant at which nothing has come back for too long.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timer
    }

    /// Declares everything in flight lost if the timer is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.timer.is_none_or(|due| due > now) {
            return;
        }
        for (sequence, state) in (self.first..).zip(&mut self.segments) {
            if matches!(state, SegmentState::InFlight(_)) {
                *state = SegmentState::Lost;
                self.lost.push_back(sequence);
            }
        }
        self.order.clear();
        self.in_flight = 0;
        if self.backoff == 0 {
            self.window.on_timeout();
        }
        self.recovery = self.transmissions;
        self.recovering = false;
        self.backoff += 1;
        self.stats.timeouts += 1;
        self.timer = Some(now + self.timeout());
    }

    /// The congestion window, in segments.
    pub fn window(&self) -> f64 {
        self.window.size()
    }

    /// All of [`Config::limit`] is acknowledged.
    pub fn is_done(&self) -> bool {
        self.config.limit.is_some_and(|limit| self.first >= limit)
    }

    /// The counters.
    pub fn stats(&self) -> SenderStats {
        self.stats
    }
}

//! ProbeRTT: half of the pipe is left empty for a moment, so that the queue drains and the round-trip time shows (§ ProbeRTT).
//!
//! Called once per ACK frame. Deviation: a sample within [`TOLERANCE`] of the smallest round-trip time shows an empty
//! queue as well as ProbeRTT would, and postpones it (picoquic does the same, with 5 %). By the letter only a smaller one
//! counts, and a geostationary link pays a round trip in every six seconds to see what it sees anyway; flows that share
//! a queue see no such sample, and still drain it together.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::probe_bw::AckPhase;
use super::{Bbr3, MIN_WINDOW, Sample, State};

/// BBR.ProbeRTTCwndGain.
pub(super) const WINDOW_GAIN: u64 = 500;
/// BBR.ProbeRTTDuration.
const DURATION: Duration = Duration::from_millis(200);
/// BBR.ProbeRTTInterval.
const INTERVAL: Duration = Duration::from_secs(5);
/// Part of the smallest round-trip time by which a sample may exceed it.
const TOLERANCE: u32 = 64;

/// When ProbeRTT is due, and how far it got.
#[derive(Clone, Debug)]
pub(super) struct ProbeRtt {
    /// BBR.probe_rtt_min_delay and BBR.probe_rtt_min_stamp.
    min_delay: Option<Duration>,
    min_stamp: Instant,
    /// BBR.probe_rtt_expired.
    expired: bool,
    /// BBR.probe_rtt_done_stamp and BBR.probe_rtt_round_done.
    done_at: Option<Instant>,
    round_done: bool,
    /// Packets sent when this much was delivered left in ProbeRTT: their rates are no evidence.
    covered: Range<u64>,
}

impl ProbeRtt {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            min_delay: None,
            min_stamp: now,
            expired: false,
            done_at: None,
            round_done: false,
            covered: 0..0,
        }
    }

    /// A packet that left when `delivered` bytes were delivered left in ProbeRTT.
    pub(super) fn covers(&self, delivered: u64) -> bool {
        self.covered.contains(&delivered)
    }
}

impl Bbr3 {
    /// UpdateMinRTT.
    pub(super) fn update_min_rtt(&mut self, sample: &Sample) {
        let now = sample.now;
        let probe = &mut self.probe_rtt;
        probe.expired = now.saturating_duration_since(probe.min_stamp) > INTERVAL;
        let Some(rtt) = sample.rtt else { return };
        let first = probe.min_delay.is_none();
        let least = probe.min_delay.filter(|_| !probe.expired);
        if least.is_none_or(|least| rtt < least) {
            (probe.min_delay, probe.min_stamp) = (Some(rtt), now);
        }
        if self
            .model
            .min_rtt()
            .is_some_and(|least| rtt <= least + least / TOLERANCE)
        {
            (probe.min_stamp, probe.expired) = (now, false);
        }
        if let Some(delay) = probe.min_delay {
            self.model.update_min_rtt(now, delay, probe.min_stamp);
        }
        if first && self.model.max_rate() == 0 {
            self.init_pacing(rtt);
        }
    }

    /// CheckProbeRTT.
    pub(super) fn check_probe_rtt(&mut self, sample: &Sample) {
        if self.state != State::ProbeRtt && self.probe_rtt.expired && !self.idle_restart {
            self.window.save(false);
            self.state = State::ProbeRtt;
            self.probe_rtt.done_at = None;
            self.probe_rtt.covered = self.delivered..self.delivered + 1;
            self.cycle.ack_phase = AckPhase::ProbeStopping;
            self.rounds.start(self.delivered);
        }
        if self.state == State::ProbeRtt {
            self.handle_probe_rtt(sample);
        }
        self.idle_restart = false;
    }

    /// HandleProbeRTT.
    fn handle_probe_rtt(&mut self, sample: &Sample) {
        self.probe_rtt.covered.end = self.delivered + sample.in_flight + 1;
        if self.probe_rtt.done_at.is_some() {
            self.probe_rtt.round_done |= self.rounds.started;
            if self.probe_rtt.round_done {
                self.check_probe_rtt_done(sample.now);
            }
        } else if sample.in_flight <= self.probe_rtt_window() {
            self.probe_rtt.done_at = Some(sample.now + DURATION);
            self.probe_rtt.round_done = false;
            self.rounds.start(self.delivered);
        }
    }

    /// CheckProbeRTTDone and ExitProbeRTT.
    pub(super) fn check_probe_rtt_done(&mut self, now: Instant) {
        if self.probe_rtt.done_at.is_none_or(|at| now <= at) {
            return;
        }
        self.probe_rtt.min_stamp = now;
        self.window.restore();
        self.bounds.reset_shortterm();
        if self.full.reached {
            self.start_down(now);
            self.state = State::Cruise;
        } else {
            self.state = State::Startup;
        }
    }

    /// ProbeRTTCwnd.
    pub(super) fn probe_rtt_window(&self) -> u64 {
        self.bdp(WINDOW_GAIN).max(MIN_WINDOW * self.mtu)
    }
}

//! C.cwnd: the bytes that may be in flight, what they were before a cut, and whether they hold the flow back.
//!
//! Filled and bounded once per ACK frame. It does not know the model: what the path takes is an argument.

use std::time::Instant;

use super::MIN_WINDOW;

/// The window, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// C.cwnd.
    size: u64,
    initial: u64,
    /// The window before ProbeRTT or persistent congestion cut it (BBR.prior_cwnd).
    prior: u64,
    /// Instant at which persistent congestion was found; packets sent later show that it is over.
    collapsed_at: Option<Instant>,
    /// The window was full in the last round, and in this one (C.is_cwnd_limited).
    limited: [bool; 2],
}

impl Window {
    /// The window before anything is known of the path.
    pub(super) fn new(initial: u64) -> Self {
        Self {
            size: initial,
            initial,
            prior: 0,
            collapsed_at: None,
            limited: [false; 2],
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn initial(&self) -> u64 {
        self.initial
    }

    /// Notes that `in_flight` bytes are, or were, under way.
    pub(super) fn on_in_flight(&mut self, in_flight: u64, mtu: u64) {
        self.limited[1] |= in_flight + mtu > self.size;
    }

    /// A round trip is over.
    pub(super) fn end_round(&mut self) {
        self.limited = [self.limited[1], false];
    }

    /// C.is_cwnd_limited.
    pub(super) fn is_limited(&self) -> bool {
        self.limited[0] || self.limited[1]
    }

    /// SetCwnd: `newly_acked` bytes more, `most` at most once the pipe was `full`; before that without end while little was
    /// `delivered`.
    pub(super) fn grow(&mut self, newly_acked: u64, most: u64, full: bool, delivered: u64) {
        if full {
            self.size = (self.size + newly_acked).min(most);
        } else if self.size < most || delivered < self.initial {
            self.size += newly_acked;
        }
    }

    /// At least the smallest window.
    pub(super) fn floor(&mut self, mtu: u64) {
        self.size = self.size.max(MIN_WINDOW * mtu);
    }

    /// At most `most`.
    pub(super) fn cap(&mut self, most: u64) {
        self.size = self.size.min(most);
    }

    /// Persistent congestion: what is in flight, and a packet (§ Modulating cwnd in Loss Recovery, OnEnterRTO).
    pub(super) fn collapse(&mut self, now: Instant, size: u64) {
        self.size = size;
        self.collapsed_at = Some(now);
    }

    /// A packet that was sent at `sent` has arrived: if that was after a collapse, it is over.
    pub(super) fn on_arrived(&mut self, sent: Instant) {
        if self.collapsed_at.is_some_and(|at| sent > at) {
            self.collapsed_at = None;
            self.restore();
        }
    }

    /// SaveCwnd; `probing` is ProbeRTT, in which the window is cut already.
    pub(super) fn save(&mut self, probing: bool) {
        let cut = self.collapsed_at.is_some() || probing;
        let kept = if cut { self.prior } else { 0 };
        self.prior = self.size.max(kept);
    }

    /// RestoreCwnd.
    pub(super) fn restore(&mut self) {
        self.size = self.size.max(self.prior);
    }
}

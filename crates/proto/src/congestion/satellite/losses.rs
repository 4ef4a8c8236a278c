//! Which losses are the path's and which are congestion.
//!
//! A lossy link loses the same share however fast it is used; a full queue or a policer loses what exceeds its rate.
//! So the share lost by packets that left during a drain, below the path's rate, is the path's own: the baseline.
//! Fed on the data path by every ACK and loss report. It does not change the rate.

use std::time::Instant;

use super::model::scaled;

/// No link that is worth using loses more by itself, in permille.
const MAX_BASELINE: u64 = 150;
/// Fewest packets that make a share.
const MIN_PACKETS: u64 = 40;
/// Loss this far above the baseline is congestion even without a queue, in permille.
const MARGIN: u64 = 20;

/// Packets of which the fate is known.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    acked: u64,
    lost: u64,
}

impl Tally {
    fn share(self) -> u64 {
        self.lost * 1000 / (self.acked + self.lost).max(1)
    }

    fn total(self) -> u64 {
        self.acked + self.lost
    }
}

/// Loss of the current round and the share that the path loses by itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Losses {
    round: Tally,
    /// Packets sent during a drain.
    quiet: Tally,
    /// When the last drain began, and ended.
    quiet_span: Option<(Instant, Option<Instant>)>,
    baseline: u64,
}

impl Losses {
    /// Packets leave below the path's rate from now on.
    pub(super) fn start_quiet(&mut self, now: Instant) {
        self.quiet = Tally::default();
        self.quiet_span = Some((now, None));
    }

    /// They no longer do.
    pub(super) fn end_quiet(&mut self, now: Instant) {
        if let Some((_, end)) = &mut self.quiet_span {
            end.get_or_insert(now);
        }
    }

    pub(super) fn on_acked(&mut self, bytes: u64, sent: Instant, queued: bool) {
        self.round.acked += bytes;
        if self.is_quiet(sent) {
            self.quiet.acked += bytes;
        } else {
            self.conclude(sent, queued);
        }
    }

    pub(super) fn on_lost(&mut self, bytes: u64, sent: Instant) {
        self.round.lost += bytes;
        if self.is_quiet(sent) {
            self.quiet.lost += bytes;
        }
    }

    fn is_quiet(&self, sent: Instant) -> bool {
        self.quiet_span
            .is_some_and(|(start, end)| sent >= start && end.is_none_or(|end| sent < end))
    }

    /// All packets of the drain were answered once a later one is. Behind a queue that still stands the drain was not
    /// below the path's rate: what it lost may lower the baseline, not raise it.
    fn conclude(&mut self, sent: Instant, queued: bool) {
        let Some((_, Some(end))) = self.quiet_span else {
            return;
        };
        if sent < end {
            return;
        }
        self.quiet_span = None;
        if self.quiet.total() >= MIN_PACKETS * 1200 {
            let share = self.quiet.share().min(MAX_BASELINE);
            let share = if queued {
                share.min(self.baseline)
            } else {
                share
            };
            self.baseline = (self.baseline + share).div_ceil(2);
        }
    }

    /// Permille lost in this round so far, if it is large enough to tell.
    pub(super) fn share(&self, mtu: u64) -> Option<u64> {
        (self.round.total() >= MIN_PACKETS * mtu).then(|| self.round.share())
    }

    /// More is lost than the path loses by itself: beyond three standard deviations and a margin; behind a queue, where
    /// loss is expected, beyond one.
    pub(super) fn is_excessive(&self, mtu: u64, queued: bool) -> bool {
        let margin = if queued { MARGIN / 4 } else { MARGIN };
        let deviations = if queued { 1 } else { 3 };
        self.deviates(self.baseline, deviations, margin, mtu)
    }

    /// More is lost than `share` + `margin` permille, beyond three standard deviations.
    pub(super) fn exceeds(&self, share: u64, margin: u64, mtu: u64) -> bool {
        self.deviates(share, 3, margin, mtu)
    }

    fn deviates(&self, expected: u64, deviations: u64, margin: u64, mtu: u64) -> bool {
        let Some(share) = self.share(mtu) else {
            return false;
        };
        let packets = (self.round.total() / mtu).max(1);
        let deviation = (expected.max(10) * 1000 / packets).isqrt();
        share > expected + deviations * deviation + margin
    }

    pub(super) fn end_round(&mut self) {
        self.round = Tally::default();
    }

    /// `rate` at which to send so that `rate` arrives in spite of the path's own loss.
    pub(super) fn compensated(&self, rate: u64) -> u64 {
        scaled(rate, 1_000_000 / (1000 - self.baseline))
    }
}

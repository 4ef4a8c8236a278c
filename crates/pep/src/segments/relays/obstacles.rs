//! Flows that are not relayed although both PEPs know them, or not any more: why, and how many.

use std::time::Instant;

use super::SegmentRelays;

/// Reason why a flow cannot be relayed here although both PEPs know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RelayObstacle {
    /// The other PEP cannot be asked, or does not answer.
    Tunnel,
    /// The keys of its headers are about to go.
    Key,
    /// The journal cannot note that the flow is relayed.
    Journal,
}

impl SegmentRelays {
    /// Reason why flows pass untouched although there may be a tunnel.
    pub(in crate::segments) fn lack(&self) -> Option<String> {
        self.journal.lack()
    }

    /// Resets flows whose offer was taken here from `since` on: the other PEP, which answers nothing since, does not know that, and
    /// lets their segments pass.
    pub(in crate::segments) fn drop_unheard(&mut self, now: Instant, since: Instant) {
        let all = self.streams.iter();
        let unheard = all.filter(|(_, carried)| carried.invited.is_some_and(|at| at >= since));
        let places: Vec<_> = unheard.map(|(place, _)| *place).collect();
        if !places.is_empty() {
            tracing::warn!(
                "{} flows are reset: they were taken over just before the other PEP stopped answering",
                places.len()
            );
        }
        for place in places {
            self.drop_stream(now, place);
        }
    }

    /// Counts a flow that is not relayed.
    pub(super) const fn hinder(&mut self, obstacle: RelayObstacle) {
        *match obstacle {
            RelayObstacle::Tunnel => &mut self.hindered.no_tunnel,
            RelayObstacle::Key => &mut self.hindered.no_key,
            RelayObstacle::Journal => &mut self.hindered.no_disk,
        } += 1;
    }
}

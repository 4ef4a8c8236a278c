//! Congestion window of one LAN hop: NewReno (RFC 5681, RFC 6582), in bytes.
//!
//! The hop is short, so that additive increase is fast, and has its own queue and losses. What the
//! long link can carry is the business of the stream between the PEPs.

/// Segments with which a hop begins (RFC 6928).
const INITIAL: u64 = 10;

/// Congestion window of a sender.
#[derive(Debug)]
pub(crate) struct HopWindow {
    /// Window, in bytes.
    size: u64,
    /// Window up to which growth is exponential, in bytes.
    threshold: u64,
    /// Full segment, in bytes.
    unit: u64,
    /// Bytes acknowledged since the window last grew by a segment in congestion avoidance.
    credit: u64,
    /// Place up to which a loss is being repaired.
    repair: Option<u64>,
}

impl HopWindow {
    /// Window of a hop whose full segments have `unit` bytes.
    pub(crate) fn new(unit: u16) -> Self {
        let unit = u64::from(unit.max(1));
        Self {
            size: unit * INITIAL,
            threshold: u64::MAX,
            unit,
            credit: 0,
            repair: None,
        }
    }

    /// Bytes that may be in flight.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Says whether a loss is being repaired by fast retransmits.
    pub(crate) fn repairs(&self) -> bool {
        self.repair.is_some()
    }

    /// Begins a fast repair of what was sent up to `sent`, with `flight` bytes on their way.
    pub(crate) fn on_loss(&mut self, flight: u64, sent: u64) {
        self.threshold = (flight / 2).max(self.unit * 2);
        // Three segments have left the network: that many duplicates have come.
        self.size = self.threshold + self.unit * 3;
        self.repair = Some(sent);
    }

    /// Another duplicate acknowledgement: one more segment has left the network.
    pub(crate) fn on_duplicate(&mut self) {
        if self.repair.is_some() {
            self.size += self.unit;
        }
    }

    /// All before `place` was acknowledged, `bytes` of it newly. True: the next hole begins there,
    /// and is to be sent again.
    pub(crate) fn on_progress(&mut self, place: u64, bytes: u64) -> bool {
        match self.repair {
            Some(end) if place >= end => {
                self.repair = None;
                self.size = self.threshold;
                false
            }
            Some(_) => {
                self.size = self.size.saturating_sub(bytes).max(self.unit);
                self.size += if bytes >= self.unit { self.unit } else { 0 };
                true
            }
            None => {
                self.grow(bytes);
                false
            }
        }
    }

    fn grow(&mut self, bytes: u64) {
        if self.size < self.threshold {
            // Appropriate byte counting, two segments for each acknowledgement (RFC 3465).
            self.size = self.size.saturating_add(bytes.min(self.unit * 2));
            return;
        }
        self.credit += bytes;
        if self.credit >= self.size {
            self.credit = 0;
            self.size = self.size.saturating_add(self.unit);
        }
    }

    /// Nothing was acknowledged in time, with `flight` bytes on their way.
    pub(crate) fn on_timeout(&mut self, flight: u64) {
        self.threshold = (flight / 2).max(self.unit * 2);
        self.size = self.unit;
        self.credit = 0;
        self.repair = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_doubles_then_grows_by_a_segment() {
        let mut window = HopWindow::new(1000);
        assert_eq!(window.size(), 10_000);
        window.on_timeout(10_000);
        assert_eq!(window.size(), 1000);
        for (place, size) in [(1000, 2000), (3000, 4000), (5000, 6000)] {
            assert!(!window.on_progress(place, 2000.min(place)));
            assert_eq!(
                window.size(),
                size,
                "exponential up to half of what was in flight"
            );
        }
        for _ in 0..3 {
            assert!(!window.on_progress(9000, 2000));
        }
        assert_eq!(window.size(), 7000, "a segment in a round trip");
    }

    #[test]
    fn a_repair_sends_hole_after_hole() {
        let mut window = HopWindow::new(1000);
        window.on_loss(10_000, 11_000);
        assert_eq!(window.size(), 8000);
        window.on_duplicate();
        assert_eq!(window.size(), 9000);
        assert!(window.on_progress(4000, 3000), "partial: the next hole");
        assert_eq!(window.size(), 7000);
        assert!(!window.on_progress(11_000, 7000));
        assert_eq!((window.size(), window.repairs()), (5000, false));
        window.on_duplicate();
        assert_eq!(window.size(), 5000);
    }
}

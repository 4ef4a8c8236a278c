//! NewReno's window law (RFC 9002 §7.3.3): one packet more per window acknowledged, half of it after a loss.
//!
//! Called on the data path once per ACK frame in congestion avoidance. Bytes are counted rather than ACKs (RFC 3465
//! §2.1), because the receiver acknowledges eight to sixteen times per round trip. It does not know slow start or rounds.

/// Bytes acknowledged that have not grown the window yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reno {
    acked: u64,
}

impl Reno {
    /// The window after `acked` bytes more.
    pub(super) fn grow(&mut self, mut window: u64, mtu: u64, acked: u64) -> u64 {
        self.acked += acked;
        while self.acked >= window {
            self.acked -= window;
            window += mtu;
        }
        window
    }

    /// The window after a congestion event (RFC 9002 §7.3.2, kLossReductionFactor); what was acknowledged before it
    /// counts no more.
    pub(super) fn reduce(&mut self, window: u64) -> u64 {
        self.acked = 0;
        window / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_acknowledged_in_few_pieces_or_many_grows_it_by_one_packet() {
        for pieces in [1, 8, 100] {
            let mut reno = Reno::default();
            let mut window = 100_000;
            for _ in 0..pieces {
                window = reno.grow(window, 1000, 100_000 / pieces);
            }
            assert_eq!(window, 101_000, "{pieces} ACKs");
        }
    }
}

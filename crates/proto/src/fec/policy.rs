//! How much repair a block is worth, and how much a session may spend on it.

use std::time::Duration;

/// Losses that a path has by itself, as far as they are known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// Share of packets lost.
    pub share: f64,
    /// The variance of their number, in variances of independent losses: twice the mean length of a burst, about.
    pub bursts: f64,
}

/// State of a path when something leaves over it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Path {
    /// If that is worth a remedy.
    pub loss: Option<Loss>,
    /// The round-trip time.
    pub rtt: Duration,
    /// Bytes that were lost so far, whatever the reason.
    pub lost: u64,
    /// Bytes of which the fate is not known yet.
    pub in_flight: u64,
}

/// Wish of the operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fec {
    /// Nothing but retransmission.
    Off,
    /// As many repairs as the path's own losses call for.
    #[default]
    Auto,
    /// For experiments: always so many packets of repair for so many packets.
    Fixed {
        /// Packets of repair
        repair: u16,
        /// for so many of data, at least 1.
        per: u16,
    },
}

/// Standard deviations above the mean of losses that are repaired: one block in some hundred is not, and of the blocks of a
/// transfer, of which none may fail, one in some five hundred.
const MARGIN: [f64; 2] = [2.5, 3.0];
/// A block of more packets at risk is one of a transfer's.
const FLOW: f64 = 200.0;
/// The share that is lost was found with so many packets, about.
const MEASURED: f64 = 3000.0;
/// With less than so many bytes in hand margins are narrower in proportion, down to this share of them: else what comes first is
/// repaired for certain, and what comes later not at all.
const PLENTY: f64 = 80e3;
const NARROWEST: f64 = 0.2;
/// A block that loses fewer packets is left to itself.
const WORTH: f64 = 0.001;
/// Bytes that a session may spend for each byte lost. It leaves room within 1.5 times the share of packets for the
/// handshake's copies, and because packets that are lost are larger than the mean of all.
const PER_LOSS: f64 = 1.4;
/// and these shares on top, of what is sent and of what is received: together they are 1 % of both directions.
const BASE: [f64; 2] = [0.0075, 0.0025];
/// Bytes that are in hand at first,
const FIRST_CREDIT: f64 = 12e3;
/// and at most.
const MOST_CREDIT: f64 = 4e6;

impl Fec {
    /// How many packets of `packets` at risk are to come back if they are lost, on a path with such losses: their mean, and this
    /// share of the margin.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "few packets"
    )]
    pub(super) fn repairs(self, packets: f64, loss: Option<Loss>, margin: f64) -> usize {
        match (self, loss) {
            (Self::Off | Self::Fixed { repair: 0, .. }, _) | (Self::Auto, None) => 0,
            (Self::Fixed { repair, per }, _) => {
                let exact = packets * f64::from(repair) / f64::from(per.max(1));
                exact.round().max(1.0) as usize
            }
            (Self::Auto, Some(loss)) => {
                let mean = packets * loss.share;
                if mean < WORTH {
                    return 0;
                }
                (mean + margin * loss.margin(packets)).round().max(1.0) as usize
            }
        }
    }
}

impl Loss {
    /// Packets that are to be repaired beyond the mean of what is lost of `packets` at risk.
    pub(super) fn margin(self, packets: f64) -> f64 {
        // The mean was measured, too, with as many packets as are remembered.
        let doubt = 1.0 + packets / MEASURED;
        MARGIN[usize::from(packets > FLOW)] * (packets * self.share * self.bursts * doubt).sqrt()
    }
}

/// Bytes that a session may spend on repairs, and has spent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credit {
    /// By what was sent and received, whatever is lost.
    base: f64,
    lost: f64,
    in_flight: f64,
    spent: f64,
}

impl Default for Credit {
    fn default() -> Self {
        Self {
            base: FIRST_CREDIT,
            lost: 0.0,
            in_flight: 0.0,
            spent: 0.0,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "bytes of a session")]
impl Credit {
    /// What was lost is known, what is lost of the bytes in flight is believed: if losses come in bursts, that differs with each.
    pub(super) fn on_path(&mut self, path: &Path) {
        (self.lost, self.in_flight) = (path.lost as f64, path.in_flight as f64);
    }

    /// `bytes` left, whatever they were.
    pub(super) fn on_sent(&mut self, bytes: u64) {
        self.base += bytes as f64 * BASE[0];
    }

    /// `bytes` came, whatever they were.
    pub(super) fn on_received(&mut self, bytes: u64) {
        self.base += bytes as f64 * BASE[1];
    }

    fn earned(&self, loss: Loss) -> f64 {
        self.base + PER_LOSS * (self.lost + self.in_flight * loss.share)
    }

    /// Bytes that may be spent now, over a path with such losses; negative if fewer were lost than was believed.
    pub(super) fn in_hand(&self, loss: Loss) -> f64 {
        // A long time without losses does not pay for all that comes later.
        (self.earned(loss) - self.spent).min(MOST_CREDIT)
    }

    /// The share of a block's margin that what is in hand is enough for.
    pub(super) fn margin(&self, loss: Loss) -> f64 {
        (self.in_hand(loss) / PLENTY).clamp(NARROWEST, 1.0)
    }

    /// Takes `bytes`; false if the session has not earned so many over a path with such losses.
    pub(super) fn spend(&mut self, bytes: usize, loss: Loss) -> bool {
        let left = self.in_hand(loss) - bytes as f64;
        if left >= 0.0 {
            self.spent = self.earned(loss) - left;
        }
        left >= 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever spends all that is there at once, and believes in twice the loss after each burst, keeps to the mean all the same.
    #[test]
    fn what_is_believed_of_the_path_is_earned_only_while_it_is_not_known() {
        let mut credit = Credit::default();
        let (mut sent, mut lost, mut spent) = (0_u64, 0, 0_usize);
        for share in [0.04, 0.0].repeat(20) {
            let loss = Loss {
                share,
                bursts: 12.0,
            };
            credit.on_path(&Path {
                lost,
                in_flight: 1_000_000,
                ..Path::default()
            });
            credit.on_sent(1_000_000);
            sent += 1_000_000;
            lost += 20_000;
            while credit.spend(1_000, loss) {
                spent += 1_000;
            }
        }
        let mean = PER_LOSS * lost as f64 + BASE[0] * sent as f64;
        assert!((0.9..=1.05).contains(&(spent as f64 / mean)), "{spent}");
    }
}

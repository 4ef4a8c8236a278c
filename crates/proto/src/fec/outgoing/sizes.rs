//! How large blocks become: the larger one is, the less of its repairs is margin, and the more work is each of its symbols.

use super::super::policy::Loss;
use super::{Block, GENERATIONS, Outgoing, PACKET, encode};

/// Symbols of a large block: with their repairs they are a power of two, to which the code would fill up what is less. The
/// fewest are worked on within a core's cache, in half the time.
const FULL: [usize; 3] = [4096 - 256, 8192 - 512, 16_384 - 1024];
/// A block of new bytes is large enough if what is repaired beyond its mean of losses is no larger share of it. Older ones,
/// of which no larger share is at risk, are larger, for each takes a packet at least, but not the largest: they are decoded
/// whole for the few symbols that they miss.
const MOST_MARGIN: f64 = 0.03;
/// What is repaired beyond the means of all blocks is to be no larger share of what may be spent: a transfer leaves what the
/// short flows after it need.
const MOST_OF_CREDIT: f64 = 0.15;

/// The sizes of the blocks that are made of what is remembered now.
#[derive(Debug)]
pub(super) struct Sizes {
    /// In bytes, the smallest first.
    full: [usize; 3],
    most_margin: f64,
    /// Loss of a block; absent if as much is repaired whatever is lost.
    loss: Option<Loss>,
}

impl Sizes {
    /// For packets of `size` bytes.
    #[expect(clippy::cast_precision_loss, reason = "bytes that are remembered")]
    pub(super) fn new(outgoing: &Outgoing, size: usize) -> Self {
        let loss = outgoing.loss_heeded();
        let in_hand = loss.map_or(0.0, |loss| outgoing.credit.in_hand(loss));
        let new = outgoing.recent.held().max(1) as f64 / f64::from(GENERATIONS);
        Self {
            full: FULL.map(|symbols| symbols * encode::large_symbol(size)),
            most_margin: MOST_MARGIN.min(MOST_OF_CREDIT * in_hand / new),
            loss,
        }
    }

    /// True if `block` is to end before `more` bytes.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a block")]
    pub(super) fn end(&self, block: &Block, more: usize) -> bool {
        let [small, middle, largest] = self.full;
        let total = block.total as f64;
        let is_old = block.at_risk < MOST_MARGIN * total;
        let margin = |loss: Loss| loss.margin(block.at_risk / PACKET) * PACKET;
        let ends: &[usize] = match self.loss {
            Some(_) if is_old => &[middle],
            Some(loss) if margin(loss) <= self.most_margin * total => &[small, middle],
            _ => &[],
        };
        let passes = |end: &usize| (block.total..block.total + more).contains(end);
        block.total + more > largest || ends.iter().any(passes)
    }
}

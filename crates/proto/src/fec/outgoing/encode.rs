//! Makes repairs of a block: how large its symbols are, how many of them are worth it, and the code.

use bytes::Bytes;
use reed_solomon_simd::ReedSolomonEncoder;

use super::super::block::{LANE, MAX_REPAIRS, Repair, Shape};
use super::super::policy::Fec;
use super::{Block, Outgoing};

/// Symbols of a large block in a packet: the fewer, the more a lost packet hits beyond its own bytes. More symbols are more
/// work, so there are many only in a small block, whose symbols are the smallest there are.
const SYMBOLS: usize = 7;
/// A block of no more bytes is small.
const SMALL: usize = 64 << 10;
/// Symbols that a lost packet hits: one more than would fill it, or two, and it may be somewhat larger than a repair.
const HIT: [f64; 2] = [1.02, 1.2];

/// Bytes of a large block's symbol, if a packet has `room` for some.
pub(super) const fn large_symbol(room: usize) -> usize {
    room / SYMBOLS / LANE * LANE
}

impl Outgoing {
    /// Makes the repairs of `block`, as many as are worth it and may be spent.
    pub(super) fn encode(&mut self, block: &Block, size: usize) {
        let number = self.next_block;
        self.next_block += 1;
        let mut shape = Shape {
            symbol: LANE,
            repairs: 0,
            ranges: block.ranges.clone(),
        };
        // The numbers that are not known yet take 2 bytes at most.
        let mut head = Vec::new();
        Repair::head(&shape, number, 0, &mut head);
        let room = size.saturating_sub(head.len() + 3);
        let total = block.total;
        shape.symbol = match total > SMALL {
            true => large_symbol(room),
            false => LANE,
        };
        if shape.symbol == 0 || room < shape.symbol {
            return;
        }
        let head_size = head.len() + 3;
        let Some((packets, each)) = self.afford(block, room, &shape, head_size) else {
            return;
        };
        shape.repairs = packets * each;
        if !shape.is_supported() {
            return;
        }
        if total == 0 {
            // Only ends: the head says it all.
            shape.repairs = 0;
            let mut out = Vec::new();
            Repair::head(&shape, number, 0, &mut out);
            return self.repairs.push_back(out.into());
        }
        let symbols = repair_symbols(&shape, &block.content).unwrap_or_default();
        let packets = symbols.chunks(each * shape.symbol).enumerate();
        for (index, symbols) in packets {
            let mut out = Vec::with_capacity(head_size + symbols.len());
            Repair::head(&shape, number, index * each, &mut out);
            out.extend_from_slice(symbols);
            self.repairs.push_back(out.into());
        }
    }

    /// Packets of repair, and symbols in each, that are worth it and paid for; `None` if there are none. Part of the symbols that
    /// bring a lost packet back bring nothing back, so it is one lost packet less until what is in hand pays for all of them.
    fn afford(
        &mut self,
        block: &Block,
        room: usize,
        shape: &Shape,
        head: usize,
    ) -> Option<(usize, usize)> {
        // Of whole vectors there may be room for one more.
        let symbols = room / shape.symbol;
        let margin = self
            .loss_heeded()
            .map_or(1.0, |loss| self.credit.margin(loss));
        let lost = self.fec.repairs(block.packets(room), self.loss, margin);
        (1..=lost).rev().find_map(|lost| {
            let wanted = self.symbols(lost, room, shape);
            let packets = wanted.div_ceil(symbols);
            let each = wanted.div_ceil(packets.max(1));
            let paid = self.pay(packets * (head + each * shape.symbol));
            paid.then_some((packets, each))
        })
    }

    /// Repair symbols that bring `lost` packets of this block back, if a packet has `room` for some.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "some thousand symbols at most"
    )]
    fn symbols(&self, lost: usize, room: usize, shape: &Shape) -> usize {
        let (symbol, sources) = (shape.symbol, shape.sources());
        let hit = match self.fec {
            Fec::Fixed { .. } => (room / symbol) as f64,
            _ => room as f64 / symbol as f64 * HIT[0] + HIT[1],
        };
        // A packet that has everything needs no more symbols than there are.
        let wanted = lost as f64 * hit.min(sources.max(1) as f64);
        (wanted.ceil() as usize).min(MAX_REPAIRS as usize)
    }
}

impl Block {
    /// Packets at risk, if one has `room` for so many bytes; a small block takes one all the same.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a block")]
    fn packets(&self, room: usize) -> f64 {
        match self.total {
            0 => 1.0,
            total => self.at_risk / total.min(room) as f64,
        }
    }
}

/// The repair symbols of a block, one after the other.
fn repair_symbols(shape: &Shape, content: &[Bytes]) -> Option<Vec<u8>> {
    let size = shape.symbol;
    let mut encoder = ReedSolomonEncoder::new(shape.sources(), shape.repairs, size).ok()?;
    // Of a symbol that is in more than one piece.
    let mut begun = Vec::with_capacity(size);
    for piece in content {
        let missing = (size - begun.len()) % size;
        let (head, rest) = piece.split_at(missing.min(piece.len()));
        begun.extend_from_slice(head);
        if begun.len() == size {
            encoder.add_original_shard(&begun).ok()?;
            begun.clear();
        }
        let whole = rest.chunks_exact(size);
        begun.extend_from_slice(whole.remainder());
        for symbol in whole {
            encoder.add_original_shard(symbol).ok()?;
        }
    }
    if !begun.is_empty() {
        begun.resize(size, 0);
        encoder.add_original_shard(&begun).ok()?;
    }
    let result = encoder.encode().ok()?;
    Some(result.recovery_iter().collect::<Vec<_>>().concat())
}

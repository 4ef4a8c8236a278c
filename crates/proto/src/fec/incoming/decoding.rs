//! Which symbols of a block are missing, and what repairs make of them.

use bytes::Bytes;
use reed_solomon_simd::ReedSolomonDecoder;

use super::super::block::Shape;
use super::super::history::History;
use super::{IncomingBlock, Mended};

/// Pieces of the block that the history has, as offsets in the block and bytes.
pub(super) fn pieces<'a>(
    shape: &'a Shape,
    history: &'a History,
) -> impl Iterator<Item = (usize, &'a [u8])> {
    let mut base = 0;
    shape.ranges.iter().flat_map(move |range| {
        let start = base;
        base += usize::try_from(range.len()).unwrap_or(usize::MAX);
        let shift = move |(offset, bytes): (usize, &'a [u8])| (start + offset, bytes);
        history.pieces(range).map(shift)
    })
}

/// Symbols of which the history has not every byte, in order, and how many pieces of the block it has.
pub(super) fn missing(shape: &Shape, history: &History) -> (Vec<usize>, u64) {
    let mut missing = Vec::new();
    let mut gap = |from: usize, to: usize| {
        if from < to {
            let first = missing.last().map_or(0, |last| last + 1);
            missing.extend((from / shape.symbol).max(first)..to.div_ceil(shape.symbol));
        }
    };
    let (mut reached, mut count) = (0, 0);
    for (offset, bytes) in pieces(shape, history) {
        gap(reached, offset);
        reached = reached.max(offset + bytes.len());
        count += 1;
    }
    gap(reached, shape.total());
    (missing, count)
}

/// The missing symbols, neighbours together, as offsets in the block and bytes.
pub(super) fn decode(
    block: &IncomingBlock,
    missing: &[usize],
    history: &History,
) -> Option<Vec<(usize, Vec<u8>)>> {
    let shape = &block.shape;
    let (size, count) = (shape.symbol, shape.sources());
    let mut decoder = ReedSolomonDecoder::new(count, shape.repairs, size).ok()?;
    let mut lost = missing.iter().copied().peekable();
    // Of a symbol that is in more than one piece.
    let mut parts = vec![0; size];
    let mut pieces = pieces(shape, history).peekable();
    for index in 0..count {
        let (start, end) = (index * size, (index + 1) * size);
        while pieces
            .next_if(|(from, bytes)| from + bytes.len() <= start)
            .is_some()
        {}
        if lost.next_if_eq(&index).is_some() {
            continue;
        }
        match pieces.peek() {
            Some((from, bytes)) if *from <= start && end <= from + bytes.len() => {
                let symbol = &bytes[start - from..end - from];
                decoder.add_original_shard(index, symbol).ok()?;
            }
            _ => {
                parts.fill(0);
                while let Some((from, bytes)) = pieces.peek()
                    && *from < end
                {
                    let (first, last) = (start.max(*from), end.min(from + bytes.len()));
                    parts[first - start..last - start]
                        .copy_from_slice(&bytes[first - from..last - from]);
                    if from + bytes.len() > end {
                        break;
                    }
                    pieces.next();
                }
                decoder.add_original_shard(index, &parts).ok()?;
            }
        }
    }
    for (index, symbol) in block.symbols.iter().take(missing.len()) {
        decoder.add_recovery_shard(*index, symbol).ok()?;
    }
    let result = decoder.decode().ok()?;
    let mut mended: Vec<(usize, Vec<u8>)> = Vec::new();
    for (index, symbol) in result.restored_original_iter() {
        match mended.last_mut() {
            Some((first, bytes)) if *first + bytes.len() == index * size => {
                bytes.extend_from_slice(symbol);
            }
            _ => mended.push((index * size, symbol.to_vec())),
        }
    }
    Some(mended)
}

/// Says which streams `bytes` at `offset` of the block belong to.
pub(super) fn place(shape: &Shape, offset: usize, bytes: &[u8], mended: &mut Vec<Mended>) {
    let mut base = 0;
    for range in &shape.ranges {
        let len = usize::try_from(range.len()).unwrap_or(usize::MAX);
        let (from, to) = (offset.max(base), (offset + bytes.len()).min(base + len));
        if from < to {
            mended.push(Mended::Bytes {
                stream: range.stream,
                offset: range.start + (from - base) as u64,
                bytes: Bytes::copy_from_slice(&bytes[from - offset..to - offset]),
            });
        }
        base += len;
    }
}

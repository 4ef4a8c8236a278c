//! A set of numbers as disjoint ranges, for receivers and for senders' scoreboards.

use std::collections::BTreeMap;
use std::ops::Range;

/// Disjoint ranges that do not touch either, by their start.
#[derive(Debug, Default)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds `range`; answers what of it was missing.
    pub(super) fn insert(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        if range.is_empty() {
            return missing;
        }
        let mut merged = range.clone();
        let mut from = range.start;
        // Every known range that begins at or before the end, newest start first.
        let mut touched = Vec::new();
        for (&start, &end) in self.0.range(..=range.end).rev() {
            if end < range.start {
                break;
            }
            touched.push(start..end);
        }
        for known in touched.into_iter().rev() {
            if known.start > from {
                missing.push(from..known.start);
            }
            from = from.max(known.end);
            merged = merged.start.min(known.start)..merged.end.max(known.end);
            self.0.remove(&known.start);
        }
        if from < range.end {
            missing.push(from..range.end);
        }
        self.0.insert(merged.start, merged.end);
        missing
    }

    /// The range that holds `number`.
    pub(super) fn around(&self, number: u64) -> Option<Range<u64>> {
        let (&start, &end) = self.0.range(..=number).next_back()?;
        (number < end).then_some(start..end)
    }

    /// Forgets everything below `number`.
    pub(super) fn forget_below(&mut self, number: u64) {
        while let Some(entry) = self.0.first_entry() {
            let (start, end) = (*entry.key(), *entry.get());
            if start >= number {
                return;
            }
            entry.remove();
            if end > number {
                self.0.insert(number, end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(
        clippy::single_range_in_vec_init,
        reason = "ranges are what is compared"
    )]
    fn inserting_answers_what_was_missing() {
        let mut ranges = Ranges::default();
        assert_eq!(ranges.insert(5..8), [5..8]);
        assert_eq!(ranges.insert(10..12), [10..12]);
        assert_eq!(ranges.insert(6..7), []);
        assert_eq!(ranges.insert(4..11), [4..5, 8..10]);
        assert_eq!(ranges.around(11), Some(4..12));
        assert_eq!(ranges.around(12), None);
        assert_eq!(ranges.insert(12..13), [12..13]);
        assert_eq!(ranges.around(4), Some(4..13));
        ranges.forget_below(9);
        assert_eq!(ranges.around(8), None);
        assert_eq!(ranges.around(9), Some(9..13));
        ranges.forget_below(20);
        assert_eq!(ranges.insert(3..3), []);
        assert_eq!(ranges.around(12), None);
    }
}

//! The terminal burst time plan: which timeslots of a superframe are whose.
//!
//! Each terminal's slots are spread evenly over the superframe, so that a packet waits as little as its rate permits. The
//! plan is made when somebody first has something to send in that superframe.

use super::controller::Grant;

/// A superframe that has been shared.
#[derive(Debug, Clone)]
pub(crate) struct Superframe {
    pub(crate) index: u64,
    pub(crate) grants: Vec<Grant>,
    /// The slots of each terminal, ascending; made on demand.
    slots: Option<Vec<Vec<u32>>>,
}

impl Superframe {
    pub(crate) const fn new(index: u64, grants: Vec<Grant>) -> Self {
        Self {
            index,
            grants,
            slots: None,
        }
    }

    /// The slots of `terminal`, of `total` slots in the superframe.
    pub(crate) fn slots(&mut self, terminal: usize, total: u32) -> &[u32] {
        let grants = &self.grants;
        let slots = self.slots.get_or_insert_with(|| spread(grants, total));
        &slots[terminal]
    }
}

/// Gives the k-th of n slots its ideal place, (k + 1/2) / n of the superframe, and takes the nearest free one in order.
fn spread(grants: &[Grant], total: u32) -> Vec<Vec<u32>> {
    let total = u64::from(total);
    let mut places: Vec<(u64, usize)> = Vec::new();
    for (terminal, grant) in grants.iter().enumerate() {
        let count = u64::from(grant.slots);
        places.extend((0..count).map(|slot| ((2 * slot + 1) * total / (2 * count), terminal)));
    }
    places.sort_unstable();
    let mut slots = vec![Vec::new(); grants.len()];
    // At least so many slots must be left for those that still come.
    let mut to_come = u64::try_from(places.len()).unwrap_or(u64::MAX);
    let mut next = 0;
    for (place, terminal) in places {
        let slot = place.max(next).min(total.saturating_sub(to_come));
        slots[terminal].push(u32::try_from(slot).unwrap_or(u32::MAX));
        next = slot + 1;
        to_come -= 1;
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(counts: &[u32], total: u32) -> Vec<Vec<u32>> {
        let grants: Vec<_> = counts
            .iter()
            .map(|slots| Grant {
                slots: *slots,
                waveform: None,
            })
            .collect();
        spread(&grants, total)
    }

    #[test]
    fn slots_are_spread_and_no_slot_is_given_twice() {
        assert_eq!(plan(&[4], 365), [[45, 136, 228, 319]]);
        for counts in [
            [90, 200, 75],
            [365, 0, 0],
            [1, 363, 1],
            [121, 122, 122],
            [5, 5, 5],
        ] {
            let plan = plan(&counts, 365);
            let mut all: Vec<u32> = plan.concat();
            assert!(
                plan.iter()
                    .zip(counts)
                    .all(|(slots, count)| slots.len() == count as usize)
            );
            assert!(plan.iter().all(|slots| slots.is_sorted()));
            all.sort_unstable();
            let before = all.len();
            all.dedup();
            assert_eq!(all.len(), before, "{counts:?}");
            assert!(all.last().is_none_or(|last| *last < 365), "{counts:?}");
        }
    }
}

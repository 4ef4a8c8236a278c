//! Window of numbers that have been used, so that none counts twice: connections of an epoch of SLE
//! (`PROTOCOL.md` §18.3), packets and payloads of an association of LES (§20.4).

/// Numbers in one word of the window.
const WORD: u64 = 64;

/// Reason why a number does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stale {
    /// The number has been used.
    #[error("number {0} has been used")]
    Repeated(u64),
    /// The number is so far below the highest that nobody knows any more whether it has been used.
    #[error(
        "number {number} is {reach} or more below {highest}: too old to tell whether it has been used"
    )]
    Old {
        /// The number.
        number: u64,
        /// Highest number so far.
        highest: u64,
        /// Numbers that the window tells apart.
        reach: u64,
    },
}

/// Numbers that have been used, of which the newest `REACH` are told apart; older ones are refused.
///
/// `REACH` is a multiple of 64; the window takes an eighth of it in bytes.
pub struct Window<const REACH: u64> {
    highest: Option<u64>,
    /// Bit `n` modulo `REACH` is set if `n` has been used and is not too old.
    used: Box<[u64]>,
}

impl<const REACH: u64> Window<REACH> {
    /// Highest number that has been used.
    #[must_use]
    pub fn highest(&self) -> Option<u64> {
        self.highest
    }

    /// Says whether `number` would count.
    ///
    /// # Errors
    /// [`Stale`]: the number has been used, or is too old to tell.
    pub fn check(&self, number: u64) -> Result<(), Stale> {
        let Some(highest) = self.highest.filter(|highest| number <= *highest) else {
            return Ok(());
        };
        if highest - number >= REACH {
            return Err(Stale::Old {
                number,
                highest,
                reach: REACH,
            });
        }
        let (word, bit) = Self::place(number);
        if self.used[word] & bit != 0 {
            return Err(Stale::Repeated(number));
        }
        Ok(())
    }

    /// Uses `number`, once.
    ///
    /// # Errors
    /// [`Stale`]: the number has been used, or is too old to tell; nothing has changed.
    pub fn insert(&mut self, number: u64) -> Result<(), Stale> {
        self.check(number)?;
        self.advance(number);
        let (word, bit) = Self::place(number);
        self.used[word] |= bit;
        Ok(())
    }

    /// Makes `number` the highest, if it is above; the numbers between have not been used.
    fn advance(&mut self, number: u64) {
        let first = match self.highest {
            Some(highest) if number <= highest => return,
            Some(highest) => highest + 1,
            None => number,
        };
        if number - first >= REACH {
            self.used.fill(0);
        } else {
            for passed in first..=number {
                let (word, bit) = Self::place(passed);
                self.used[word] &= !bit;
            }
        }
        self.highest = Some(number);
    }

    /// Word of `number` and its bit in there.
    fn place(number: u64) -> (usize, u64) {
        let at = number % REACH;
        ((at / WORD) as usize, 1 << (at % WORD))
    }
}

impl<const REACH: u64> Default for Window<REACH> {
    fn default() -> Self {
        Self {
            highest: None,
            used: vec![0; (REACH / WORD) as usize].into(),
        }
    }
}

impl<const REACH: u64> std::fmt::Debug for Window<REACH> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Window(up to {:?})", self.highest)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand_core::{Rng, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    const REACH: u64 = 4096;

    #[test]
    fn a_number_counts_once() {
        let mut window = Window::<REACH>::default();
        for number in [0, 5, 3, u64::MAX - 1, u64::MAX] {
            assert_eq!(window.insert(number), Ok(()));
            assert_eq!(window.insert(number), Err(Stale::Repeated(number)));
        }
    }

    #[test]
    fn the_window_ends_where_it_says() {
        let mut window = Window::<REACH>::default();
        window.insert(REACH + 9).unwrap();
        assert_eq!(window.insert(10), Ok(()), "the last within");
        let highest = REACH + 9;
        assert_eq!(
            window.insert(9),
            Err(Stale::Old {
                number: 9,
                highest,
                reach: REACH
            })
        );
        window.insert(REACH + 10).unwrap();
        assert_eq!(
            window.check(10),
            Err(Stale::Old {
                number: 10,
                highest: highest + 1,
                reach: REACH
            })
        );
        assert_eq!(window.check(11), Ok(()));
    }

    #[test]
    fn a_check_changes_nothing() {
        let mut window = Window::<REACH>::default();
        assert_eq!((window.check(7), window.check(7)), (Ok(()), Ok(())));
        assert_eq!((window.insert(7), window.insert(6)), (Ok(()), Ok(())));
    }

    /// Against a set without an end, for numbers that come in steps of all sizes.
    #[test]
    fn the_window_is_what_a_set_would_be() {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        for _ in 0..20 {
            let (mut window, mut used) = (Window::<REACH>::default(), BTreeSet::new());
            let mut base = 0_u64;
            for _ in 0..20_000 {
                let reach = 1 << (random.next_u32() % 19);
                base += if random.next_u32() % 4 == 0 {
                    random.next_u64() % reach
                } else {
                    0
                };
                let number =
                    (base + random.next_u64() % 8).saturating_sub(random.next_u64() % reach);
                let highest = used.last().copied().unwrap_or(0);
                let old = highest >= number + REACH;
                let expected = !old && !used.contains(&number);
                assert_eq!(window.check(number).is_ok(), expected);
                assert_eq!(window.insert(number).is_ok(), expected);
                if expected {
                    used.insert(number);
                }
            }
        }
    }
}

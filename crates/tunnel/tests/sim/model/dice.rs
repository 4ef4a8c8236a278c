//! Random decisions of the model.

use bentpipe_units::Seed;

/// Source of decisions, the same for the same seed.
pub(super) struct Dice {
    seed: Seed,
    thrown: u64,
}

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed: Seed::new(seed).stream("model"),
            thrown: 0,
        }
    }

    /// A number below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.thrown += 1;
        self.seed.nth(self.thrown).as_u64() % bound
    }

    /// True once in `count` times.
    pub(super) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// Bytes that a host writes: mostly few, now and then millions, at times none.
    pub(super) fn size(&mut self) -> u64 {
        match self.below(10) {
            0 => 0,
            1..6 => self.below(3_000),
            6..9 => self.below(200_000),
            _ => self.below(3_000_000),
        }
    }
}

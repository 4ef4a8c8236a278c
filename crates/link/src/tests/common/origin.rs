//! Where a test's virtual time begins, and its random numbers.

use std::time::Instant;

use bentpipe_units::Seed;

/// The origin of a test's virtual time; nothing reads the clock after it.
#[expect(
    clippy::disallowed_methods,
    reason = "an Instant can be had in no other way"
)]
pub(crate) fn origin() -> Instant {
    Instant::now()
}

/// A fixed seed.
pub(crate) fn seed() -> Seed {
    Seed::new(1)
}

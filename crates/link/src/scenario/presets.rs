//! Scenarios by name.

use std::time::Duration;

use bentpipe_units::BitRate;

use super::Scenario;

/// The names that [`preset`] knows.
pub const PRESETS: &[&str] = &["geo", "leo", "g1"];

/// A scenario by name: constant rates and delay, no errors, queues of one BDP, seed 1.
///
/// `geo`: 10/10 Mbit/s, 250 ms (the GEO link of the CNES measurements). `leo`: 150/15 Mbit/s, 25 ms.
/// `g1`: 250/3 Mbit/s, 300 ms.
pub fn preset(name: &str) -> Option<Scenario> {
    let (forward, back, millis) = match name {
        "geo" => (10, 10, 250),
        "leo" => (150, 15, 25),
        "g1" => (250, 3, 300),
        _ => return None,
    };
    let rate = BitRate::megabits_per_second;
    let delay = Duration::from_millis(millis);
    Some(Scenario::constant(name, delay, rate(forward), rate(back)))
}

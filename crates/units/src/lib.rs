//! Units of the link: rates, sizes, time spans, levels, symbol rates, angles, distances, probabilities, seeds.
//!
//! Every quantity of bentpipe has a type, and one string form that configuration files, scenarios, messages and
//! results share. This crate does no I/O, keeps no state and knows nothing of packets or configuration keys.
//!
//! ```text
//!   "10 Mbit/s"   "625 kB"     "250 ms"     "1 %"     seed = 1
//!        │            │            │           │          │
//!    BitRate ──×── TimeSpan ──► ByteCount    Ratio      Seed ──stream("loss")──► Seed
//!        ▲            ▲            ▲
//!        └────────────┴────────────┴── quantity: number, space, unit
//! ```

mod decibel;
mod distance;
mod median;
mod quantity;
mod rate;
mod ratio;
mod seed;
mod signed;
mod size;
mod span;
mod symbols;
#[cfg(test)]
mod tests;

pub use decibel::Decibel;
pub use distance::Distance;
pub use median::{median, median_rank};
pub use quantity::ParseQuantityError;
pub use rate::BitRate;
pub use ratio::Ratio;
pub use seed::Seed;
pub use signed::{Angle, DecibelSlope};
pub use size::ByteCount;
pub use span::TimeSpan;
pub use symbols::{Bandwidth, SymbolRate};

//! Lengths of a page's objects: drawn from a seed, and in sum what the page's shape says.

use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;

use super::shape::{Kind, MIN_BYTES, Shape};

/// Standard deviation of the logarithm of a deep page's lengths: the longest of 70 objects has a tenth of all bytes.
const SIGMA: f64 = 1.3;
/// Standard deviations beyond which none is drawn, so that a script has room for what it refers to.
const FARTHEST: f64 = 3.0;

/// Lengths of the objects of each kind, which sum up to what the shape says.
pub(super) struct Lengths([Vec<u64>; 3]);

impl Lengths {
    pub(super) fn new(shape: &Shape, numbers: &mut Pcg64Mcg) -> Self {
        Self(shape.parts().map(|part| {
            let weight = |_| match shape.deep {
                true => lognormal(numbers),
                false => few_large(numbers),
            };
            let weights: Vec<u64> = (0..part.count).map(weight).collect();
            let shared = part.bytes.saturating_sub(MIN_BYTES * part.count as u64);
            let total: u64 = weights.iter().sum();
            let share = |weight: &u64| MIN_BYTES + shared * weight / total;
            let mut lengths: Vec<u64> = weights.iter().map(share).collect();
            let sum: u64 = lengths.iter().sum();
            if let Some(last) = lengths.last_mut() {
                // What rounding left over.
                *last += part.bytes - sum;
            }
            lengths
        }))
    }

    pub(super) fn next(&mut self, kind: Kind) -> u64 {
        let [styles, scripts, images] = &mut self.0;
        let lengths = match kind {
            Kind::Style => styles,
            Kind::Script => scripts,
            Kind::Document | Kind::Image => images,
        };
        // As many as the shape has of the kind.
        lengths.pop().unwrap_or(MIN_BYTES)
    }
}

/// Many small ones and a few that are fifty times as large.
fn few_large(numbers: &mut Pcg64Mcg) -> u64 {
    let uniform = numbers.next_u64() % 1000;
    20 + uniform.pow(3) / 1_000_000
}

/// A weight whose logarithm is normal: the sum of twelve uniform numbers is, near enough, and has a variance of 1.
fn lognormal(numbers: &mut Pcg64Mcg) -> u64 {
    let mut uniform = || (numbers.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    let normal = (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
    let weight = (SIGMA * normal.clamp(-FARTHEST, FARTHEST)).exp();
    // Between 20 and 50,000.
    (weight * 1e3) as u64
}

//! Texts that are almost right, for the tests of what reads them.

use bentpipe_units::Seed;
use rand_core::Rng as _;

use crate::workload::generator;

/// `text` with one to `most` parts of its bytes, each shorter than `longest`, removed, doubled or replaced by one of `pieces`.
pub(crate) fn changed(
    text: &str,
    seed: Seed,
    most: usize,
    longest: usize,
    pieces: &[&str],
) -> String {
    let mut numbers = generator(seed);
    let mut draw = |below: usize| (numbers.next_u64() % below.max(1) as u64) as usize;
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=draw(most) {
        let start = draw(bytes.len());
        let end = bytes.len().min(start + draw(longest));
        let part = bytes[start..end].to_vec();
        let new = match draw(3) {
            0 => Vec::new(),
            1 => [part.clone(), part].concat(),
            _ => pieces[draw(pieces.len())].as_bytes().to_vec(),
        };
        bytes.splice(start..end, new);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

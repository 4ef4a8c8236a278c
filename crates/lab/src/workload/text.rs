//! Words from a seed: content that a compressor shortens as it does prose and tables, and that is
//! as long to whoever does not compress.

use std::sync::OnceLock;

use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;

/// Number of different words; with it zstd finds as much as the test of the content asks for.
const WORDS: usize = 512;
/// Most syllables of a word.
const LONGEST: u64 = 4;
const SYLLABLES: [&[u8]; 25] = [
    b"ba", b"be", b"co", b"da", b"de", b"fi", b"ga", b"ho", b"in", b"ja", b"ke", b"la", b"lo",
    b"ma", b"mi", b"no", b"or", b"pa", b"re", b"sa", b"se", b"ti", b"to", b"un", b"ve",
];

/// Fills `bytes` with words and spaces, each `block` bytes anew: whatever ends sooner begins alike.
pub(super) fn fill(bytes: &mut [u8], block: usize, numbers: &mut Pcg64Mcg) {
    let words = words();
    let mut line = Vec::with_capacity(2 * block);
    for block in bytes.chunks_mut(block) {
        line.clear();
        while line.len() < block.len() {
            line.extend_from_slice(&words[(numbers.next_u64() >> 33) as usize % WORDS]);
            line.push(b' ');
        }
        block.copy_from_slice(&line[..block.len()]);
    }
}

/// The words, which are the same in every content.
fn words() -> &'static [Vec<u8>] {
    static ALL: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut numbers = Pcg64Mcg::new(1);
        let mut next = |most: u64| ((numbers.next_u64() >> 33) % most) as usize;
        let mut word = |_| {
            let syllables = 1 + next(LONGEST);
            let chosen = (0..syllables).map(|_| SYLLABLES[next(SYLLABLES.len() as u64)]);
            chosen.collect::<Vec<_>>().concat()
        };
        (0..WORDS).map(&mut word).collect()
    })
}

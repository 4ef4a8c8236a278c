//! Makes inputs out of seeds, reproducibly: the same target, rounds and seed give the same inputs everywhere.
//!
//! Mutation without coverage feedback, for every commit: it starts from valid inputs, so it reaches deep fields. What only
//! coverage finds (`long.sh`) stands in the corpus, and is run as it is.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::Target;

/// Longest input, bytes; above every limit of the protocol's headers.
const MAX_LEN: usize = 6000;

/// Values at which lengths and integers change form.
const EDGES: &[u8] = &[0x00, 0x01, 0x3f, 0x40, 0x7f, 0x80, 0xbf, 0xc0, 0xff];

/// SplitMix64 (Steele, Lea, Flood 2014): small, seedable, good enough to choose mutations.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`; 0 if `bound` is 0.
    fn below(&mut self, bound: usize) -> usize {
        self.next() as usize % bound.max(1)
    }

    fn byte(&mut self) -> u8 {
        self.next().to_be_bytes()[0]
    }

    fn bytes(&mut self, max: usize) -> Vec<u8> {
        (0..self.below(max)).map(|_| self.byte()).collect()
    }
}

/// Runs `target` on its corpus, on its seeds, on all their prefixes, and on `rounds` mutations. An input that makes it panic is
/// printed in hexadecimal before the panic goes on.
pub fn run(target: &Target, rounds: u64, seed: u64) {
    for input in target.corpus() {
        one(target, &input);
    }
    let seeds = (target.seeds)();
    for input in &seeds {
        for cut in 0..=input.len() {
            one(target, &input[..cut]);
        }
    }
    let mut random = Random(seed);
    for _ in 0..rounds {
        let mut input = if seeds.is_empty() {
            Vec::new()
        } else {
            seeds[random.below(seeds.len())].clone()
        };
        for _ in 0..=random.below(4) {
            mutate(&mut input, &seeds, &mut random);
        }
        input.truncate(MAX_LEN);
        one(target, &input);
    }
}

/// Runs `target` on one input.
pub fn one(target: &Target, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(input))) {
        let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        eprintln!("{}: failing input {hex}", target.name);
        resume_unwind(panic);
    }
}

fn mutate(input: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    let at = random.below(input.len());
    match random.below(9) {
        0 => input.truncate(at),
        1 => *input = random.bytes(64),
        2 => {
            let at = random.below(input.len() + 1);
            let noise = random.bytes(16);
            input.splice(at..at, noise);
        }
        3 if !seeds.is_empty() => {
            let other = &seeds[random.below(seeds.len())];
            let from = random.below(other.len());
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        4 if !input.is_empty() => {
            let end = (at + 1 + random.below(16)).min(input.len());
            let part = input[at..end].to_vec();
            for _ in 0..=random.below(64) {
                input.splice(at..at, part.iter().copied());
            }
        }
        5 if !input.is_empty() => {
            let end = (at + 1 + random.below(8)).min(input.len());
            input.drain(at..end);
        }
        6 if !input.is_empty() => input[at] ^= 1 << random.below(8),
        7 if !input.is_empty() => input[at] = input[at].wrapping_add([1, 0xff][random.below(2)]),
        8 if !input.is_empty() => input[at] = EDGES[random.below(EDGES.len())],
        _ => input.push(random.byte()),
    }
}

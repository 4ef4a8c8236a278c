//! Seeds: one root number per run, from which every random decision follows.
//!
//! Each consumer takes its own named stream, so that adding one does not shift the numbers of another. The mixing is
//! fixed for ever: results recorded with a seed must be reproducible by later versions. It is not cryptographic.

use serde::{Deserialize, Serialize};

/// A 64-bit seed. `seed = 1` in a file; sub-seeds come from [`Seed::stream`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seed(u64);

impl Seed {
    /// The root seed `n`.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// The seed as a number.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The sub-seed called `name`: `mix(mix(self) ^ fnv1a(name))`, with the two functions below.
    ///
    /// Mixing before and after makes `a.stream("x").stream("y")` differ from `a.stream("y").stream("x")`.
    #[must_use]
    pub fn stream(self, name: &str) -> Self {
        Self(splitmix64(splitmix64(self.0) ^ fnv1a(name.as_bytes())))
    }

    /// The sub-seed with the number `n`: of the n-th terminal, epoch or frame.
    #[must_use]
    pub const fn nth(self, n: u64) -> Self {
        Self(splitmix64(splitmix64(self.0) ^ splitmix64(!n)))
    }
}

/// FNV-1a, 64 bits (Fowler, Noll, Vo).
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// One step of splitmix64 (Steele, Lea, Flood, OOPSLA 2014), a bijection on 64 bits.
const fn splitmix64(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_match_published_vectors() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(splitmix64(0), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn streams_differ_by_name_root_and_order() {
        let root = Seed::new(1);
        assert_ne!(root.stream("forward"), root.stream("return"));
        assert_ne!(root.stream("loss"), Seed::new(2).stream("loss"));
        assert_ne!(root.stream("a").stream("b"), root.stream("b").stream("a"));
        assert_ne!(root.stream(""), root);
        assert_ne!(root.nth(0), root.nth(1));
        assert_ne!(root.nth(0), root);
        assert_ne!(root.nth(1), Seed::new(2).nth(1));
    }

    #[test]
    fn the_mixing_never_changes() {
        // Computed apart from this code, from the two published functions.
        assert_eq!(Seed::new(1).stream("loss").as_u64(), 0xd5e9_7c97_ea55_564d);
    }
}

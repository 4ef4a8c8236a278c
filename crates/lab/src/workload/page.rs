//! The page: 70 objects, 2 MB, over 11 hosts, in three levels of dependency.
//!
//! Everything about it follows from one seed. The document comes first; what it refers to comes next, over most of the
//! hosts; then what the first scripts and style sheets of that refer to, which takes in the last three hosts.

use bentpipe_units::Seed;
use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;

use super::content::{Expected, Object, generator};

/// Objects of a page, the document included.
pub const OBJECTS: usize = 70;
/// Hosts that a page's objects are on.
pub const HOSTS: u8 = 11;
/// Bytes of all bodies.
const BYTES: u64 = 2_000_000;

/// The document, object 0 on host 0.
const DOCUMENT_BYTES: u64 = 60_000;
/// The document refers to objects 1 to this.
const LAST_OF_DOCUMENT: usize = 45;
/// Of which these, from 1, are the scripts and style sheets that refer to the rest.
const REFERRERS: usize = 6;
/// Hosts that the document refers to; the others are met a level later.
const HOSTS_OF_DOCUMENT: u8 = 8;
/// The smallest object.
const MIN_BYTES: u64 = 400;

/// One object of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageObject {
    /// What it is.
    pub expected: Expected,
    /// The host that has it, as its place in the table of hosts.
    pub host: u8,
    /// The object that refers to it; the document has none. Always an earlier one.
    pub parent: Option<usize>,
}

/// A page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page(Vec<PageObject>);

impl Page {
    /// The page of a seed.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        let mut shape = generator(seed.stream("shape"));
        let lengths = lengths(&mut shape);
        let mut object = |index: usize, length| {
            let (host, parent) = match index {
                0 => (0, None),
                1..=LAST_OF_DOCUMENT => {
                    let host = host(&mut shape, index - 1, 0, HOSTS_OF_DOCUMENT);
                    (host, Some(0))
                }
                _ => {
                    let first = index - LAST_OF_DOCUMENT - 1;
                    let host = host(&mut shape, first, HOSTS_OF_DOCUMENT, HOSTS);
                    (host, Some(1 + first % REFERRERS))
                }
            };
            let seed = seed.stream(&format!("object {index}"));
            PageObject {
                expected: Object { seed, length }.into(),
                host,
                parent,
            }
        };
        let objects = lengths.into_iter().enumerate();
        Self(objects.map(|(i, length)| object(i, length)).collect())
    }

    /// Its objects, the document first.
    #[must_use]
    pub fn objects(&self) -> &[PageObject] {
        &self.0
    }

    /// Places of the objects that the one at `parent` refers to.
    pub fn children(&self, parent: usize) -> impl Iterator<Item = usize> {
        let refers = move |object: &PageObject| object.parent == Some(parent);
        let objects = self.0.iter().enumerate();
        objects.filter_map(move |(i, object)| refers(object).then_some(i))
    }

    /// Bytes of all bodies.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0
            .iter()
            .map(|object| object.expected.object.length)
            .sum()
    }
}

/// Lengths of all objects: many small ones, a few large ones, and the document.
fn lengths(shape: &mut Pcg64Mcg) -> Vec<u64> {
    let count = OBJECTS - 1;
    let weights: Vec<u64> = (0..count)
        .map(|_| {
            let uniform = shape.next_u64() % 1000;
            20 + uniform.pow(3) / 1_000_000
        })
        .collect();
    let shared = BYTES - DOCUMENT_BYTES - MIN_BYTES * count as u64;
    let total: u64 = weights.iter().sum();
    let mut lengths = vec![DOCUMENT_BYTES];
    lengths.extend(
        weights
            .iter()
            .map(|weight| MIN_BYTES + shared * weight / total),
    );
    // What rounding left over.
    lengths[count] += BYTES - lengths.iter().sum::<u64>();
    lengths
}

/// The host of a level's object: the level's own hosts (`first..end`) get one each, then lower ones get more.
fn host(shape: &mut Pcg64Mcg, place: usize, first: u8, end: u8) -> u8 {
    if place < usize::from(end - first) {
        return first + place as u8;
    }
    let mut any = || (shape.next_u64() % u64::from(end)) as u8;
    any().min(any())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_the_shape_that_is_promised() {
        for seed in 1..20 {
            let page = Page::new(Seed::new(seed));
            assert_eq!(page, Page::new(Seed::new(seed)));
            assert_eq!((page.objects().len(), page.bytes()), (OBJECTS, BYTES));
            let mut hosts: Vec<u8> = page.objects().iter().map(|object| object.host).collect();
            hosts.sort_unstable();
            hosts.dedup();
            assert_eq!(hosts, (0..HOSTS).collect::<Vec<u8>>());
            let depth = |mut index: usize| {
                let mut depth = 0;
                while let Some(parent) = page.objects()[index].parent {
                    assert!(parent < index);
                    (index, depth) = (parent, depth + 1);
                }
                depth
            };
            assert_eq!((0..OBJECTS).map(depth).max(), Some(2));
            assert_eq!(page.children(0).count(), LAST_OF_DOCUMENT);
        }
        assert_ne!(Page::new(Seed::new(1)), Page::new(Seed::new(2)));
    }
}

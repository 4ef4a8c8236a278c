//! A page: documents, style sheets, scripts and images on several hosts, in three or five levels of dependency.
//!
//! Everything about it follows from its shape and one seed. The document comes first; what it refers to comes next, over
//! most of the hosts; then what the first scripts of that insert, which takes in the rest of the hosts. In a deep page that goes
//! on for two levels more, each of which begins with such scripts, and lengths are as unequal as the web's. Style sheets are all
//! in the document's head. Bodies are real HTML, CSS, JavaScript and bitmaps: see `markup` and `lengths`.

use bentpipe_units::Seed;
use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;

use super::content::{Digest, generator};
use super::lengths::Lengths;
use super::markup;
use super::shape::{Kind, REFERRERS, Shape};

/// Prefix of the paths of pages' objects.
const PREFIX: &str = "/page/";

/// One object of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageObject {
    /// Kind of the object.
    pub kind: Kind,
    /// Bytes of its body.
    pub length: u64,
    /// The host that has it, as its place in the table of hosts.
    pub host: u8,
    /// The object that refers to it; the document has none. Always an earlier one.
    pub parent: Option<usize>,
}

/// A page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    shape: Shape,
    seed: Seed,
    objects: Vec<PageObject>,
}

impl Page {
    /// The page of this shape and seed.
    #[must_use]
    pub fn new(shape: &Shape, seed: Seed) -> Self {
        let mut numbers = generator(seed.stream("shape"));
        let mut objects = vec![PageObject {
            kind: Kind::Document,
            length: shape.document,
            host: shape.first_host,
            parent: None,
        }];
        let kinds = order(shape, &mut numbers);
        let mut lengths = Lengths::new(shape, &mut numbers);
        let (mut first, mut hosts, mut left) = (0, 0, kinds.into_iter());
        for level in shape.levels() {
            for (place, kind) in left.by_ref().take(level.end - first).enumerate() {
                objects.push(PageObject {
                    kind,
                    length: lengths.next(kind),
                    host: shape.first_host + host(&mut numbers, place, hosts, level.hosts),
                    parent: Some(level.parent + place % level.parents),
                });
            }
            (first, hosts) = (level.end, level.hosts);
        }
        Self {
            shape: *shape,
            seed,
            objects,
        }
    }

    /// The page and the place in it that a path names; `None` if none does.
    #[must_use]
    pub fn at(path: &str) -> Option<(Self, usize)> {
        let mut parts = path.strip_prefix(PREFIX)?.split('/');
        let seed = Seed::new(parts.next()?.parse().ok()?);
        let shape = parts.next()?.parse().ok()?;
        let place = parts.next()?.parse().ok()?;
        let page = Self::new(&shape, seed);
        (parts.next().is_none() && place < page.objects.len()).then_some((page, place))
    }

    /// Path at which every host has the object at this place: `/page/<seed>/<shape>/<place>`.
    #[must_use]
    pub fn path(&self, place: usize) -> String {
        format!("{PREFIX}{}/{}/{place}", self.seed.as_u64(), self.shape)
    }

    /// The body of the object at this place; `names` are those of the hosts.
    pub(super) fn body(&self, place: usize, names: &[String]) -> Vec<u8> {
        markup::body(
            self,
            place,
            names,
            self.seed.stream("fill").nth(place as u64),
        )
    }

    /// SHA-256 of every body.
    #[must_use]
    pub fn digests(&self, names: &[String]) -> Vec<Digest> {
        let places = 0..self.objects.len();
        places
            .map(|place| Digest::of(&self.body(place, names)))
            .collect()
    }

    /// Objects of the page, the document first.
    #[must_use]
    pub fn objects(&self) -> &[PageObject] {
        &self.objects
    }

    /// Number of hosts that it has.
    #[must_use]
    pub fn hosts(&self) -> u8 {
        self.shape.hosts
    }

    /// Places of the objects that the one at `parent` refers to.
    pub fn children(&self, parent: usize) -> impl Iterator<Item = usize> {
        let refers = move |object: &PageObject| object.parent == Some(parent);
        let objects = self.objects.iter().enumerate();
        objects.filter_map(move |(i, object)| refers(object).then_some(i))
    }

    /// Bytes of all bodies.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.length).sum()
    }
}

/// Kinds of all objects but the document: style sheets, the scripts that refer to others, and the rest as chance has it, with
/// those scripts among it that the lower levels of a deep page begin with.
fn order(shape: &Shape, numbers: &mut Pcg64Mcg) -> Vec<Kind> {
    let levels = shape.levels();
    let begun = &levels[..levels.len() - 1];
    // The document's own level begins with style sheets.
    let later = begun.len() - 1;
    let mut kinds = vec![Kind::Style; shape.styles.count];
    kinds.extend(vec![Kind::Script; shape.scripts.count - later * REFERRERS]);
    kinds.extend(vec![Kind::Image; shape.images.count]);
    let first = shape.styles.count + REFERRERS.min(shape.scripts.count);
    for last in (first + 1..kinds.len()).rev() {
        let other = first + (numbers.next_u64() % (last - first + 1) as u64) as usize;
        kinds.swap(last, other);
    }
    for level in &begun[..later] {
        kinds.splice(level.end..level.end, [Kind::Script; REFERRERS]);
    }
    kinds
}

/// The host of a level's object: the level's own hosts (`first..end`) get one each, then lower ones get more.
fn host(numbers: &mut Pcg64Mcg, place: usize, first: u8, end: u8) -> u8 {
    if place < usize::from(end.saturating_sub(first)) {
        return first + place as u8;
    }
    let mut any = || (numbers.next_u64() % u64::from(end)) as u8;
    any().min(any())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn depth(page: &Page, mut index: usize) -> usize {
        let mut depth = 0;
        while let Some(parent) = page.objects()[index].parent {
            assert!(parent < index);
            let script = page.objects()[parent].kind == Kind::Script;
            assert!(parent == 0 || script);
            (index, depth) = (parent, depth + 1);
        }
        depth
    }

    fn usual(seed: u64) -> Page {
        Page::new(&Shape::USUAL, Seed::new(seed))
    }

    #[test]
    fn every_page_has_the_shape_that_is_promised() {
        for seed in 1..20 {
            let page = usual(seed);
            assert_eq!(page, usual(seed));
            assert_eq!((page.objects().len(), page.bytes()), (70, 2_000_000));
            let mut hosts: Vec<u8> = page.objects().iter().map(|object| object.host).collect();
            hosts.sort_unstable();
            hosts.dedup();
            assert_eq!(hosts, (0..Shape::USUAL.hosts).collect::<Vec<u8>>());
            assert_eq!((0..70).map(|index| depth(&page, index)).max(), Some(2));
            assert_eq!(page.children(0).count(), 46);
        }
        assert_ne!(usual(1), usual(2));
    }

    #[test]
    fn deep_pages_have_two_levels_more_and_lengths_as_unequal_as_the_webs() {
        let mut logarithms = Vec::new();
        for seed in 1..20 {
            let page = Page::new(&Shape::DEEP, Seed::new(seed));
            assert_eq!(Page::at(&page.path(69)), Some((page.clone(), 69)));
            assert_eq!((page.objects().len(), page.bytes()), (70, 2_000_000));
            let levels = [0, 1, 2, 3, 4].map(|level| {
                let of = |index: &usize| depth(&page, *index) == level;
                (0..70).filter(of).count()
            });
            assert_eq!(levels, [1, 34, 17, 11, 7]);
            let hosts = page.objects().iter().map(|object| object.host);
            assert_eq!(hosts.collect::<BTreeSet<_>>().len(), 12);
            let below = page.objects()[1..].iter();
            logarithms.extend(below.map(|object| (object.length as f64).ln()));
        }
        let count = logarithms.len() as f64;
        let mean = logarithms.iter().sum::<f64>() / count;
        let variance = logarithms.iter().map(|ln| (ln - mean).powi(2)).sum::<f64>() / count;
        // The least length and the sums of kinds change it a little.
        assert!((1.15..1.35).contains(&variance.sqrt()), "{variance}");
    }

    #[test]
    fn a_flat_page_is_all_in_its_document() {
        for objects in [1, 10, 40] {
            let page = Page::new(&Shape::flat(objects, 3), Seed::new(1));
            assert_eq!(page.children(0).count(), objects);
            assert_eq!(page.objects().len(), 1 + objects);
            assert!(page.objects().iter().all(|object| object.host == 3));
            assert_eq!(Page::at(&page.path(objects)), Some((page.clone(), objects)));
        }
    }

    #[test]
    fn a_path_names_its_object_and_hostile_ones_nothing() {
        let page = usual(3);
        assert_eq!(Page::at(&page.path(69)), Some((page.clone(), 69)));
        let shape = Shape::USUAL.to_string();
        for path in [
            page.path(70),
            format!("/page/3/{shape}/0/0"),
            format!("/page/3/{shape}-1/0"),
            format!("/page/3/{}2-0/0", shape.trim_end_matches("0-0")),
            format!("/page/3/{shape}/-1"),
            "/page/3/1000-1-400-1-400-1-400-0-0-0/0".into(),
            "/page/3/60000-1-400-0-400-1-400-2-0-0/0".into(),
            "/page/3/60000-1-399-1-400-1-400-2-0-0/0".into(),
            "/page/3/60000-18446744073709551615-1-1-400-1-400-2-0-0/0".into(),
            "/page/3/60000-1-999999999999-1-400-1-400-2-0-0/0".into(),
            "/page/3/10-1-400-1-400-1-400-2-0-0/0".into(),
            "/page/3/60000-1-400-1-400-1-400-2-0-254/0".into(),
            "/object/3/100".into(),
        ] {
            assert_eq!(Page::at(&path), None, "{path}");
        }
    }
}

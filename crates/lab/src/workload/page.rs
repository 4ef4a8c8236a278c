//! A page: documents, style sheets, scripts and images on several hosts, in three levels of dependency.
//!
//! Everything about it follows from its shape and one seed. The document comes first; what it refers to comes next, over
//! most of the hosts; then what the first scripts of that insert, which takes in the rest of the hosts. Style sheets are all
//! in the document's head. Bodies are real HTML, CSS, JavaScript and bitmaps: see `markup`.

use std::fmt;
use std::str::FromStr;

use bentpipe_units::Seed;
use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;

use super::content::{Digest, generator};
use super::markup;

/// The most objects of a kind, and the most bytes: what a path may make the server do.
const MOST_OBJECTS: usize = 1000;
const MOST_BYTES: u64 = 1 << 25;
/// The smallest object.
const MIN_BYTES: u64 = 400;
/// So many scripts, at most, insert the objects that the document does not refer to.
const REFERRERS: usize = 6;
/// What the paths of pages' objects start with.
const PREFIX: &str = "/page/";

/// What an object is to a browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// HTML.
    Document,
    /// CSS.
    Style,
    /// JavaScript.
    Script,
    /// A bitmap.
    Image,
}

/// All of one kind together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// How many there are.
    pub count: usize,
    /// Bytes of all their bodies.
    pub bytes: u64,
}

/// How large a page is. Displays as in the paths of its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of the document.
    pub document: u64,
    /// Style sheets.
    pub styles: Part,
    /// Scripts.
    pub scripts: Part,
    /// Images.
    pub images: Part,
    /// Hosts that its objects are on.
    pub hosts: u8,
}

/// One object of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageObject {
    /// What it is.
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

impl Shape {
    /// A page of usual size on few hosts: 70 objects, 2 MB, 11 hosts.
    pub const USUAL: Self = Self {
        document: 60_000,
        styles: Part {
            count: 8,
            bytes: 80_000,
        },
        scripts: Part {
            count: 26,
            bytes: 660_000,
        },
        images: Part {
            count: 35,
            bytes: 1_200_000,
        },
        hosts: 11,
    };

    /// Objects, the document included.
    #[must_use]
    pub fn objects(&self) -> usize {
        1 + self.styles.count + self.scripts.count + self.images.count
    }

    /// How many of them the document refers to: two of three, and at least what refers to the rest.
    fn early(&self) -> usize {
        let referrers = REFERRERS.min(self.scripts.count);
        ((self.objects() - 1) * 2 / 3).max(self.styles.count + referrers)
    }

    fn parts(&self) -> [Part; 3] {
        [self.styles, self.scripts, self.images]
    }

    fn is_possible(&self) -> bool {
        let document = Part {
            count: 1,
            bytes: self.document,
        };
        let mut parts = self.parts().into_iter().chain([document]);
        let room = |part: Part| part.count as u64 * MIN_BYTES <= part.bytes;
        self.hosts > 0
            && self.scripts.count > 0
            && self.document >= markup::least_document(self.early())
            && parts
                .all(|part| part.count <= MOST_OBJECTS && part.bytes <= MOST_BYTES && room(part))
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.document)?;
        for part in self.parts() {
            write!(f, "-{}-{}", part.count, part.bytes)?;
        }
        write!(f, "-{}", self.hosts)
    }
}

impl FromStr for Shape {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers: Result<Vec<u64>, _> = text.split('-').map(str::parse).collect();
        let impossible = "no shape of a page";
        let Ok(&[document, s, sb, j, jb, i, ib, hosts]) = numbers.as_deref() else {
            return Err(impossible);
        };
        let part = |count, bytes| {
            let count = usize::try_from(count).ok()?;
            Some(Part { count, bytes })
        };
        let parts = || Some((part(s, sb)?, part(j, jb)?, part(i, ib)?));
        let (styles, scripts, images) = parts().ok_or(impossible)?;
        let shape = Self {
            document,
            styles,
            scripts,
            images,
            hosts: u8::try_from(hosts).map_err(|_| impossible)?,
        };
        // Not to overflow below.
        let few = shape.parts().iter().all(|part| part.count <= MOST_OBJECTS);
        (few && shape.is_possible())
            .then_some(shape)
            .ok_or(impossible)
    }
}

impl Page {
    /// The page of this shape and seed.
    #[must_use]
    pub fn new(shape: &Shape, seed: Seed) -> Self {
        let mut numbers = generator(seed.stream("shape"));
        let mut objects = vec![PageObject {
            kind: Kind::Document,
            length: shape.document,
            host: 0,
            parent: None,
        }];
        let kinds = order(shape, &mut numbers);
        let mut lengths = Lengths::new(shape, &mut numbers);
        let referrers = REFERRERS.min(shape.scripts.count);
        let early = shape.early();
        let early_hosts = (shape.hosts * 3 / 4).max(1);
        for (place, kind) in kinds.into_iter().enumerate() {
            let (parent, host) = match place.checked_sub(early) {
                None => (0, host(&mut numbers, place, 0, early_hosts)),
                Some(late) => {
                    let script = 1 + shape.styles.count + late % referrers;
                    (script, host(&mut numbers, late, early_hosts, shape.hosts))
                }
            };
            objects.push(PageObject {
                kind,
                length: lengths.next(kind),
                host,
                parent: Some(parent),
            });
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

    /// Where every host has the object at this place: `/page/<seed>/<shape>/<place>`.
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

    /// Its objects, the document first.
    #[must_use]
    pub fn objects(&self) -> &[PageObject] {
        &self.objects
    }

    /// How many hosts it has.
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

/// Kinds of all objects but the document: style sheets, the scripts that refer to others, and the rest as chance has it.
fn order(shape: &Shape, numbers: &mut Pcg64Mcg) -> Vec<Kind> {
    let mut kinds = vec![Kind::Style; shape.styles.count];
    kinds.extend(vec![Kind::Script; shape.scripts.count]);
    kinds.extend(vec![Kind::Image; shape.images.count]);
    let first = shape.styles.count + REFERRERS.min(shape.scripts.count);
    for last in (first + 1..kinds.len()).rev() {
        let other = first + (numbers.next_u64() % (last - first + 1) as u64) as usize;
        kinds.swap(last, other);
    }
    kinds
}

/// Lengths of the objects of each kind: many small ones and a few large ones, which sum up to what the shape says.
struct Lengths([Vec<u64>; 3]);

impl Lengths {
    fn new(shape: &Shape, numbers: &mut Pcg64Mcg) -> Self {
        Self(shape.parts().map(|part| {
            let mut weight = || {
                let uniform = numbers.next_u64() % 1000;
                20 + uniform.pow(3) / 1_000_000
            };
            let weights: Vec<u64> = (0..part.count).map(|_| weight()).collect();
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

    fn next(&mut self, kind: Kind) -> u64 {
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
    use super::*;

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
            let depth = |mut index: usize| {
                let mut depth = 0;
                while let Some(parent) = page.objects()[index].parent {
                    assert!(parent < index);
                    let script = page.objects()[parent].kind == Kind::Script;
                    assert!(parent == 0 || script);
                    (index, depth) = (parent, depth + 1);
                }
                depth
            };
            assert_eq!((0..70).map(depth).max(), Some(2));
            assert_eq!(page.children(0).count(), 46);
        }
        assert_ne!(usual(1), usual(2));
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
            format!("/page/3/{shape}/-1"),
            "/page/3/1000-1-400-1-400-1-400-0/0".into(),
            "/page/3/60000-1-400-0-400-1-400-2/0".into(),
            "/page/3/60000-1-399-1-400-1-400-2/0".into(),
            "/page/3/60000-18446744073709551615-1-1-400-1-400-2/0".into(),
            "/page/3/60000-1-999999999999-1-400-1-400-2/0".into(),
            "/page/3/10-1-400-1-400-1-400-2/0".into(),
            "/object/3/100".into(),
        ] {
            assert_eq!(Page::at(&path), None, "{path}");
        }
    }
}

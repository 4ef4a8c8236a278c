//! How large a page is, by kinds and levels, and which sizes are possible.

use std::fmt;
use std::str::FromStr;

use crate::workload::markup;

/// The most objects of a kind, and the most bytes: what a path may make the server do.
const MOST_OBJECTS: usize = 1000;
const MOST_BYTES: u64 = 1 << 25;
/// The smallest object.
pub(super) const MIN_BYTES: u64 = 400;
/// Bytes of an object of a flat page, in the mean.
const FLAT_BYTES: u64 = 10_000;
/// Most scripts of a level that insert the objects of the next.
pub(super) const REFERRERS: usize = 6;

/// Kind that an object is to a browser.
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
    /// Number of objects of this kind.
    pub count: usize,
    /// Bytes of all their bodies.
    pub bytes: u64,
}

/// Size of a page. Displays as in the paths of its objects.
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
    /// The first of these hosts, as its place in the table of hosts.
    pub first_host: u8,
    /// True if it has five levels of dependency instead of three, and lengths that are distributed lognormally.
    pub deep: bool,
}

/// One level of dependency below the document.
pub(super) struct Level {
    /// Objects up to its end, the document not counted.
    pub(super) end: usize,
    /// Hosts that objects are on up to here.
    pub(super) hosts: u8,
    /// The first of the objects that refer to it, and how many there are.
    pub(super) parent: usize,
    pub(super) parents: usize,
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
        first_host: 0,
        deep: false,
    };

    /// A deep page with many objects that many others wait for: 70 objects, 2 MB, 12 hosts.
    pub const DEEP: Self = Self {
        document: 30_000,
        styles: Part {
            count: 8,
            bytes: 228_000,
        },
        scripts: Part {
            count: 26,
            bytes: 741_000,
        },
        images: Part {
            count: 35,
            bytes: 1_001_000,
        },
        hosts: 12,
        first_host: 0,
        deep: true,
    };

    /// Objects, the document included.
    #[must_use]
    pub fn objects(&self) -> usize {
        1 + self.styles.count + self.scripts.count + self.images.count
    }

    /// A page whose document names so many images, 10 kB long in the mean, on its own host, which is the one at this place.
    #[must_use]
    pub fn flat(objects: usize, host: u8) -> Self {
        let none = Part { count: 0, bytes: 0 };
        Self {
            document: markup::least_document(objects),
            styles: none,
            scripts: none,
            images: Part {
                count: objects,
                bytes: FLAT_BYTES * objects as u64,
            },
            hosts: 1,
            first_host: host,
            deep: false,
        }
    }

    /// Number of them that the document refers to: all without scripts, else two of three, of a deep page half, and at least what
    /// refers to the rest.
    fn early(&self) -> usize {
        let referrers = REFERRERS.min(self.scripts.count);
        let rest = self.objects() - 1;
        if referrers == 0 {
            return rest;
        }
        let early = if self.deep { rest / 2 } else { rest * 2 / 3 };
        early.max(self.styles.count + referrers)
    }

    /// Levels below the document.
    pub(super) fn levels(&self) -> Vec<Level> {
        let (early, rest) = (self.early(), self.objects() - 1);
        let late = rest - early;
        let ends = match self.deep {
            true => vec![early, early + late / 2, early + late * 4 / 5, rest],
            false => vec![early, rest],
        };
        // What refers to the next level: the document, then the first scripts.
        let mut referrers = (0, 1);
        let mut next = 1 + self.styles.count;
        let level = |(place, end): (usize, usize)| {
            let early_hosts = (self.hosts * 3 / 4).max(1);
            let (parent, parents) = referrers;
            referrers = (next, REFERRERS.min(self.scripts.count));
            next = 1 + end;
            Level {
                end,
                hosts: if place == 0 { early_hosts } else { self.hosts },
                parent,
                parents,
            }
        };
        ends.into_iter().enumerate().map(level).collect()
    }

    pub(super) fn parts(&self) -> [Part; 3] {
        [self.styles, self.scripts, self.images]
    }

    fn is_possible(&self) -> bool {
        let document = Part {
            count: 1,
            bytes: self.document,
        };
        let mut parts = self.parts().into_iter().chain([document]);
        let room = |part: Part| match part.count {
            0 => part.bytes == 0,
            count => count as u64 * MIN_BYTES <= part.bytes,
        };
        self.hosts > 0
            && self.first_host.checked_add(self.hosts).is_some()
            && (!self.deep || self.scripts.count >= 3 * REFERRERS)
            && (!self.deep || self.objects() > 10 * REFERRERS)
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
        let deep = u8::from(self.deep);
        write!(f, "-{}-{deep}-{}", self.hosts, self.first_host)
    }
}

impl FromStr for Shape {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers: Result<Vec<u64>, _> = text.split('-').map(str::parse).collect();
        let impossible = "no shape of a page";
        let Ok(&[document, s, sb, j, jb, i, ib, hosts, deep @ (0 | 1), first]) = numbers.as_deref()
        else {
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
            first_host: u8::try_from(first).map_err(|_| impossible)?,
            deep: deep == 1,
        };
        // Not to overflow below.
        let few = shape.parts().iter().all(|part| part.count <= MOST_OBJECTS);
        (few && shape.is_possible())
            .then_some(shape)
            .ok_or(impossible)
    }
}

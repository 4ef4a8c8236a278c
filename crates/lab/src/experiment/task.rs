//! What a user does over the link while it is measured.

use std::fmt;

use bentpipe_units::{ByteCount, Seed, TimeSpan};
use serde::Deserialize;

use crate::workload::{Page, Shape, VOICE_INTERVAL, corpus};

/// `[task.NAME]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Task {
    /// One file over one new connection, in clear; its SHA-256 is checked.
    Transfer {
        /// How long the file is.
        size: ByteCount,
        /// Where it goes.
        #[serde(default)]
        direction: Direction,
        /// A file of this size goes the same way first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
    },
    /// One TCP stream of iperf3, by its own clock and count.
    Iperf {
        /// How much of it.
        size: ByteCount,
        /// Where it goes.
        #[serde(default)]
        direction: Direction,
        /// A file of this size goes the same way first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
    },
    /// Small objects, one after another, each over a new connection.
    Request {
        /// How long an object is.
        #[serde(default = "small")]
        size: ByteCount,
        /// How many.
        count: u32,
        /// A file of this size comes first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
    },
    /// Pages over HTTPS, one after another.
    Page {
        /// How many.
        count: u32,
        /// Who loads them.
        #[serde(default)]
        browser: Browser,
        /// From where.
        #[serde(default)]
        pages: Collection,
        /// A file of this size comes first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
        /// Whether hosts' names are asked for over the link, or known.
        #[serde(default)]
        dns: bool,
    },
    /// Several files at once, each over a new connection, in clear; their SHA-256 is checked.
    Parallel {
        /// How long each is.
        size: ByteCount,
        /// How many.
        count: u32,
        /// Where they go.
        #[serde(default)]
        direction: Direction,
        /// A file of this size goes the same way first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
    },
    /// Small files, one after another over one connection that is kept.
    Directory {
        /// How long each is.
        size: ByteCount,
        /// How many.
        count: u32,
        /// A file of this size comes first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
    },
    /// One direction of a telephone call: a datagram every 20 ms.
    Voice {
        /// How long it is spoken.
        length: TimeSpan,
        /// Where to.
        #[serde(default)]
        direction: Direction,
    },
    /// As `request`, while a file without end is being transferred.
    Loaded {
        /// How long an object is.
        #[serde(default = "small")]
        size: ByteCount,
        /// How many.
        count: u32,
        /// Where the file goes.
        background: Background,
        /// A file of this size comes first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
    },
    /// Datagrams to the web and back, five a second.
    Echo {
        /// How many.
        count: u32,
        /// Where a file without end goes meanwhile.
        background: Option<Background>,
        /// A file of this size comes first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
    },
}

/// Where a file goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the web to the user, over the forward link.
    #[default]
    Down,
    /// From the user to the web, over the return link.
    Up,
}

/// Who loads a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Browser {
    /// A fetcher that does what browsers did with HTTP/1.1, and checks every body.
    #[default]
    Scripted,
    /// Chromium, with HTTP/2 and all that it does.
    Chromium,
}

/// Where pages are taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collection {
    /// The first ones of the corpus, and all again after the last.
    #[default]
    Corpus,
    /// Pages of usual size, each another: 70 objects, 2 MB, 11 hosts.
    Usual,
    /// Deep pages, each another: 70 objects whose lengths are lognormal, 2 MB, 12 hosts, dependencies four deep.
    Deep,
}

impl Collection {
    /// The first `count` of them.
    #[must_use]
    pub fn pages(self, count: u32) -> Vec<Page> {
        let each = |shape: Shape| {
            let seeds = (0..count).map(|place| Seed::new(place.into()));
            seeds.map(|seed| Page::new(&shape, seed)).collect()
        };
        match self {
            Self::Corpus => corpus::pages(count as usize).collect(),
            Self::Usual => each(Shape::USUAL),
            Self::Deep => each(Shape::DEEP),
        }
    }
}

/// Where the file without end goes.
pub type Background = Direction;

/// What a request fetches if nothing is said.
fn small() -> ByteCount {
    ByteCount::new(1000)
}

impl Task {
    /// The largest size that it names.
    pub(super) fn largest(&self) -> ByteCount {
        let warm_up = self.warm_up().map_or(ByteCount::ZERO, |(_, size)| size);
        self.size().max(warm_up)
    }

    /// How long an object is, where all are alike.
    pub(crate) fn size(&self) -> ByteCount {
        match *self {
            Self::Transfer { size, .. }
            | Self::Iperf { size, .. }
            | Self::Request { size, .. }
            | Self::Loaded { size, .. }
            | Self::Parallel { size, .. }
            | Self::Directory { size, .. } => size,
            Self::Page { .. } | Self::Voice { .. } | Self::Echo { .. } => ByteCount::ZERO,
        }
    }

    /// Where most of it goes.
    pub(crate) fn direction(&self) -> Direction {
        match *self {
            Self::Transfer { direction, .. }
            | Self::Iperf { direction, .. }
            | Self::Parallel { direction, .. }
            | Self::Voice { direction, .. } => direction,
            _ => Direction::Down,
        }
    }

    /// What is transferred first and not measured, and where to.
    pub(crate) fn warm_up(&self) -> Option<(Direction, ByteCount)> {
        let size = match *self {
            Self::Transfer { warm_up, .. }
            | Self::Iperf { warm_up, .. }
            | Self::Request { warm_up, .. }
            | Self::Page { warm_up, .. }
            | Self::Parallel { warm_up, .. }
            | Self::Directory { warm_up, .. }
            | Self::Loaded { warm_up, .. }
            | Self::Echo { warm_up, .. } => warm_up,
            Self::Voice { .. } => ByteCount::ZERO,
        };
        (size > ByteCount::ZERO).then_some((self.direction(), size))
    }

    /// Whether a real browser is needed.
    #[must_use]
    pub fn needs_chromium(&self) -> bool {
        matches!(
            self,
            Self::Page {
                browser: Browser::Chromium,
                ..
            }
        )
    }

    /// Whether names are asked for.
    #[must_use]
    pub fn needs_names(&self) -> bool {
        matches!(self, Self::Page { dns: true, .. })
    }

    /// How many objects or datagrams make a figure, or each of its figures.
    pub(super) fn count(&self) -> u32 {
        match self {
            Self::Parallel { count, .. } | Self::Directory { count, .. } => *count,
            _ => self.samples(),
        }
    }

    /// Whether iperf3 is needed.
    #[must_use]
    pub fn needs_iperf3(&self) -> bool {
        matches!(self, Self::Iperf { .. })
    }

    /// Whether it needs UDP.
    #[must_use]
    pub fn needs_udp(&self) -> bool {
        matches!(self, Self::Voice { .. } | Self::Echo { .. })
    }

    /// How many figures it yields.
    #[must_use]
    pub fn samples(&self) -> u32 {
        match self {
            Self::Transfer { .. }
            | Self::Iperf { .. }
            | Self::Parallel { .. }
            | Self::Directory { .. } => 1,
            Self::Voice { length, .. } => {
                let datagrams = length.get().as_nanos() / VOICE_INTERVAL.as_nanos();
                u32::try_from(datagrams).unwrap_or(u32::MAX)
            }
            Self::Request { count, .. }
            | Self::Page { count, .. }
            | Self::Loaded { count, .. }
            | Self::Echo { count, .. } => *count,
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Down => "down",
            Self::Up => "up",
        })
    }
}

//! What tasks choose between: directions, browsers, pages and their connections.

use std::fmt;

use bentpipe_units::Seed;
use serde::Deserialize;

pub use crate::workload::{ContentKind, Direction, Tls};
use crate::workload::{Page, Shape, corpus};

/// End of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandshakeEnd {
    /// TLS with a host of the web is done.
    #[default]
    Tls,
    /// The contender is up.
    Contender,
}

/// Program that loads a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Browser {
    /// A fetcher that does what browsers did with HTTP/1.1, and checks every body.
    #[default]
    Scripted,
    /// Chromium, with HTTP/2 and all that it does.
    Chromium,
}

/// Use of a page's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Connections {
    /// Object after object.
    #[default]
    Kept,
    /// One object each, as with HTTP/1.0.
    Each,
}

/// Version of HTTP in which a page's hosts are spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// HTTP/1.1: one request at a time on each of a few connections.
    #[default]
    H1,
    /// HTTP/2: all requests at once on one connection to each host.
    H2,
    /// HTTP/3: as HTTP/2, over QUIC; where that is refused, HTTP/2.
    H3,
}

/// Source of pages.
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
        match self {
            Self::Corpus => corpus::pages(count as usize).collect(),
            Self::Usual => each(count, Shape::USUAL),
            Self::Deep => each(count, Shape::DEEP),
        }
    }
}

/// The first `count` pages of so many objects, each on one host: `in_session` after another on each of the first `servers`, by turns.
pub(super) fn flat(count: u32, objects: usize, servers: u8, in_session: u32) -> Vec<Page> {
    let page = |place: u32| {
        // Less than `servers`, so it fits.
        let host = (place / in_session % u32::from(servers)) as u8;
        Page::new(&Shape::flat(objects, host), Seed::new(place.into()))
    };
    (0..count).map(page).collect()
}

/// Pages of this shape, each another.
fn each(count: u32, shape: Shape) -> Vec<Page> {
    let seeds = (0..count).map(|place| Seed::new(place.into()));
    seeds.map(|seed| Page::new(&shape, seed)).collect()
}

/// Direction of the file without end.
pub type Background = Direction;

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Down => "down",
            Self::Up => "up",
        })
    }
}

//! What a user does over the link while it is measured.

use bentpipe_units::{ByteCount, Seed, TimeSpan};
use rand_core::Rng as _;
use serde::Deserialize;

use super::choice::{Background, Browser, Collection, Connections, Direction, Protocol, Tls};
use crate::workload::{CONNECTIONS_PER_HOST, Handshakes, VOICE_INTERVAL, generator};

/// `[task.NAME]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Task {
    /// One file over one new connection, in clear; its SHA-256 is checked.
    Transfer {
        /// Length of the file.
        size: ByteCount,
        /// Direction of the file.
        #[serde(default)]
        direction: Direction,
        /// A file of this size goes the same way first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
        /// True if the contender's start counts.
        #[serde(default)]
        cold: bool,
    },
    /// One TCP stream of iperf3, by its own clock and count.
    Iperf {
        /// Length of the stream.
        size: ByteCount,
        /// Direction of the stream.
        #[serde(default)]
        direction: Direction,
        /// A file of this size goes the same way first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
    },
    /// Small objects, one after another, each over a new connection.
    Request {
        /// Length of an object.
        #[serde(default = "small")]
        size: ByteCount,
        /// Number of objects.
        count: u32,
        /// A file of this size comes first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
    },
    /// TLS 1.3 handshakes with the web's hosts by turns, one after another, each over a new connection.
    Handshake {
        /// Number of handshakes.
        count: u32,
        /// A file of this size comes first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
    },
    /// Pages over HTTPS, one after another.
    Page {
        /// Number of pages.
        count: u32,
        /// Program that loads them.
        #[serde(default)]
        browser: Browser,
        /// From where.
        #[serde(default)]
        pages: Collection,
        /// A file of this size comes first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
        /// True if hosts' names are asked for over the link, or known.
        #[serde(default)]
        dns: bool,
        /// True if the contender's start counts, with the first page.
        #[serde(default)]
        cold: bool,
        /// Version of HTTP; of the scripted browser, as are the next four.
        #[serde(default)]
        protocol: Protocol,
        /// Use of connections.
        #[serde(default)]
        connections: Connections,
        /// Encryption of connections.
        #[serde(default)]
        tls: Tls,
        /// Connections to one host at most.
        #[serde(default = "usual_connections")]
        parallel: u8,
        /// Direction of objects; up, each is sent on a connection of its own, in clear.
        #[serde(default)]
        direction: Direction,
    },
    /// Several files at once, each over a new connection, in clear; their SHA-256 is checked.
    Parallel {
        /// Length of each file.
        size: ByteCount,
        /// Number of files.
        count: u32,
        /// Direction of the files.
        #[serde(default)]
        direction: Direction,
        /// A file of this size goes the same way first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
    },
    /// Small files, one after another over one connection that is kept.
    Objects {
        /// Length of each file.
        size: ByteCount,
        /// Number of files.
        count: u32,
        /// A file of this size comes first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
    },
    /// Files by FTP over one control connection, one after another, each over a data connection of its own.
    Ftp {
        /// Length of the shortest file.
        size: ByteCount,
        /// Length of the longest file; all are alike if absent. Lengths between lie evenly by their logarithm.
        longest: Option<ByteCount>,
        /// Number of files.
        #[serde(default = "one")]
        count: u32,
        /// Direction of the files.
        #[serde(default)]
        direction: Direction,
        /// A file of this size goes the same way first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
    },
    /// One direction of a telephone call: a datagram every 20 ms.
    Voice {
        /// Time for which the call lasts.
        length: TimeSpan,
        /// Direction of the datagrams.
        #[serde(default)]
        direction: Direction,
    },
    /// As `request`, while a file without end is being transferred.
    Loaded {
        /// Length of an object.
        #[serde(default = "small")]
        size: ByteCount,
        /// Number of objects.
        count: u32,
        /// Direction of the file.
        background: Background,
        /// A file of this size comes first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
    },
    /// Datagrams to the web and back, five a second.
    Echo {
        /// Number of datagrams.
        count: u32,
        /// Direction of a file without end that is on its way meanwhile.
        background: Option<Background>,
        /// A file of this size comes first, and is not measured.
        #[serde(default)]
        warm_up: ByteCount,
    },
}

/// Number of files if nothing is said.
fn one() -> u32 {
    1
}

/// Connections to a host if nothing is said.
fn usual_connections() -> u8 {
    CONNECTIONS_PER_HOST as u8
}

/// Length of what a request fetches if nothing is said.
fn small() -> ByteCount {
    ByteCount::new(1000)
}

impl Task {
    /// The largest size that it names.
    pub(super) fn largest(&self) -> ByteCount {
        let warm_up = self.warm_up().map_or(ByteCount::ZERO, |(_, size)| size);
        let longest = match self {
            Self::Ftp { longest, .. } => longest.unwrap_or_default(),
            _ => ByteCount::ZERO,
        };
        self.size().max(warm_up).max(longest)
    }

    /// Length of an object, where all are alike.
    pub(crate) fn size(&self) -> ByteCount {
        match *self {
            Self::Transfer { size, .. }
            | Self::Iperf { size, .. }
            | Self::Request { size, .. }
            | Self::Loaded { size, .. }
            | Self::Parallel { size, .. }
            | Self::Objects { size, .. }
            | Self::Ftp { size, .. } => size,
            Self::Handshake { .. } | Self::Page { .. } | Self::Voice { .. } | Self::Echo { .. } => {
                ByteCount::ZERO
            }
        }
    }

    /// Direction of most of it.
    pub(crate) fn direction(&self) -> Direction {
        match *self {
            Self::Transfer { direction, .. }
            | Self::Iperf { direction, .. }
            | Self::Parallel { direction, .. }
            | Self::Ftp { direction, .. }
            | Self::Page { direction, .. }
            | Self::Voice { direction, .. } => direction,
            _ => Direction::Down,
        }
    }

    /// Size and direction of what is transferred first and not measured.
    pub(crate) fn warm_up(&self) -> Option<(Direction, ByteCount)> {
        let size = match *self {
            Self::Transfer { warm_up, .. }
            | Self::Iperf { warm_up, .. }
            | Self::Request { warm_up, .. }
            | Self::Handshake { warm_up, .. }
            | Self::Page { warm_up, .. }
            | Self::Parallel { warm_up, .. }
            | Self::Objects { warm_up, .. }
            | Self::Ftp { warm_up, .. }
            | Self::Loaded { warm_up, .. }
            | Self::Echo { warm_up, .. } => warm_up,
            Self::Voice { .. } => ByteCount::ZERO,
        };
        (size > ByteCount::ZERO).then_some((self.direction(), size))
    }

    /// True if the contender is started while the clock runs.
    #[must_use]
    pub fn is_cold(&self) -> bool {
        matches!(
            self,
            Self::Transfer { cold: true, .. } | Self::Page { cold: true, .. }
        )
    }

    /// Round trips of TLS that a page needs; none for other tasks.
    #[must_use]
    pub fn handshakes(&self) -> Handshakes {
        match *self {
            Self::Page {
                connections, tls, ..
            } => Handshakes {
                round_trips: tls.round_trips(),
                each: connections == Connections::Each,
            },
            _ => Handshakes {
                round_trips: 0,
                each: false,
            },
        }
    }

    /// True if a real browser is needed.
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

    /// True if names are asked for.
    #[must_use]
    pub fn needs_names(&self) -> bool {
        matches!(self, Self::Page { dns: true, .. })
    }

    /// Lengths of an FTP task's files in bytes, which follow from `seed`; of other tasks none.
    #[must_use]
    pub fn files(&self, seed: Seed) -> Vec<u64> {
        let Self::Ftp {
            size,
            longest,
            count,
            ..
        } = *self
        else {
            return Vec::new();
        };
        let shortest = size.as_u64() as f64;
        let range = longest.map_or(1.0, |longest| longest.as_u64() as f64 / shortest);
        let mut numbers = generator(seed);
        let place = |number: u64| number as f64 / u64::MAX as f64;
        let length = |_| (shortest * range.powf(place(numbers.next_u64()))).round() as u64;
        (0..count).map(length).collect()
    }

    /// Number of objects or datagrams that make a figure, or each of its figures.
    pub(super) fn count(&self) -> u32 {
        match self {
            Self::Parallel { count, .. }
            | Self::Objects { count, .. }
            | Self::Ftp { count, .. } => *count,
            _ => self.samples(),
        }
    }

    /// True if iperf3 is needed.
    #[must_use]
    pub fn needs_iperf3(&self) -> bool {
        matches!(self, Self::Iperf { .. })
    }

    /// True if it needs UDP.
    #[must_use]
    pub fn needs_udp(&self) -> bool {
        matches!(self, Self::Voice { .. } | Self::Echo { .. })
    }

    /// Number of figures that it yields.
    #[must_use]
    pub fn samples(&self) -> u32 {
        match self {
            Self::Transfer { .. }
            | Self::Iperf { .. }
            | Self::Parallel { .. }
            | Self::Objects { .. }
            | Self::Ftp { .. } => 1,
            Self::Voice { length, .. } => {
                let datagrams = length.get().as_nanos() / VOICE_INTERVAL.as_nanos();
                u32::try_from(datagrams).unwrap_or(u32::MAX)
            }
            Self::Request { count, .. }
            | Self::Handshake { count, .. }
            | Self::Page { count, .. }
            | Self::Loaded { count, .. }
            | Self::Echo { count, .. } => *count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_lie_between_the_shortest_and_the_longest_evenly_by_their_logarithm() {
        let task = |text: &str| toml::from_str::<Task>(text).unwrap();
        let spread = "kind = \"ftp\"\nsize = \"1 kB\"\nlongest = \"100 kB\"\ncount = 1000\n";
        let files = task(spread).files(Seed::new(1));
        assert_eq!(files.len(), 1000);
        assert!(files.iter().all(|length| (1000..=100_000).contains(length)));
        let short = files.iter().filter(|length| **length < 10_000).count();
        assert!((450..=550).contains(&short), "{short}");
        let alike = task("kind = \"ftp\"\nsize = \"5 kB\"\n");
        assert_eq!(alike.files(Seed::new(1)), [5000]);
    }
}

//! How much a task moves: sizes, counts, directions, and what it moves before it is measured.

use bentpipe_units::{ByteCount, Seed};
use rand_core::Rng as _;

use super::{ContentKind, Direction, Task};
use crate::workload::{VOICE_INTERVAL, generator};

impl Task {
    /// The largest size that it names.
    pub(super) fn largest(&self) -> ByteCount {
        let warm_up = self.warm_up().map_or(ByteCount::ZERO, |(_, size)| size);
        let longest = match self {
            Self::Ftp { longest, .. } => longest.unwrap_or_default(),
            Self::Session { request, .. } => *request,
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
            | Self::Ftp { size, .. }
            | Self::Session { response: size, .. } => size,
            Self::Handshake { .. } | Self::Page { .. } | Self::Voice { .. } | Self::Echo { .. } => {
                ByteCount::ZERO
            }
        }
    }

    /// Nature of the content that it sends.
    #[must_use]
    pub fn content(&self) -> ContentKind {
        let mut copy = *self;
        copy.content_key().map_or(ContentKind::Binary, |kind| *kind)
    }

    /// The task that sends text, as it is with noise instead; none if it sends none.
    #[must_use]
    pub fn with_noise(mut self) -> Option<Self> {
        let kind = self.content_key()?;
        (*kind == ContentKind::Text).then(|| *kind = ContentKind::Binary)?;
        Some(self)
    }

    /// Place of the key `content`, where the task has it.
    fn content_key(&mut self) -> Option<&mut ContentKind> {
        match self {
            Self::Transfer { content, .. }
            | Self::Request { content, .. }
            | Self::Session { content, .. }
            | Self::Loaded { content, .. }
            | Self::Parallel { content, .. }
            | Self::Objects { content, .. }
            | Self::Ftp { content, .. } => Some(content),
            Self::Iperf { .. }
            | Self::Handshake { .. }
            | Self::Page { .. }
            | Self::Voice { .. }
            | Self::Echo { .. } => None,
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
            | Self::Session { warm_up, .. }
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
            | Self::Session { count, .. }
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

//! Content from a seed: the same bytes for everybody who knows seed and length, with the marker all over.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::str::FromStr;
use std::task::{Context, Poll};

use aws_lc_rs::digest;
use bentpipe_units::Seed;
use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, SizeHint};
use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;
use serde::Deserialize;

use super::text;

/// Stands at the start of each 256 bytes of every body, and in every request: a capture that finds it has seen content.
pub const MARKER: &[u8; 24] = b"<bentpipe-clear-content>";

/// The marker and what follows it.
const BLOCK: usize = 256;
/// Made at a time; a multiple of `BLOCK`.
const CHUNK: usize = 64 * BLOCK;
/// The longest body that the server makes.
const MAX_LENGTH: u64 = 1 << 33;
/// Prefixes of the paths of objects.
const PREFIXES: [(ContentKind, &str); 2] = [
    (ContentKind::Binary, "/object/"),
    (ContentKind::Text, "/text/"),
];

/// The generator of a seed's numbers.
pub(crate) fn generator(seed: Seed) -> Pcg64Mcg {
    let [high, low] = ["high", "low"].map(|half| u128::from(seed.stream(half).as_u64()));
    Pcg64Mcg::new(high << 64 | low)
}

/// Nature of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentKind {
    /// Noise, of which a compressor finds the marker alone.
    #[default]
    Binary,
    /// Words, which zstd at its default level makes three to four times shorter.
    Text,
}

/// Something to fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object {
    /// Nature of its bytes.
    pub kind: ContentKind,
    /// Seed that its bytes follow from.
    pub seed: Seed,
    /// Number of bytes that it has.
    pub length: u64,
}

impl Object {
    /// Path at which the server has it: `/object/<seed>/<length>`, or `/text/` likewise.
    #[must_use]
    pub fn path(&self) -> String {
        let own = PREFIXES.iter().find(|(kind, _)| *kind == self.kind);
        let prefix = own.map_or("/", |(_, prefix)| prefix);
        format!("{prefix}{}/{}", self.seed.as_u64(), self.length)
    }

    /// The object at a path; `None` if none is there.
    #[must_use]
    pub fn from_path(path: &str) -> Option<Self> {
        let (kind, rest) = PREFIXES
            .iter()
            .find_map(|(kind, prefix)| Some((*kind, path.strip_prefix(prefix)?)))?;
        let (seed, length) = rest.split_once('/')?;
        let length = u64::from_str(length).ok()?;
        (length <= MAX_LENGTH).then_some(())?;
        Some(Self {
            kind,
            seed: Seed::new(seed.parse().ok()?),
            length,
        })
    }

    /// Bytes of the object, as they are made, for servers of protocols that are not spoken here.
    pub fn chunks(&self) -> impl Iterator<Item = Bytes> + use<> {
        self.content()
    }

    /// [`Object::chunks`] that is a body as well.
    pub(super) fn content(&self) -> Content {
        Content {
            kind: self.kind,
            generator: generator(self.seed),
            left: self.length,
        }
    }
}

/// SHA-256 of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Of a body.
    #[must_use]
    pub fn of(body: &[u8]) -> Self {
        let mut hasher = Hasher::new();
        hasher.update(body);
        hasher.finish()
    }
}

impl fmt::Display for Digest {
    /// In hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A digest in the making.
pub(super) struct Hasher(digest::Context);

impl Hasher {
    pub(super) fn new() -> Self {
        Self(digest::Context::new(&digest::SHA256))
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn finish(self) -> Digest {
        let mut value = [0; 32];
        value.copy_from_slice(self.0.finish().as_ref());
        Digest(value)
    }
}

/// An object and what its body must hash to, known before any clock runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// Object to fetch.
    pub object: Object,
    /// SHA-256 of its body.
    pub digest: Digest,
}

impl Expected {
    /// The longest object there is, for a transfer that is ended before it is done: its digest is never asked for, and if it
    /// were, it would be wrong.
    #[must_use]
    pub fn endless(seed: Seed) -> Self {
        let length = MAX_LENGTH;
        Self {
            object: Object {
                kind: ContentKind::Binary,
                seed,
                length,
            },
            digest: Digest([0; 32]),
        }
    }
}

impl From<Object> for Expected {
    fn from(object: Object) -> Self {
        let mut hasher = Hasher::new();
        for chunk in object.content() {
            hasher.update(&chunk);
        }
        Self {
            object,
            digest: hasher.finish(),
        }
    }
}

/// An object's bytes: an iterator of chunks, and a body.
pub(super) struct Content {
    kind: ContentKind,
    generator: Pcg64Mcg,
    left: u64,
}

impl Iterator for Content {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let length = usize::try_from(self.left).unwrap_or(CHUNK).min(CHUNK);
        if length == 0 {
            return None;
        }
        self.left -= length as u64;
        let mut chunk = BytesMut::zeroed(length);
        match self.kind {
            ContentKind::Binary => self.generator.fill_bytes(&mut chunk),
            ContentKind::Text => text::fill(&mut chunk, BLOCK, &mut self.generator),
        }
        for block in chunk.chunks_mut(BLOCK) {
            let marked = block.len().min(MARKER.len());
            block[..marked].copy_from_slice(&MARKER[..marked]);
        }
        Some(chunk.freeze())
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.next().map(|chunk| Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use bentpipe_sys::command::tool;

    use super::*;

    #[test]
    fn a_path_names_its_object_and_no_other() {
        for kind in [ContentKind::Binary, ContentKind::Text] {
            let object = Object {
                kind,
                seed: Seed::new(7),
                length: 1000,
            };
            assert_eq!(Object::from_path(&object.path()), Some(object));
        }
        for path in [
            "/",
            "/object/7",
            "/object/x/1",
            "/object/7/-1",
            "/object/7/99999999999",
        ] {
            assert_eq!(Object::from_path(path), None, "{path}");
        }
    }

    fn body(kind: ContentKind, seed: u64, length: u64) -> Vec<u8> {
        let seed = Seed::new(seed);
        let object = Object { kind, seed, length };
        object.content().collect::<Vec<Bytes>>().concat()
    }

    /// Length of `bytes` divided by what zstd makes of them at its default level, 3.
    fn shrinks(bytes: &[u8]) -> f64 {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let mut zstd = tool("zstd");
        let zstd = zstd.args(["-3", "--stdout", "--quiet"]).arg(file.path());
        let output = zstd.output().expect("`.ci/deps` installs zstd");
        assert!(output.status.success());
        bytes.len() as f64 / output.stdout.len() as f64
    }

    #[test]
    fn text_shrinks_by_three_to_four_and_noise_does_not() {
        for length in [50_000, 500_000, 5_000_000] {
            for seed in 1..=3 {
                let text = shrinks(&body(ContentKind::Text, seed, length));
                assert!((3.0..=4.0).contains(&text), "{length} bytes: {text}");
            }
            let noise = shrinks(&body(ContentKind::Binary, 1, length));
            assert!(noise < 1.12, "{length} bytes: {noise}");
        }
    }

    #[test]
    fn content_follows_from_seed_and_length_and_is_marked() {
        for kind in [ContentKind::Binary, ContentKind::Text] {
            let body = |seed, length| body(kind, seed, length);
            let long = body(1, 100_000);
            assert_eq!(long.len(), 100_000);
            assert_eq!(body(1, 1000), long[..1000]);
            assert_ne!(body(2, 1000), long[..1000]);
            for block in long.chunks(BLOCK) {
                assert!(block.starts_with(&MARKER[..block.len().min(MARKER.len())]));
            }
        }
        let expected = |length| {
            Expected::from(Object {
                kind: ContentKind::Binary,
                seed: Seed::new(1),
                length,
            })
        };
        assert_ne!(expected(1000).digest, expected(1001).digest);
    }
}

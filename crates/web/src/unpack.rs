//! Content without its coding, as far as links are looked for in it.

use std::io::Write as _;

use flate2::write::{MultiGzDecoder, ZlibDecoder};

/// Piece that is unpacked at once, bytes: a thousand times as much at most comes of it.
const PIECE: usize = 1024;

/// Decoder of one page's content.
pub(crate) enum Unpacker {
    Plain,
    Gzip(MultiGzDecoder<Vec<u8>>),
    Deflate(ZlibDecoder<Vec<u8>>),
}

impl Unpacker {
    /// For content with these codings; `None`: it cannot be read here.
    pub(crate) fn of(codings: &[String]) -> Option<Self> {
        let names: Vec<_> = codings.iter().map(String::as_str).collect();
        match names[..] {
            [] | ["identity"] => Some(Self::Plain),
            ["gzip" | "x-gzip"] => Some(Self::Gzip(MultiGzDecoder::new(Vec::new()))),
            ["deflate"] => Some(Self::Deflate(ZlibDecoder::new(Vec::new()))),
            _ => None,
        }
    }

    /// Gives `told` what `packed` brings, piece by piece, until it wants no more. False: there is no more to come of it.
    pub(crate) fn read(&mut self, packed: &[u8], mut told: impl FnMut(&[u8]) -> bool) -> bool {
        packed.chunks(PIECE).all(|piece| {
            let taken = match self {
                Self::Plain => return told(piece),
                Self::Gzip(decoder) => decoder
                    .write_all(piece)
                    .and_then(|()| decoder.flush())
                    .map(|()| std::mem::take(decoder.get_mut())),
                Self::Deflate(decoder) => decoder
                    .write_all(piece)
                    .and_then(|()| decoder.flush())
                    .map(|()| std::mem::take(decoder.get_mut())),
            };
            taken.is_ok_and(|content| told(&content))
        })
    }
}

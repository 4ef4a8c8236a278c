//! Content without its coding, as far as links are looked for in it.

use std::io::Write;

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use flate2::write::{MultiGzDecoder, ZlibDecoder};
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

/// Piece of DEFLATE that is unpacked at once, bytes: a thousand times as much at most comes of it.
const PIECE: usize = 1024;

/// Content of Brotli or Zstandard that is unpacked at once, bytes. A few bytes of theirs may stand for megabytes, so that what is
/// bounded is what comes out.
const UNPACKED: usize = 16 * 1024;

/// Longest window of Zstandard, as the exponent of two bytes: 8 MiB, which RFC 9659 allows a content coding.
const ZSTD_WINDOW_LOG: u32 = 23;

type BrotliDecoder = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

/// Decoder of one page's content.
pub(crate) enum Unpacker {
    Plain,
    Gzip(MultiGzDecoder<Vec<u8>>),
    Deflate(ZlibDecoder<Vec<u8>>),
    Brotli(Box<BrotliDecoder>),
    Zstd(DCtx<'static>),
}

impl Unpacker {
    /// For content with these codings; `None`: it cannot be read here.
    pub(crate) fn of(codings: &[String]) -> Option<Self> {
        let names: Vec<_> = codings.iter().map(String::as_str).collect();
        match names[..] {
            [] | ["identity"] => Some(Self::Plain),
            ["gzip" | "x-gzip"] => Some(Self::Gzip(MultiGzDecoder::new(Vec::new()))),
            ["deflate"] => Some(Self::Deflate(ZlibDecoder::new(Vec::new()))),
            ["br"] => Some(Self::Brotli(Box::new(brotli()))),
            ["zstd"] => zstd().map(Self::Zstd),
            _ => None,
        }
    }

    /// Gives `told` what `packed` brings, piece by piece, until it wants no more. False: there is no more to come of it.
    pub(crate) fn read(&mut self, packed: &[u8], mut told: impl FnMut(&[u8]) -> bool) -> bool {
        match self {
            Self::Plain => told(packed),
            Self::Gzip(decoder) => inflate(decoder, MultiGzDecoder::get_mut, packed, told),
            Self::Deflate(decoder) => inflate(decoder, ZlibDecoder::get_mut, packed, told),
            Self::Brotli(decoder) => read_brotli(decoder, packed, told),
            Self::Zstd(decoder) => read_zstd(decoder, packed, told),
        }
    }
}

/// Reads DEFLATE in pieces; `content` is what has come out of `decoder`.
fn inflate<D: Write>(
    decoder: &mut D,
    content: fn(&mut D) -> &mut Vec<u8>,
    packed: &[u8],
    mut told: impl FnMut(&[u8]) -> bool,
) -> bool {
    packed.chunks(PIECE).all(|piece| {
        let written = decoder.write_all(piece).and_then(|()| decoder.flush());
        written.is_ok() && told(&std::mem::take(content(decoder)))
    })
}

/// Decoder without the windows of more than 16 MiB that browsers do not know either.
fn brotli() -> BrotliDecoder {
    let allocators = StandardAlloc::default;
    BrotliDecoder::new_strict(allocators(), allocators(), allocators())
}

fn zstd() -> Option<DCtx<'static>> {
    let mut decoder = DCtx::try_create()?;
    decoder.init().ok()?;
    let bounded = decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG));
    bounded.is_ok().then_some(decoder)
}

fn read_brotli(
    decoder: &mut BrotliDecoder,
    packed: &[u8],
    mut told: impl FnMut(&[u8]) -> bool,
) -> bool {
    let (mut left, mut taken, mut total) = (packed.len(), 0, 0);
    let mut content = vec![0; UNPACKED];
    loop {
        let (mut room, mut written) = (content.len(), 0);
        let result = BrotliDecompressStream(
            &mut left,
            &mut taken,
            packed,
            &mut room,
            &mut written,
            &mut content,
            &mut total,
            decoder,
        );
        if !told(&content[..written]) {
            return false;
        }
        match result {
            BrotliResult::NeedsMoreOutput => {}
            BrotliResult::NeedsMoreInput => return true,
            BrotliResult::ResultSuccess | BrotliResult::ResultFailure => return false,
        }
    }
}

fn read_zstd(decoder: &mut DCtx<'_>, packed: &[u8], mut told: impl FnMut(&[u8]) -> bool) -> bool {
    if packed.is_empty() {
        // The library takes calls that bring nothing for a fault.
        return true;
    }
    let mut input = InBuffer::around(packed);
    let mut content = vec![0; UNPACKED];
    loop {
        let mut output = OutBuffer::around(content.as_mut_slice());
        let read = decoder.decompress_stream(&mut output, &mut input);
        let written = output.pos();
        if read.is_err() || !told(&content[..written]) {
            return false;
        }
        // What did not fit is held by the decoder.
        if written < UNPACKED && input.pos() == packed.len() {
            return true;
        }
    }
}

#[cfg(test)]
mod tests;

//! Content without its coding, as far as links are looked for in it: piece by piece, for a few bytes may stand for megabytes.

use std::io::{self, Write};

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use bytes::{Buf as _, Bytes, BytesMut};
use flate2::write::{MultiGzDecoder, ZlibDecoder};
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

/// Most content that is given at once, bytes: what is done with it takes less than a millisecond.
pub(crate) const PIECE: usize = 4 * 1024;

/// Content of Brotli or Zstandard that is unpacked at once, bytes. Of DEFLATE it is twice as much, which is that library's measure.
const UNPACKED: usize = 16 * 1024;

/// Bytes that a decoder takes at once: a few of them may have it build tables, or begin anew.
const TAKEN: usize = 1024;

/// Bytes of a page that are unpacked; some bring nothing, as an endless row of empty members of gzip.
const MAX_PACKED: usize = 4 << 20;

/// Window of DEFLATE, bytes.
const DEFLATE_WINDOW: usize = 32 * 1024;

/// Longest window of Brotli, as the exponent of two bytes: 4 MiB, which is what encoders take unless told otherwise. That much is unpacked
/// at once.
const BROTLI_WINDOW_LOG: u32 = 22;

/// Longest window of Zstandard, as the exponent of two bytes: 8 MiB, which RFC 9659 allows a content coding.
const ZSTD_WINDOW_LOG: u32 = 23;

type BrotliDecoder = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

/// Content that goes on no further: it has ended, or is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContentOver;

/// Reader of one page's content.
pub(crate) struct Unpacker {
    decoder: Decoder,
    /// Bytes that have come and were not looked at.
    packed: BytesMut,
    /// Bytes that may still come.
    packed_left: usize,
    /// Content that nobody was given.
    content: BytesMut,
    /// True if the decoder may hold content that did not fit.
    holds: bool,
    over: bool,
}

enum Decoder {
    Plain,
    Deflate(Box<dyn Inflater>),
    Brotli(Box<BrotliDecoder>),
    Zstd(DCtx<'static>),
}

/// Decoder of DEFLATE in one of its two wrappings.
trait Inflater: Write {
    /// Content that has come out.
    fn content(&mut self) -> &mut Vec<u8>;
}

impl Inflater for MultiGzDecoder<Vec<u8>> {
    fn content(&mut self) -> &mut Vec<u8> {
        self.get_mut()
    }
}

impl Inflater for ZlibDecoder<Vec<u8>> {
    fn content(&mut self) -> &mut Vec<u8> {
        self.get_mut()
    }
}

impl Unpacker {
    /// For content with these codings; `None`: it cannot be read here.
    pub(crate) fn of(codings: &[String]) -> Option<Self> {
        let names: Vec<_> = codings.iter().map(String::as_str).collect();
        let decoder = match names[..] {
            [] | ["identity"] => Decoder::Plain,
            ["gzip" | "x-gzip"] => Decoder::Deflate(Box::new(MultiGzDecoder::new(Vec::new()))),
            ["deflate"] => Decoder::Deflate(Box::new(ZlibDecoder::new(Vec::new()))),
            ["br"] => Decoder::Brotli(Box::new(brotli())),
            ["zstd"] => Decoder::Zstd(zstd()?),
            _ => return None,
        };
        Some(Self {
            decoder,
            packed: BytesMut::new(),
            packed_left: MAX_PACKED,
            content: BytesMut::new(),
            holds: false,
            over: false,
        })
    }

    /// Takes in `packed`; [`Self::read`] gives what that brings.
    pub(crate) fn push(&mut self, packed: &[u8]) {
        let taken = packed.len().min(self.packed_left);
        self.packed.extend_from_slice(&packed[..taken]);
        self.packed_left -= taken;
    }

    /// True if [`Self::read`] has something to do.
    pub(crate) fn has_more(&self) -> bool {
        let waits = !self.content.is_empty() || !self.packed.is_empty();
        self.holds || self.over || waits || self.packed_left == 0
    }

    /// Memory that the decoder holds, bytes, of which its window is the most.
    pub(crate) fn held(&self) -> usize {
        match &self.decoder {
            Decoder::Plain => 0,
            Decoder::Deflate(_) => DEFLATE_WINDOW,
            // It grows with what has come, up to the window.
            Decoder::Brotli(decoder) => {
                usize::try_from(decoder.ringbuffer_size).unwrap_or_default()
            }
            Decoder::Zstd(decoder) => decoder.sizeof(),
        }
    }

    /// Next piece of the content, [`PIECE`] bytes at most; `None`: what was looked at has brought nothing.
    ///
    /// # Errors
    /// [`ContentOver`]: there is no more to come of it.
    pub(crate) fn read(&mut self) -> Result<Option<Bytes>, ContentOver> {
        if self.content.is_empty() {
            let used_up = self.packed.is_empty() && self.packed_left == 0 && !self.holds;
            if self.over || used_up {
                return Err(ContentOver);
            }
            match self.decoder.step(&mut self.packed, &mut self.content) {
                Ok(holds) => self.holds = holds,
                Err(ContentOver) => self.over = true,
            }
        }
        if self.content.is_empty() {
            return Ok(None);
        }
        let piece = self.content.len().min(PIECE);
        Ok(Some(self.content.split_to(piece).freeze()))
    }
}

impl Decoder {
    /// Takes some of `packed` and appends what it brings to `content`; true if more may come of what was taken.
    fn step(&mut self, packed: &mut BytesMut, content: &mut BytesMut) -> Result<bool, ContentOver> {
        match self {
            Self::Plain => {
                content.unsplit(packed.split());
                Ok(false)
            }
            Self::Deflate(decoder) => {
                let holds = inflate(decoder.as_mut(), packed);
                content.extend_from_slice(decoder.content());
                decoder.content().clear();
                holds.map_err(|_| ContentOver)
            }
            Self::Brotli(decoder) => step_brotli(decoder, packed, content),
            Self::Zstd(decoder) => step_zstd(decoder, packed, content),
        }
    }
}

/// Has `decoder` take some of `packed`, or give what it holds; true if it may hold more.
fn inflate(decoder: &mut dyn Inflater, packed: &mut BytesMut) -> io::Result<bool> {
    if packed.is_empty() {
        return decoder.flush().map(|()| false);
    }
    match decoder.write(&packed[..packed.len().min(TAKEN)])? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        taken => {
            packed.advance(taken);
            Ok(true)
        }
    }
}

/// Decoder without the windows of more than 16 MiB that are none of Brotli's own.
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

fn step_brotli(
    decoder: &mut BrotliDecoder,
    packed: &mut BytesMut,
    content: &mut BytesMut,
) -> Result<bool, ContentOver> {
    // The first byte says how long the window is, for which memory is taken behind it.
    let most = if decoder.window_bits == 0 { 1 } else { TAKEN };
    let (mut left, mut taken, mut total) = (packed.len().min(most), 0, 0);
    content.resize(UNPACKED, 0);
    let (mut room, mut written) = (UNPACKED, 0);
    let result = BrotliDecompressStream(
        &mut left,
        &mut taken,
        packed,
        &mut room,
        &mut written,
        content,
        &mut total,
        decoder,
    );
    packed.advance(taken);
    content.truncate(written);
    if decoder.window_bits > BROTLI_WINDOW_LOG {
        return Err(ContentOver);
    }
    match result {
        BrotliResult::NeedsMoreOutput => Ok(true),
        // The decoder asks for more as soon as it has unpacked all, however much of that it still holds.
        BrotliResult::NeedsMoreInput => Ok(written == UNPACKED),
        BrotliResult::ResultSuccess | BrotliResult::ResultFailure => Err(ContentOver),
    }
}

fn step_zstd(
    decoder: &mut DCtx<'_>,
    packed: &mut BytesMut,
    content: &mut BytesMut,
) -> Result<bool, ContentOver> {
    let mut input = InBuffer::around(&packed[..packed.len().min(TAKEN)]);
    content.resize(UNPACKED, 0);
    let mut output = OutBuffer::around(&mut content[..]);
    let read = decoder.decompress_stream(&mut output, &mut input);
    let (written, taken) = (output.pos(), input.pos());
    packed.advance(taken);
    content.truncate(written);
    read.map(|_| written == UNPACKED).map_err(|_| ContentOver)
}

#[cfg(test)]
mod tests;

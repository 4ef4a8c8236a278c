//! Bodies as they cross a connection: where they end, and what they hold without chunks around it.

use crate::{Body, Malformed};

/// Longest line of a chunk's size, with its extensions, bytes.
const MAX_LINE: usize = 1024;

/// Longest trailer, bytes.
const MAX_TRAILER: usize = 16 * 1024;

/// Place in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Bytes that are left.
    Length(u64),
    UntilClose,
    /// In the line of a chunk's size; true once its digits are over.
    Size(u64, usize, bool),
    /// In a chunk of which so many bytes are left.
    Chunk(u64),
    /// Behind a chunk: in the end of its line.
    Behind,
    /// In the trailer, so far into it and into its line.
    Trailer(usize, usize),
    Done,
}

/// Reader of one body, which comes in any pieces.
#[derive(Clone, Debug)]
pub struct BodyReader(Place);

impl BodyReader {
    /// Of a body that has not begun.
    #[must_use]
    pub fn new(body: Body) -> Self {
        Self(match body {
            Body::Length(0) => Place::Done,
            Body::Length(length) => Place::Length(length),
            Body::Chunked => Place::Size(0, 0, false),
            Body::UntilClose => Place::UntilClose,
        })
    }

    /// True once all of it has come; a body that ends with its connection never says so.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.0 == Place::Done
    }

    /// Reads `bytes` up to the end of the body, and gives `told` what they hold. Returns how many belong to the body.
    ///
    /// # Errors
    /// [`Malformed`] chunks: where the body ends is not known any more.
    pub fn read(&mut self, bytes: &[u8], mut told: impl FnMut(&[u8])) -> Result<usize, Malformed> {
        let mut at = 0;
        while at < bytes.len() && !self.is_done() {
            at += self.step(&bytes[at..], &mut told)?;
        }
        Ok(at)
    }

    fn step(&mut self, bytes: &[u8], told: &mut impl FnMut(&[u8])) -> Result<usize, Malformed> {
        let upto = |left: u64| usize::try_from(left).map_or(bytes.len(), |n| n.min(bytes.len()));
        let taken = match self.0 {
            Place::Length(left) | Place::Chunk(left) => upto(left),
            Place::UntilClose => bytes.len(),
            Place::Size(..) | Place::Behind | Place::Trailer(..) | Place::Done => 1,
        };
        let (head, first) = (&bytes[..taken], bytes[0]);
        if matches!(
            self.0,
            Place::Length(_) | Place::Chunk(_) | Place::UntilClose
        ) {
            told(head);
        }
        self.0 = match self.0 {
            Place::Length(left) => match left - taken as u64 {
                0 => Place::Done,
                left => Place::Length(left),
            },
            Place::Chunk(left) => match left - taken as u64 {
                0 => Place::Behind,
                left => Place::Chunk(left),
            },
            Place::Size(size, length, over) => after_size((size, length, over), first)?,
            Place::Behind => match first {
                b'\r' => Place::Behind,
                b'\n' => Place::Size(0, 0, false),
                _ => return Err(Malformed),
            },
            Place::Trailer(length, _) if length >= MAX_TRAILER => return Err(Malformed),
            Place::Trailer(_, 0) if first == b'\n' => Place::Done,
            Place::Trailer(length, _) if first == b'\n' => Place::Trailer(length + 1, 0),
            Place::Trailer(length, line) if first == b'\r' => Place::Trailer(length + 1, line),
            Place::Trailer(length, line) => Place::Trailer(length + 1, line + 1),
            other @ (Place::UntilClose | Place::Done) => other,
        };
        Ok(taken)
    }
}

fn after_size((size, length, over): (u64, usize, bool), byte: u8) -> Result<Place, Malformed> {
    match byte {
        b'\n' if length == 0 => Err(Malformed),
        b'\n' if size == 0 => Ok(Place::Trailer(0, 0)),
        b'\n' => Ok(Place::Chunk(size)),
        _ if length >= MAX_LINE => Err(Malformed),
        _ if over => Ok(Place::Size(size, length + 1, true)),
        b'\r' | b';' | b' ' | b'\t' if length > 0 => Ok(Place::Size(size, length + 1, true)),
        _ => {
            let digit = char::from(byte).to_digit(16).ok_or(Malformed)?;
            let size = size.checked_mul(16).ok_or(Malformed)? + u64::from(digit);
            Ok(Place::Size(size, length + 1, false))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `bytes` hold, how many of them belong to the body, and whether that is whole.
    fn read(body: Body, bytes: &[u8], cut: usize) -> Result<(Vec<u8>, usize, bool), Malformed> {
        let (mut reader, mut held, mut used) = (BodyReader::new(body), Vec::new(), 0);
        for piece in bytes.chunks(cut) {
            used += reader.read(piece, |bytes| held.extend_from_slice(bytes))?;
        }
        Ok((held, used, reader.is_done()))
    }

    /// A body, its bytes and more, what it holds, how long it is, and whether that is whole.
    type Case = (Body, &'static [u8], &'static [u8], usize, bool);

    #[test]
    fn bodies_are_read_however_they_are_cut() {
        let chunked: &'static [u8] = b"4;a=b\r\nWiki\r\nA\r\n0123456789\r\n00\r\nX: y\r\n\r\nGET";
        let cases: [Case; 7] = [
            (Body::Length(3), b"abcdef", b"abc", 3, true),
            (Body::Length(9), b"abcdef", b"abcdef", 6, false),
            (Body::Length(0), b"abcdef", b"", 0, true),
            (Body::UntilClose, b"abcdef", b"abcdef", 6, false),
            (
                Body::Chunked,
                chunked,
                b"Wiki0123456789",
                chunked.len() - 3,
                true,
            ),
            (Body::Chunked, b"1\nx\n0\n\n", b"x", 7, true),
            (Body::Chunked, b"5\r\nabc", b"abc", 6, false),
        ];
        for (body, bytes, held, used, done) in cases {
            for cut in 1..=bytes.len() {
                let expected = Ok((held.to_vec(), used, done));
                assert_eq!(read(body, bytes, cut), expected, "{body:?} {cut}");
            }
        }
    }

    #[test]
    fn what_are_no_chunks_is_refused() {
        let long = format!("1;{}", "a".repeat(MAX_LINE + 1));
        let trailer = format!("0\r\n{}", "a".repeat(MAX_TRAILER + 1));
        for bytes in [
            "\r\n",
            "x\r\n",
            "1\r\nab",
            "fffffffffffffffff\r\n",
            "-1\r\n",
            &long,
            &trailer,
        ] {
            let fault = read(Body::Chunked, bytes.as_bytes(), 7);
            assert_eq!(fault, Err(Malformed), "{bytes:.20}");
        }
    }
}

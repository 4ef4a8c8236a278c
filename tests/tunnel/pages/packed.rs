//! Pages in codings of which a few bytes stand for many.

use std::io::Write as _;

/// Objects of a page that is long to read, by its name.
pub(super) fn costly(name: &str) -> Vec<u8> {
    let links = "<img src=/o/costly><p title='a' class=b>x</p>\n".repeat(80_000);
    format!("<!doctype html><img src=/o/first-{name}>{links}<img src=/o/last-{name}>").into_bytes()
}

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).expect("memory takes it");
    packer.finish().expect("memory takes it")
}

/// Largest block of Zstandard, bytes.
const BLOCK: usize = 128 << 10;

/// Frame of Zstandard (RFC 8878) with a window of 8 MiB, the longest that a content coding may have: `first` as it is, `blanks` times 128 KiB
/// of blanks, and `last` as it is, with which the frame ends, if there is one.
pub(super) fn zstd_with_blanks(first: &[u8], blanks: usize, last: Option<&[u8]>) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, (23 - 10) << 3];
    let mut block = |size: usize, kind: usize, content: &[u8]| {
        frame.extend_from_slice(&(size << 3 | kind).to_le_bytes()[..3]);
        frame.extend_from_slice(content);
    };
    block(first.len(), 0, first);
    for _ in 0..blanks {
        // One byte that is repeated.
        block(BLOCK, 1 << 1, b" ");
    }
    if let Some(last) = last {
        block(last.len(), 1, last);
    }
    frame
}

/// First part of a page whose reading takes a whole window, which names an object; the rest of it never comes.
pub(super) fn windowed(name: &str) -> Vec<u8> {
    let first = format!("<!doctype html><img src=/o/window-{name}>");
    zstd_with_blanks(first.as_bytes(), 31, None)
}

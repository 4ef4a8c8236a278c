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

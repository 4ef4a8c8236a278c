//! Pages of a real web server that are hard to read: few bytes that stand for many, and HTML that is none.

use std::io::Write as _;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use bentpipe_emulator::usage::resident;
use bentpipe_testbed::peer::payload;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::S;
use super::cases::figure;
use super::nginx::{hex, objects};
use super::origin::OBJECT;
use super::packed::zstd_with_blanks;
use super::real::{OBJECT_FIELDS, Real, page_fields, with_each};

/// Content of a bomb: so many bytes of blanks, and a link.
const BLANKS: usize = 64 << 20;
const LINK: &[u8] = b"<img src=/o/behind>";

/// Memory that reading a bomb may take, bytes.
const MOST: u64 = 32 << 20;

/// 64 MiB of blanks and a link in Brotli, as Node's zlib packs them.
const BROTLI_BOMB: &str = "cbffff3f002440e2b14072effff8ffff078004401c1680eefd1fffffff00900088c302d0bdffe3ffff1f001200715800baf77ffc\
    ffff034002200e0b40f7fe8fffff7f004800c46101e8defff1ffff0f000980382c00ddfb3f\
    feffff012001108705a07bff8706803c696d67207372633d6c6174653e03";

type Targets = &'static [&'static str];

/// Pages of HTML that is none, the objects that are fetched ahead of each, and others of which a reader could think that they are.
fn malformed() -> [(&'static str, Vec<u8>, Targets, Targets); 3] {
    let tags = "<!doctype html><p><img src=\"/o/tag-0\"<img src=/o/tag-1 <p <script><img src=/o/tag-2></scrip>\
        <img src=/o/tag-3 /><table><img src=/o/tag-4><!-- <img src=/o/tag-5> -- > <img src=/o/tag-6>";
    let zeros = "\0<img\0 src=/o/zero-0><img src=\"/o/zero-1\"\0><img src=/o/zero-2";
    let wide: Vec<u8> = "<img src=/o/wide-0>"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    [
        (
            "tags",
            tags.into(),
            &["/o/tag-0", "/o/tag-2", "/o/tag-3", "/o/tag-4"],
            &["/o/tag-1", "/o/tag-5", "/o/tag-6"],
        ),
        (
            "zeros",
            zeros.into(),
            &["/o/zero-1"],
            &["/o/zero-0", "/o/zero-2"],
        ),
        ("wide", wide, &[], &["/o/wide-0"]),
    ]
}

fn gzip_bomb() -> Result<Vec<u8>> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    packer.write_all(&vec![b' '; BLANKS])?;
    packer.write_all(LINK)?;
    Ok(packer.finish()?)
}

#[test]
fn pages_that_are_hard_to_read_cross_as_they_are_and_harm_no_other() {
    let gzip = gzip_bomb().expect("a bomb");
    with_each("pages that are hard to read", |real| {
        malformed_pages(real)?;
        let bombs = [
            ("gzip", gzip.clone()),
            ("br", hex(BROTLI_BOMB)?),
            ("zstd", zstd_with_blanks(b"", BLANKS >> 17, Some(LINK))),
        ];
        let before = resident(real.site.reader())?;
        for (coding, bomb) in bombs {
            let name = format!("bomb-{coding}.html");
            real.nginx.put(&name, &bomb)?;
            let mut stream = real.browser.connect()?;
            let answer = real.expect_same(&mut stream, &format!("/{name}"), &page_fields())?;
            ensure!(answer.body == bomb, "{coding}: another page");
            let grown = resident(real.site.reader())?.saturating_sub(before);
            println!("{coding}: {grown} bytes more");
            ensure!(grown < MOST, "{coding}: {grown} bytes more");
        }
        // The share of the processor that the bombs have taken comes back.
        thread::sleep(Duration::from_secs(8));
        // Pages are read for their first 4 MiB.
        real.expect_count("/o/behind", 0)?;
        let mut stream = real.browser.connect()?;
        real.expect_same(&mut stream, "/plain.html", &page_fields())?;
        for target in objects("plain") {
            real.expect_same(&mut stream, &target, OBJECT_FIELDS)?;
            real.expect_count(&target, 1)?;
        }
        Ok(())
    });
}

/// Loads pages of HTML that is none: of each the objects that a browser would ask for come ahead, and no others.
fn malformed_pages(real: &Real) -> Result<()> {
    for (name, html, ahead, others) in malformed() {
        real.nginx.put(&format!("{name}.html"), &html)?;
        for target in ahead.iter().chain(others) {
            real.nginx.put(&target[1..], &payload(OBJECT))?;
        }
        let before = ["promised_total", "used_total"].map(|it| figure(real.site.site(), it));
        let mut stream = real.browser.connect()?;
        let answer = real.expect_same(&mut stream, &format!("/{name}.html"), &page_fields())?;
        ensure!(answer.body == html, "{name}: another page");
        thread::sleep(2 * S);
        for target in ahead.iter().chain(others) {
            real.expect_same(&mut stream, target, "Cookie: a=1\r\n")?;
            real.expect_count(target, 1)?;
        }
        let [promised, used] =
            ["promised_total", "used_total"].map(|it| figure(real.site.site(), it));
        let [promised_before, used_before] = before;
        let came = (promised? - promised_before?, used? - used_before?);
        let wanted = ahead.len() as u64;
        ensure!(
            came == (wanted, wanted),
            "{name}: {came:?} objects promised and used, not {wanted}"
        );
    }
    Ok(())
}

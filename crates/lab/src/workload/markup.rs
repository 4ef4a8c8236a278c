//! Bodies of a page's objects, as a browser takes them: references first, then filling up to the length.
//!
//! A document's head has its style sheets and two scripts that it waits for; other scripts are `async` by turns. Scripts
//! insert what they refer to. Images are uncompressed bitmaps of noise, so that there is something to decode and nothing to
//! compress; filling elsewhere is noise in comments.

use bentpipe_units::Seed;
use rand_core::Rng as _;

use super::content::generator;
use super::page::Page;
use super::shape::Kind;

/// Characters of filling: no comment ends with them.
const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .";
/// The most that a reference takes, path and markup included.
const REFERENCE: u64 = 200;
/// Bytes that a document has besides.
const FRAME: u64 = 400;
/// Scripts in the head, for which the document waits.
const BLOCKING: usize = 2;
/// Pixels of a row of a bitmap; three bytes each, so rows need no padding.
const WIDTH: u32 = 64;
const BITMAP_HEADER: u32 = 54;

/// The smallest document that can refer to so many objects.
pub(super) fn least_document(references: usize) -> u64 {
    FRAME + REFERENCE * references as u64
}

/// Content type that the server gives an object's kind.
pub(super) fn content_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Document => "text/html; charset=utf-8",
        Kind::Style => "text/css",
        Kind::Script => "text/javascript",
        Kind::Image => "image/bmp",
    }
}

/// The body of the object at `place`; `names` are those of the hosts.
pub(super) fn body(page: &Page, place: usize, names: &[String], seed: Seed) -> Vec<u8> {
    let object = &page.objects()[place];
    // Bounded by the shape.
    let length = object.length as usize;
    let (start, end) = match object.kind {
        Kind::Document => (document(page, names), "--></body></html>\n"),
        Kind::Style => (format!(".s{place}{{color:#123456}}\n/*"), "*/\n"),
        Kind::Script => (script(page, place, names), "*/\n"),
        Kind::Image => return image(length, seed),
    };
    let mut numbers = generator(seed);
    let mut body = start.into_bytes();
    let filling = length.saturating_sub(body.len() + end.len());
    let mut noise = vec![0; filling];
    numbers.fill_bytes(&mut noise);
    body.extend(noise.iter().map(|byte| LETTERS[usize::from(byte % 64)]));
    body.extend_from_slice(end.as_bytes());
    body
}

fn document(page: &Page, names: &[String]) -> String {
    let mut head = String::new();
    let mut main = String::new();
    let mut scripts = 0;
    for place in page.children(0) {
        let url = url(page, place, names);
        match page.objects()[place].kind {
            Kind::Style => head += &format!("<link rel=\"stylesheet\" href=\"{url}\">\n"),
            Kind::Script => {
                scripts += 1;
                let to = if scripts <= BLOCKING {
                    &mut head
                } else {
                    &mut main
                };
                let when = if scripts > BLOCKING && scripts % 2 == 0 {
                    " async"
                } else {
                    ""
                };
                *to += &format!("<script src=\"{url}\"{when}></script>\n");
            }
            Kind::Document | Kind::Image => {
                main += &format!("<img src=\"{url}\" width=\"16\" height=\"16\" alt=\"\">\n");
            }
        }
    }
    format!(
        "<!doctype html><html lang=\"en\"><head><title>page</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n{head}</head><body><h1>A page</h1>\n{main}<!--"
    )
}

fn script(page: &Page, place: usize, names: &[String]) -> String {
    let mut text = String::new();
    for child in page.children(place) {
        let url = url(page, child, names);
        let insert = match page.objects()[child].kind {
            Kind::Script => "script",
            _ => "img",
        };
        text += &format!("load('{insert}','{url}');\n");
    }
    if !text.is_empty() {
        text.insert_str(
            0,
            "function load(kind,url){var e=document.createElement(kind);e.src=url;\
             document.head.appendChild(e)}\n",
        );
    }
    text + "/*"
}

fn url(page: &Page, place: usize, names: &[String]) -> String {
    let host = usize::from(page.objects()[place].host);
    let name = names.get(host).map_or("nowhere.invalid", String::as_str);
    // By the scheme that the document itself came by.
    format!("//{name}{}", page.path(place))
}

/// A bitmap of 24-bit pixels; what does not fill a row stands behind the last.
fn image(length: usize, seed: Seed) -> Vec<u8> {
    // Lengths are bounded far below 4 GB.
    let size = length as u32;
    let rows = size.saturating_sub(BITMAP_HEADER) / (3 * WIDTH);
    let mut body = b"BM".to_vec();
    for field in [size, 0, BITMAP_HEADER, 40, WIDTH, rows.max(1)] {
        body.extend_from_slice(&field.to_le_bytes());
    }
    // One plane, 24 bits.
    body.extend_from_slice(&[1, 0, 24, 0]);
    body.resize(BITMAP_HEADER as usize, 0);
    let mut noise = vec![0; length.saturating_sub(body.len())];
    generator(seed).fill_bytes(&mut noise);
    body.extend_from_slice(&noise);
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::shape::Shape;
    use crate::workload::{Hosts, corpus};

    fn names() -> Vec<String> {
        let hosts = Hosts::of_topology(corpus::HOSTS);
        hosts.iter().map(|(name, _)| name.to_owned()).collect()
    }

    #[test]
    fn bodies_have_their_lengths_and_refer_to_each_object_once() {
        let usual = Page::new(&Shape::USUAL, Seed::new(1));
        let deep = (0..50).map(|seed| Page::new(&Shape::DEEP, Seed::new(seed)));
        for page in corpus::pages(corpus::PAGES).chain([usual]).chain(deep) {
            let mut seen = vec![0; page.objects().len()];
            for (place, object) in page.objects().iter().enumerate() {
                let body = page.body(place, &names());
                assert_eq!(body.len() as u64, object.length, "{:?}", object.kind);
                let Ok(text) = std::str::from_utf8(&body) else {
                    assert_eq!(object.kind, Kind::Image);
                    continue;
                };
                for (child, count) in seen.iter_mut().enumerate() {
                    let url = url(&page, child, &names());
                    *count += text.matches(&format!("{url}\"")).count();
                    *count += text.matches(&format!("{url}'")).count();
                }
            }
            assert_eq!(seen.remove(0), 0);
            assert!(seen.iter().all(|count| *count == 1), "{seen:?}");
        }
    }

    #[test]
    fn filling_is_noise_that_ends_where_it_should() {
        let page = Page::new(&Shape::USUAL, Seed::new(1));
        let text = String::from_utf8(page.body(0, &names())).unwrap();
        assert_eq!(text.matches("-->").count(), 1);
        assert_ne!(page.body(1, &names()), page.body(2, &names()));
        let images = page
            .objects()
            .iter()
            .position(|object| object.kind == Kind::Image);
        let image = page.body(images.unwrap(), &names());
        assert_eq!(image[..2], *b"BM");
        assert_eq!(image[2..6], (image.len() as u32).to_le_bytes());
    }
}

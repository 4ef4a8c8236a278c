//! Pages that are read piece by piece: what is promised, in which order it is fetched, and within which bounds.

use super::*;
use crate::unpack::PIECE;
use crate::{Scheme, Verdict, judge};
use std::io::Write as _;

fn ahead(request: &str, response: &str) -> Option<Ahead> {
    let head = format!("GET / HTTP/1.1\r\nHost: h\r\n{request}\r\n");
    let Verdict::Get(request, _) = judge(Scheme::Http, head.as_bytes()) else {
        panic!("a request");
    };
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{response}\r\n");
    let (response, _) = Response::parse(head.as_bytes()).unwrap().unwrap();
    Ahead::of(&request, &response)
}

/// Promises for all of `payload`.
fn read(page: &mut Ahead, payload: &[u8]) -> Vec<Frame> {
    page.push(payload);
    let pieces = std::iter::from_fn(|| page.has_more().then(|| page.read()));
    pieces.flatten().collect()
}

fn pack(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

const HTML: &str = "Accept: text/html\r\n";

fn targets(frames: &[Frame]) -> Vec<String> {
    let target = |frame: &Frame| match frame {
        Frame::Promise { target, .. } => String::from_utf8(target.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    };
    frames.iter().map(target).collect()
}

#[test]
fn pages_alone_are_read() {
    assert!(ahead(HTML, "").is_some());
    assert!(ahead("", "").is_none(), "no page was asked for");
    assert!(ahead(HTML, "Set-Cookie: a=1\r\n").is_none());
    let shift_reload = format!("{HTML}Pragma: no-cache\r\nCache-Control: no-cache\r\n");
    assert!(ahead(&shift_reload, "").is_none(), "all of it is to be new");
    for (codings, readable) in [
        ("gzip", true),
        ("br", true),
        ("zstd", true),
        ("compress", false),
        ("br, gzip", false),
    ] {
        let page = ahead(HTML, &format!("Content-Encoding: {codings}\r\n"));
        assert_eq!(page.is_some(), readable, "{codings}");
    }
}

#[test]
fn each_object_is_promised_once_and_fetched_in_order() {
    let mut page = ahead(HTML, "").unwrap();
    assert_eq!(targets(&read(&mut page, b"<img src=a><img sr")), ["/a"]);
    assert_eq!(
        targets(&read(&mut page, b"c=b><img src=/a><img src=/>")),
        ["/b"]
    );
    assert_eq!(page.begin().unwrap().1.target(), "/a");
    assert_eq!(page.begin().unwrap().1.target(), "/b");
    assert!(page.begin().is_none() && !page.is_idle());
    page.end(1);
    page.end(2);
    assert!(page.is_idle());
}

#[test]
fn what_blocks_is_fetched_before_images_and_beside_those_that_were_begun() {
    let mut page = ahead(HTML, "").unwrap();
    let begun = |page: &mut Ahead| -> Vec<_> {
        let begun = std::iter::from_fn(|| page.begin());
        begun.map(|(_, it)| it.target().to_owned()).collect()
    };
    read(
        &mut page,
        b"<img src=a><img src=b><img src=c><link rel=stylesheet href=s>",
    );
    assert_eq!(begun(&mut page), ["/s", "/a", "/b", "/c"]);
    read(
        &mut page,
        b"<img src=d><img src=e><img src=f><script src=g></script>",
    );
    assert_eq!(begun(&mut page), ["/g", "/d"]);
    read(
        &mut page,
        b"<script src=h></script><script src=i></script><script src=j></script>",
    );
    assert_eq!(begun(&mut page), ["/h", "/i"]);
    page.end(1);
    assert_eq!(begun(&mut page), ["/j"]);
    (2..=5).for_each(|id| page.end(id));
    assert_eq!(begun(&mut page), ["/e", "/f"]);
}

#[test]
fn what_is_preloaded_blocks_once_it_is_named_where_it_does() {
    let mut page = ahead(HTML, "").unwrap();
    let html = b"<img src=a><link rel=preload as=script href=s><script src=s></script>";
    assert_eq!(targets(&read(&mut page, html)), ["/a", "/s"]);
    let begun = std::iter::from_fn(|| page.begin());
    let begun: Vec<_> = begun.map(|(_, it)| it.target().to_owned()).collect();
    assert_eq!(begun, ["/s", "/a"]);
    assert_eq!(page.blocks().collect::<Vec<_>>(), [2]);
}

#[test]
fn a_page_that_is_read_no_further_keeps_its_promises() {
    let mut page = ahead(HTML, "").unwrap();
    assert_eq!(targets(&read(&mut page, b"<img src=a>")), ["/a"]);
    page.stop_reading();
    assert!(read(&mut page, b"<img src=b>").is_empty());
    assert_eq!(page.begin().unwrap().1.target(), "/a");
}

#[test]
fn a_page_that_names_ten_thousand_objects_is_bounded() {
    let mut page = ahead(HTML, "").unwrap();
    let html: String = (0..10_000).map(|n| format!("<img src=/{n}>")).collect();
    let promised = html
        .as_bytes()
        .chunks(1000)
        .map(|piece| read(&mut page, piece).len());
    assert_eq!(promised.sum::<usize>() as u64, MAX_OBJECTS);
    let begun = std::iter::from_fn(|| page.begin()).count();
    assert_eq!(begun, MAX_AT_ONCE);
}

#[test]
fn what_few_bytes_stand_for_is_read_in_many_pieces() {
    let packed = pack(&vec![b' '; 1 << 20]);
    assert!(packed.len() < PIECE, "one payload brings all of it");
    let mut page = ahead(HTML, "Content-Encoding: gzip\r\n").unwrap();
    page.push(&packed);
    let mut reads = 0;
    while page.has_more() {
        let left = page.html_left;
        assert!(page.read().is_empty());
        assert!(left - page.html_left <= PIECE, "{left}");
        reads += 1;
    }
    assert_eq!(page.html_left, MAX_HTML - (1 << 20));
    assert!(reads >= (1 << 20) / PIECE, "{reads} pieces");
}

#[test]
fn paths_that_no_request_can_hold_are_looked_at_as_few_times_as_others() {
    let cookie = "x".repeat(crate::MAX_REQUEST - 80);
    let mut page = ahead(&format!("{HTML}Cookie: {cookie}\r\n"), "").unwrap();
    let html: String = (0..10_000).map(|n| format!("<img src=/{n}>")).collect();
    assert!(read(&mut page, html.as_bytes()).is_empty());
    assert_eq!(page.seen.len() as u64, 1 + MAX_OBJECTS);
    assert!(page.unpacker.is_none(), "more of it is read");
}

#[test]
fn bytes_are_bounded_for_each_and_for_all() {
    let mut page = ahead(HTML, "").unwrap();
    read(
        &mut page,
        b"<img src=a><img src=b><img src=c><img src=d><img src=e>",
    );
    let whole = usize::try_from(MAX_OBJECT).unwrap();
    for _ in 0..4 {
        let (id, _) = page.begin().unwrap();
        assert!(page.spend(id, whole));
        assert!(!page.spend(id, 1));
        page.end(id);
    }
    let (id, _) = page.begin().unwrap();
    assert!(!page.spend(id, 1), "the page has had its bytes");
    assert!(!page.spend(99, 0), "nobody asked for it");
}

#[test]
fn what_a_broken_object_has_not_used_is_for_others() {
    let mut page = ahead(HTML, "").unwrap();
    read(
        &mut page,
        b"<img src=a><img src=b><img src=c><img src=d><img src=e>",
    );
    for _ in 0..5 {
        let (id, _) = page.begin().unwrap();
        assert!(page.reserve(id, MAX_OBJECT), "{id}");
        assert!(page.spend(id, 1));
        page.end(id);
    }
}

#[test]
fn objects_that_come_abreast_do_not_take_each_others_bytes() {
    let mut page = ahead(HTML, "").unwrap();
    read(
        &mut page,
        b"<img src=a><img src=b><img src=c><img src=d><img src=e><img src=f>",
    );
    let three = 3 << 20;
    let begun: Vec<_> = std::iter::from_fn(|| page.begin()).collect();
    let have: Vec<_> = begun
        .iter()
        .map(|(id, _)| page.reserve(*id, three))
        .collect();
    assert_eq!(have, [true, true, true, true, true, false]);
    for (id, _) in &begun[..5] {
        assert!((0..3).all(|_| page.spend(*id, 1 << 20)), "{id}");
    }
    // One that has more than it said takes of what is left.
    assert!(page.spend(1, 1 << 20) && !page.spend(2, 1));
    assert!(!page.reserve(6, MAX_OBJECT + 1) && !page.reserve(99, 0));
}

#[test]
fn packed_pages_are_read_while_they_come_and_bombs_are_cut_off() {
    let mut page = ahead(HTML, "Content-Encoding: gzip\r\n").unwrap();
    let packed = pack(b"<p>hello</p><img src=a>");
    let found: Vec<_> = packed
        .chunks(5)
        .flat_map(|piece| read(&mut page, piece))
        .collect();
    assert_eq!(targets(&found), ["/a"]);

    let mut page = ahead(HTML, "Content-Encoding: gzip\r\n").unwrap();
    let mut bomb = vec![b' '; 64 << 20];
    bomb.extend_from_slice(b"<img src=late>");
    assert!(read(&mut page, &pack(&bomb)).is_empty());
    assert!(page.unpacker.is_none());

    let mut page = ahead(HTML, "Content-Encoding: gzip\r\n").unwrap();
    assert!(read(&mut page, b"<img src=a>").is_empty(), "no gzip");
}

//! Pages fetched ahead (PROTOCOL.md §19): frames of a server, tags of a page, answers of an origin.

use bentpipe_web::{
    Ahead, Asked, BodyReader, Closing, Frame, FrameError, FrameReader, Incoming, Links, MAX_DATA,
    MAX_OBJECTS, MAX_STORED, Malformed, Part, Request, Response, Scheme, Store, Verdict, judge,
};
use bytes::BytesMut;
use std::io::Write as _;

fn page() -> Request {
    let head = b"GET /a/b HTTP/1.1\r\nHost: h\r\nAccept: text/html\r\n\r\n";
    match judge(Scheme::Http, head) {
        Verdict::Get(request, _) => request,
        other => panic!("{other:?}"),
    }
}

/// Frames of `stream`, which comes in pieces of `size`, and the fault that ends it.
fn read(stream: &[u8], size: usize) -> (Vec<Frame>, Option<FrameError>) {
    let (mut reader, mut frames) = (FrameReader::default(), Vec::new());
    for piece in stream.chunks(size) {
        reader.push(piece);
        loop {
            match reader.read() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(fault) => return (frames, Some(fault)),
            }
        }
    }
    (frames, None)
}

/// A stream of frames, cut at will: the first byte says where. What is read is written the same, and fills no store.
pub fn frames(data: &[u8]) {
    let Some((&size, stream)) = data.split_first() else {
        return;
    };
    let (frames, fault) = read(stream, stream.len().max(1));
    assert_eq!(
        read(stream, usize::from(size).max(1)),
        (frames.clone(), fault)
    );
    let now = crate::origin();
    let mut store = Store::default();
    let page_id = store.begin(0_u8, page());
    let mut again = Vec::new();
    for frame in frames {
        frame.encode(&mut again);
        store.on_frame(now, page_id, frame);
        assert!(store.bytes() <= MAX_STORED);
        if let Some(request) = page().of_object("/x") {
            let answer = store.ask(now, &0, &request);
            assert!(!matches!(answer, Asked::Ready(answer) if answer.bytes.is_empty()));
        }
    }
    store.end(page_id);
    assert_eq!(read(&again, again.len().max(1)).1, None);
}

/// Valid streams.
pub fn frame_seeds() -> Vec<Vec<u8>> {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n";
    let stream = |id| {
        let frames = [
            Frame::Request("GET / HTTP/1.1\r\nHost: h\r\n\r\n".into()),
            Frame::Promise {
                id: 1,
                target: "/x".into(),
            },
            Frame::Head {
                id,
                bytes: head.into(),
            },
            Frame::Data {
                id,
                bytes: "x".into(),
            },
            Frame::End {
                id,
                close: Closing::Open,
            },
            Frame::Failed { id: 2 },
            Frame::Tls("a.example".into()),
            Frame::Relay,
            Frame::End {
                id,
                close: Closing::Cut,
            },
        ];
        let mut bytes = vec![3];
        frames.iter().for_each(|frame| frame.encode(&mut bytes));
        bytes
    };
    vec![stream(0), stream(1), stream(300)]
}

/// A page, cut at will: cuts change nothing, and every link is one that a browser can ask for.
pub fn links(data: &[u8]) {
    let Some((&size, html)) = data.split_first() else {
        return;
    };
    let whole = Links::of(&page()).read(html);
    let mut cut = Links::of(&page());
    let pieces = html.chunks(usize::from(size).max(1));
    let found: Vec<_> = pieces.flat_map(|piece| cut.read(piece)).collect();
    assert_eq!(whole, found);
    for link in found {
        let request = page().of_object(&link.target);
        let request = request.expect("a request can hold it");
        assert_eq!(request.target(), link.target);
    }
}

/// Pages with every tag that is looked at, and some that are none.
pub fn link_seeds() -> Vec<Vec<u8>> {
    [
        "\x05<!doctype html><base href=/c/><link rel=stylesheet href=s.css><script src=../a.js></script><img src=i.png>",
        "\x03<picture><source srcset='a.webp 1x, b.webp 2x' type=image/webp><img src=b.png loading=lazy></picture>",
        "\x01<template><img src=x></template><noscript><img src=y></noscript><title><img></title><input type=image src=//h/z?q#f>",
        "\x02<img src=\"a\"<img src=b <p <script><img src=c></scrip><table><img src=d><!-- <img src=e> -- ><img src=f",
        "\x01\0<img\0 src=a><img src=\"b\"\0><img src='c\0d'>&#0;<\0i\0m\0g\0 src=e>",
    ]
    .map(|html| html.as_bytes().to_vec())
    .to_vec()
}

/// Codings in which pages come.
const CODINGS: [&str; 4] = ["gzip", "deflate", "br", "zstd"];

/// Content of a page in a coding, which the first byte says, cut at will: cuts change no promise, and promises are bounded. Where the
/// content is broken, a cut may bring more of what is before that. And what is packed comes out again: nothing of it is lost.
pub fn content(data: &[u8]) {
    let [coding, size, packed @ ..] = data else {
        return;
    };
    let coding = CODINGS[usize::from(*coding) % CODINGS.len()];
    let size = usize::from(*size).max(1);
    let whole = promises(coding, packed, packed.len().max(1));
    assert!(whole.len() as u64 <= MAX_OBJECTS);
    let cut = promises(coding, packed, size);
    assert!(
        whole.starts_with(&cut) || cut.starts_with(&whole),
        "{coding}: {whole:?} and {cut:?}"
    );
    let (html, targets) = page_of(packed);
    let packed = pack(coding, &html, size);
    for size in [size, packed.len()] {
        assert_eq!(
            promises(coding, &packed, size),
            targets,
            "{coding} cut every {size}"
        );
    }
}

/// Targets that are promised for a page in `coding` that comes in pieces of `size`.
fn promises(coding: &str, packed: &[u8], size: usize) -> Vec<String> {
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: {coding}\r\n\r\n");
    let (response, _) = Response::parse(head.as_bytes())
        .expect("a response")
        .expect("all of it");
    let mut ahead = Ahead::of(&page(), &response).expect("a page");
    let read = |piece: &[u8]| {
        ahead.push(piece);
        let read = std::iter::from_fn(|| ahead.has_more().then(|| ahead.read()));
        read.flatten().collect::<Vec<_>>()
    };
    let target = |frame| match frame {
        Frame::Promise { target, .. } => String::from_utf8(target.to_vec()).expect("a path"),
        other => panic!("{other:?}"),
    };
    packed.chunks(size).flat_map(read).map(target).collect()
}

/// A page whose links have all of `data` in their paths, and those.
fn page_of(data: &[u8]) -> (Vec<u8>, Vec<String>) {
    let most = usize::try_from(MAX_OBJECTS).expect("few");
    let piece = data.len().div_ceil(most).clamp(1, 1000);
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let pieces = data.chunks(piece).take(most).enumerate();
    let targets: Vec<_> = pieces
        .map(|(number, bytes)| format!("/{number}-{}", hex(bytes)))
        .collect();
    let tags = targets.iter().map(|target| format!("<img src={target}>"));
    (tags.collect::<String>().into_bytes(), targets)
}

/// `content` in `coding`; of Brotli in parts of `size` that are not packed (RFC 7932 section 9.2).
fn pack(coding: &str, content: &[u8], size: usize) -> Vec<u8> {
    let level = flate2::Compression::new(u32::try_from(size % 10).expect("a level"));
    match coding {
        "gzip" => {
            let mut packer = flate2::write::GzEncoder::new(Vec::new(), level);
            packer.write_all(content).expect("memory");
            packer.finish().expect("memory")
        }
        "deflate" => {
            let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), level);
            packer.write_all(content).expect("memory");
            packer.finish().expect("memory")
        }
        "zstd" => {
            let mut packed = Vec::with_capacity(zstd_safe::compress_bound(content.len()));
            zstd_safe::compress(&mut packed, content, 3).expect("room");
            packed
        }
        _ => {
            // A window of 2^16, which one bit says.
            let mut packed = Vec::new();
            for (number, part) in content.chunks(size).enumerate() {
                let length = u32::try_from(part.len() - 1).expect("short");
                let head = (length << 3 | 1 << 19) << u32::from(number == 0);
                packed.extend_from_slice(&head.to_le_bytes()[..3]);
                packed.extend_from_slice(part);
            }
            packed.push(if content.is_empty() { 6 } else { 3 });
            packed
        }
    }
}

/// `<p>hello</p><img src=a>` and `<img src=b>` in each coding: Brotli with a flush between, Zstandard in two raw
/// blocks. The first bytes of a bomb are in the corpus alone: of each mutation megabytes would come out.
pub fn content_seeds() -> Vec<Vec<u8>> {
    let hex = |text: &str| crate::bytes(text).expect("hexadecimal");
    let html = [&b"<p>hello</p><img src=a>"[..], b"<img src=b>"];
    let mut zstd = hex("28b52ffd0058");
    for (last, part) in [(0, html[0]), (1, html[1])] {
        let block = u32::try_from(part.len()).expect("short") << 3 | last;
        zstd.extend_from_slice(&block.to_le_bytes()[..3]);
        zstd.extend_from_slice(part);
    }
    let brotli = "0b0b00f88d9354edfa2c797ce0ea252c25d9649b5226a09c77fcdf0cc800083c696d67207372633d623e3c703e54686520656e642e3c2f703e03";
    let gzip = "1f8b0800000000000203b329b0cb48cdc9c9b7d12fb0b3c9cc4d57282e4ab64d443093ec0056e78d7e22000000";
    let deflate = "78dab329b0cb48cdc9c9b7d12fb0b3c9cc4d57282e4ab64d443093ec00cbef0b93";
    let seed = |coding: u8, size: u8, packed: Vec<u8>| [vec![coding, size], packed].concat();
    vec![
        seed(0, 3, hex(gzip)),
        seed(1, 1, hex(deflate)),
        seed(2, 5, hex(brotli)),
        seed(3, 7, zstd),
    ]
}

/// What an origin answers, cut at will: head, and what the body holds.
pub fn answer(data: &[u8]) {
    let Some((&size, bytes)) = data.split_first() else {
        return;
    };
    let _ = judge(Scheme::Https, bytes);
    let Ok(Some((response, used))) = Response::parse(bytes) else {
        return;
    };
    let body = |size: usize| -> Result<_, Malformed> {
        let (mut reader, mut held, mut taken) = (BodyReader::new(response.body()), Vec::new(), 0);
        for piece in bytes[used..].chunks(size) {
            taken += reader.read(piece, |bytes| held.extend_from_slice(bytes))?;
        }
        Ok((held, taken, reader.is_done()))
    };
    let whole = body(bytes.len());
    assert_eq!(whole, body(usize::from(size).max(1)), "cuts change nothing");
    if let Ok((held, taken, _)) = whole {
        assert!(held.len() <= taken && taken <= bytes.len() - used);
    }
}

/// Valid answers.
pub fn answer_seeds() -> Vec<Vec<u8>> {
    [
        "\x03HTTP/1.1 200 OK\r\nContent-Length: 3\r\nVary: Accept\r\n\r\nabcd",
        "\x01HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: u\r\n\r\n",
        "\x07HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nabc",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

/// First bytes of an origin's connection: however they are cut, the same parts in the same order, no byte of them lost or changed, and
/// the same word about their end.
pub fn incoming(data: &[u8]) {
    let Some((&size, bytes)) = data.split_first() else {
        return;
    };
    let parts = |size: usize| {
        let (mut incoming, mut unread) = (Incoming::default(), BytesMut::new());
        let (mut kinds, mut crossed) = (String::new(), Vec::new());
        for piece in bytes.chunks(size.max(1)) {
            unread.extend_from_slice(piece);
            while let Some(part) = incoming.read(&mut unread) {
                match part {
                    Part::Interim(head) => {
                        kinds.push('i');
                        crossed.extend_from_slice(&head);
                    }
                    Part::Head(_, head) => {
                        kinds.push('h');
                        crossed.extend_from_slice(&head);
                    }
                    Part::Body(bytes, payload) => {
                        assert!(payload.len() <= bytes.len() && bytes.len() <= MAX_DATA);
                        crossed.extend_from_slice(&bytes);
                    }
                    Part::End(closes) => kinds.push(if closes { 'c' } else { 'e' }),
                }
            }
        }
        assert!(bytes.starts_with(&crossed), "bytes are lost or changed");
        assert_eq!(crossed.len() + unread.len(), bytes.len());
        (kinds, crossed.len(), incoming.ends_here())
    };
    assert_eq!(
        parts(bytes.len()),
        parts(size.into()),
        "cuts change something"
    );
}

/// Valid answers, after interim ones, and with more behind them.
pub fn incoming_seeds() -> Vec<Vec<u8>> {
    let hints = b"\x05HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n";
    let after_hints = |answer: &Vec<u8>| [&hints[..], &answer[1..]].concat();
    let answers = answer_seeds();
    let hinted: Vec<_> = answers.iter().map(after_hints).collect();
    [answers, hinted].concat()
}

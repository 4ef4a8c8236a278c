//! Codings of pages: cut anywhere, as bombs, broken, and with windows that nobody has to have.

use super::*;

/// Content of [`BROTLI`] in two parts, each of which came out before the other went in.
const HTML: [&[u8]; 2] = [b"<p>hello</p><img src=a>", b"<img src=b><p>The end.</p>"];

/// Both parts of [`HTML`], the first flushed, as Node's zlib packs them.
const BROTLI: [&str; 2] = [
    "0b0b00f88d9354edfa2c797ce0ea252c25d9649b5226a09c77fcdf0c",
    "c800083c696d67207372633d623e3c703e54686520656e642e3c2f703e03",
];

/// 64 MiB of spaces and a link, 119 bytes.
const BROTLI_BOMB: &str = "cbffff3f002440e2b14072effff8ffff078004401c1680eefd1fffffff00900088c302d0\
    bdffe3ffff1f001200715800baf77ffcffff034002200e0b40f7fe8fffff7f004800c46101e8defff1ffff0f000980382c00ddfb3f\
    feffff012001108705a07bff8706803c696d67207372633d6c6174653e03";

/// A page of Brotli whose window is of 16 MiB and more, of which no RFC knows.
const BROTLI_LARGE_WINDOW: &str = "111e2c00023c703e68656c6c6f3c2f703e3c696d67207372633d613e03";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    let bytes = digits.chunks(2);
    bytes
        .map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap())
        .collect()
}

fn brotli_parts() -> [Vec<u8>; 2] {
    BROTLI.map(hex)
}

fn deflate_parts() -> [Vec<u8>; 2] {
    let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(HTML[0]).unwrap();
    packer.flush().unwrap();
    let first = packer.get_ref().clone();
    packer.write_all(HTML[1]).unwrap();
    let whole = packer.finish().unwrap();
    [first.clone(), whole[first.len()..].to_vec()]
}

fn gzip_parts() -> [Vec<u8>; 2] {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(HTML[0]).unwrap();
    packer.flush().unwrap();
    let first = packer.get_ref().clone();
    packer.write_all(HTML[1]).unwrap();
    let whole = packer.finish().unwrap();
    [first.clone(), whole[first.len()..].to_vec()]
}

/// Each part is a frame of its own, or a block of one.
fn zstd_parts() -> [Vec<u8>; 2] {
    HTML.map(zstd_frame)
}

fn zstd_frame(content: &[u8]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(zstd_safe::compress_bound(content.len()));
    zstd_safe::compress(&mut packed, content, 3).unwrap();
    packed
}

fn unpacker(coding: &str) -> Unpacker {
    Unpacker::of(&[coding.to_owned()]).unwrap()
}

/// Content of `packed`, which comes in pieces of `cut`, and whether more may come.
fn unpack(unpacker: &mut Unpacker, packed: &[u8], cut: usize) -> (Vec<u8>, bool) {
    let mut content = Vec::new();
    for piece in packed.chunks(cut) {
        unpacker.push(piece);
        while unpacker.has_more() {
            match unpacker.read() {
                Ok(bytes) => content.extend_from_slice(&bytes.unwrap_or_default()),
                Err(ContentOver) => return (content, false),
            }
        }
    }
    (content, true)
}

#[test]
fn content_comes_out_as_soon_as_it_has_come_in() {
    let all = [
        ("deflate", deflate_parts()),
        ("gzip", gzip_parts()),
        ("br", brotli_parts()),
        ("zstd", zstd_parts()),
    ];
    for (coding, parts) in all {
        for cut in 1..=parts[1].len() {
            let mut unpacker = unpacker(coding);
            for (part, html) in parts.iter().zip(HTML) {
                let (content, _) = unpack(&mut unpacker, part, cut);
                assert_eq!(content, html, "{coding} cut every {cut}");
            }
        }
    }
}

/// Part of a brotli stream that does not end it: `length` bytes, not packed (RFC 7932 §9.2).
fn brotli_as_it_is(length: u32) -> Vec<u8> {
    // A window of 2^16, not the last part, four digits of the length, not packed.
    let head = (length - 1) << 4 | 1 << 20;
    let mut part = head.to_le_bytes()[..3].to_vec();
    part.resize(part.len() + length as usize, b'x');
    part
}

#[test]
fn all_of_a_brotli_part_comes_out_before_another_comes_in() {
    let part = brotli_as_it_is(60_000);
    let (content, _) = unpack(&mut unpacker("br"), &part, part.len());
    assert_eq!(content.len(), 60_000);
}

#[test]
fn a_block_of_zstandard_comes_out_before_its_frame_has_ended() {
    let mut packer = zstd_safe::CCtx::create();
    let mut packed = vec![0; 1000];
    let mut output = OutBuffer::around(packed.as_mut_slice());
    let mut input = InBuffer::around(HTML[0]);
    packer.compress_stream(&mut output, &mut input).unwrap();
    assert_eq!(packer.flush_stream(&mut output).unwrap(), 0);
    let length = output.pos();
    let (content, more) = unpack(&mut unpacker("zstd"), &packed[..length], 7);
    assert_eq!((content.as_slice(), more), (HTML[0], true));
}

/// Counts what comes of a bomb until `most` bytes of it have come, and the largest piece.
fn defuse(coding: &str, packed: &[u8], most: usize) -> (usize, usize) {
    let (mut sum, mut largest, mut held) = (0, 0, 0);
    let mut unpacker = unpacker(coding);
    unpacker.push(packed);
    while sum < most {
        assert!(unpacker.has_more(), "{coding}: no more after {sum}");
        let piece = unpacker.read().unwrap().unwrap_or_default();
        sum += piece.len();
        largest = largest.max(piece.len());
        held = held.max(unpacker.content.len());
    }
    assert!(held <= 2 * UNPACKED, "{coding}: {held} bytes wait");
    (sum, largest)
}

#[test]
fn of_bombs_no_more_is_unpacked_than_is_wanted() {
    let bomb = vec![b' '; 64 << 20];
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&bomb).unwrap();
    let mut deflate = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    deflate.write_all(&bomb).unwrap();
    let bombs = [
        ("gzip", gzip.finish().unwrap()),
        ("deflate", deflate.finish().unwrap()),
        ("br", hex(BROTLI_BOMB)),
        ("zstd", zstd_frame(&bomb)),
    ];
    for (coding, packed) in bombs {
        let most = 1 << 20;
        let (sum, largest) = defuse(coding, &packed, most);
        assert!(sum >= most && sum < most + PIECE, "{coding}: {sum}");
        assert!(largest <= PIECE, "{coding}: {largest} at once");
    }
}

#[test]
fn what_is_no_content_ends_it() {
    for coding in ["gzip", "deflate", "br", "zstd"] {
        // For Brotli 0x11 is a window of which nobody knows.
        let (content, more) = unpack(&mut unpacker(coding), b"\x11\xff<img src=a>", 3);
        assert_eq!((content.len(), more), (0, false), "{coding}");
    }
    let (content, more) = unpack(&mut unpacker("br"), &hex(BROTLI_LARGE_WINDOW), 9);
    assert_eq!((content.len(), more), (0, false));
}

#[test]
fn windows_of_zstandard_are_those_that_a_content_coding_may_have() {
    // Magic number, no size and no single segment, and a window of 2^(10 + n): then an empty last block.
    let frame = |exponent: u8| [0x28, 0xb5, 0x2f, 0xfd, 0, (exponent - 10) << 3, 1, 0, 0];
    for (exponent, known) in [(10, true), (23, true), (24, false), (31, false)] {
        let (_, more) = unpack(&mut unpacker("zstd"), &frame(exponent), 100);
        assert_eq!(more, known, "2^{exponent}");
    }
}

#[test]
fn windows_are_held_once_they_are_needed() {
    // Frame of Zstandard with a window of 2^23, and its first block: a byte that stands for 1000 bytes.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, (23 - 10) << 3];
    frame.extend([0x42, 0x1f, 0, b' ']);
    let mut zstd = unpacker("zstd");
    assert!(zstd.held() < 1 << 20, "{} before the frame", zstd.held());
    assert_eq!(unpack(&mut zstd, &frame, 100), (vec![b' '; 1000], true));
    assert!(
        (8 << 20..10 << 20).contains(&zstd.held()),
        "{}",
        zstd.held()
    );
    // Brotli takes as much as has come, and its window at most.
    let mut small = unpacker("br");
    unpack(&mut small, &brotli_as_it_is(1000), 100);
    assert!(small.held() < 1 << 18, "{}", small.held());
    let mut large = unpacker("br");
    large.push(&hex(BROTLI_BOMB));
    let mut most = 0;
    while large.has_more() && large.read().is_ok() {
        most = most.max(large.held());
    }
    assert!((1 << 22..=1 << 23).contains(&most), "{most}");
}

/// Steps of the decoder for one payload of `packed`, and the most bytes that one of them took.
fn steps(coding: &str, packed: &[u8]) -> (usize, usize) {
    let mut unpacker = unpacker(coding);
    unpacker.push(packed);
    let (mut steps, mut most) = (0, 0);
    while unpacker.has_more() {
        let before = unpacker.packed.len();
        let read = unpacker.read();
        most = most.max(before - unpacker.packed.len());
        steps += 1;
        if read == Err(ContentOver) {
            break;
        }
    }
    (steps, most)
}

#[test]
fn what_brings_nothing_is_taken_in_many_steps_and_has_an_end() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(b"").unwrap();
    let empty = gzip.finish().unwrap();
    let members = empty.repeat(800);
    let (count, most) = steps("gzip", &members);
    assert!(count >= 800, "{count} steps for 800 members");
    assert!(most <= empty.len(), "{most} bytes at once");
    let stored = hex("78da").into_iter().chain(hex("000000ffff").repeat(900));
    let skipped = hex("502a4d1801000000aa").repeat(900);
    for (coding, packed) in [("deflate", stored.collect()), ("zstd", skipped.clone())] {
        let (_, most) = steps(coding, &packed);
        assert!(most <= 1024, "{coding}: {most} bytes at once");
    }
    let (mut unpacker, mut pushed) = (unpacker("zstd"), 0);
    let mut ends = |packed: &[u8]| {
        unpacker.push(packed);
        pushed += packed.len();
        let mut read = std::iter::from_fn(|| unpacker.has_more().then(|| unpacker.read()));
        read.any(|read| read == Err(ContentOver)) || pushed > 2 * MAX_PACKED
    };
    while !ends(&skipped) {}
    assert!(
        (MAX_PACKED..=MAX_PACKED + skipped.len()).contains(&pushed),
        "{pushed}"
    );
}

#[test]
fn windows_of_brotli_are_those_that_encoders_take() {
    // Windows of 2^16 to 2^24 (RFC 7932 section 9.1), and then bytes as they are, 65,536 of them.
    for (log, bits, code) in [
        (16, 1, 0),
        (18, 4, 3),
        (21, 4, 9),
        (22, 4, 11),
        (23, 4, 13),
        (24, 4, 15),
    ] {
        let mut head = u64::from(code as u32) | 65_535 << (bits + 3) | 1 << (bits + 19);
        let mut packed = Vec::new();
        for _ in 0..(bits + 20_u32).div_ceil(8) {
            packed.push((head & 255) as u8);
            head >>= 8;
        }
        packed.resize(packed.len() + 65_536, b'x');
        let mut unpacker = unpacker("br");
        let (content, _) = unpack(&mut unpacker, &packed, packed.len());
        let known = log <= 22;
        assert_eq!(content.len(), if known { 65_536 } else { 0 }, "2^{log}");
        let Decoder::Brotli(decoder) = &unpacker.decoder else {
            panic!("no Brotli");
        };
        assert_eq!(decoder.window_bits, log);
        assert!(decoder.ringbuffer_size <= 4 << 20);
        assert!(known || decoder.ringbuffer_size == 0, "memory for 2^{log}");
    }
}

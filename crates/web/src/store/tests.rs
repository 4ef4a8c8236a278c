//! Tables of what a browser is given, and orders of frames that are drawn: bytes out are bytes in, once, within bounds.

mod newest;

use super::*;
use crate::{Scheme, Verdict, judge};
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg32;

fn request(target: &str, fields: &str) -> Request {
    request_of("h", target, fields)
}

fn request_of(host: &str, target: &str, fields: &str) -> Request {
    let head = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
    match judge(Scheme::Http, head.as_bytes()) {
        Verdict::Get(request, _) => request,
        other => panic!("{other:?}"),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "an arbitrary origin; all else is virtual"
)]
fn start() -> Instant {
    Instant::now()
}

fn promise(id: u64, target: &str) -> Frame {
    let target = Bytes::copy_from_slice(target.as_bytes());
    Frame::Promise { id, target }
}

fn head(id: u64, fields: &str) -> Frame {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n{fields}\r\n");
    Frame::Head {
        id,
        bytes: head.into(),
    }
}

fn data(id: u64, length: usize) -> Frame {
    Frame::Data {
        id,
        bytes: vec![b'x'; length].into(),
    }
}

/// A store that has `/a`, with `fields` in the head of its response, for a page with cookie `a=1`.
fn filled(fields: &str) -> (Store<u8>, Instant) {
    let (mut store, now) = (Store::default(), start());
    let page = store.begin(0, request("/", "Cookie: a=1\r\nAccept-Language: en\r\n"));
    for frame in [
        promise(1, "/a"),
        head(1, fields),
        data(1, 2),
        Frame::End {
            id: 1,
            close: Closing::Open,
        },
    ] {
        assert!(store.on_frame(now, page, frame));
    }
    store.end(page);
    (store, now)
}

#[test]
fn an_object_answers_one_request_like_the_assumed_one() {
    let cookie = "Cookie: a=1\r\n";
    let cases = [
        ("", "/a", cookie.to_owned(), true),
        ("", "/b", cookie.to_owned(), false),
        ("", "/a", String::new(), false),
        ("", "/a", "Cookie: a=2\r\n".to_owned(), false),
        ("", "/a", format!("{cookie}Range: bytes=0-1\r\n"), false),
        ("", "/a", format!("{cookie}If-None-Match: x\r\n"), false),
        (
            "",
            "/a",
            format!("{cookie}Cache-Control: no-cache\r\n"),
            false,
        ),
        (
            "",
            "/a",
            format!("{cookie}Origin: http://app.intranet\r\n"),
            false,
        ),
        (
            "",
            "/a",
            format!("{cookie}Sec-Fetch-Site: cross-site\r\n"),
            false,
        ),
        (
            "",
            "/a",
            format!("{cookie}Sec-Fetch-Site: same-origin\r\n"),
            true,
        ),
        (
            "Vary: Accept-Language\r\n",
            "/a",
            format!("{cookie}Accept-Language: en\r\n"),
            true,
        ),
        ("Vary: Accept-Language\r\n", "/a", cookie.to_owned(), false),
        ("Vary: *\r\n", "/a", cookie.to_owned(), false),
        ("Set-Cookie: b=1\r\n", "/a", cookie.to_owned(), false),
        ("Cache-Control: no-store\r\n", "/a", cookie.to_owned(), true),
    ];
    for (fields, target, asked, answered) in cases {
        let (mut store, now) = filled(fields);
        let got = store.ask(now, &0, &request(target, &asked));
        assert_eq!(
            matches!(got, Asked::Ready(_)),
            answered,
            "{fields} {target} {asked}"
        );
    }
    let (mut store, now) = filled("");
    let asked = request("/a", cookie);
    assert_eq!(store.ask(now, &1, &asked), Asked::Absent, "another host's");
    let Asked::Ready(answer) = store.ask(now, &0, &asked) else {
        panic!("it is there");
    };
    assert!(answer.bytes.ends_with(b"\r\n\r\nxx") && !answer.close);
    assert_eq!(store.ask(now, &0, &asked), Asked::Absent, "once");
    assert_eq!((store.bytes(), store.figures().used), (0, 1));
}

#[test]
fn hosts_of_one_address_have_objects_of_their_own() {
    let (mut store, now) = (Store::default(), start());
    for host in ["h", "g"] {
        let page = store.begin(0, request_of(host, "/", ""));
        assert!(store.on_frame(now, page, promise(1, "/a")));
        assert!(store.on_frame(now, page, head(1, &format!("X: {host}\r\n"))));
        assert!(store.on_frame(now, page, data(1, 2)));
        let close = Closing::Open;
        assert!(store.on_frame(now, page, Frame::End { id: 1, close }));
    }
    for host in ["g", "h"] {
        let Asked::Ready(answer) = store.ask(now, &0, &request_of(host, "/a", "")) else {
            panic!("{host} has one");
        };
        let text = String::from_utf8(answer.bytes.to_vec()).unwrap();
        assert!(text.contains(&format!("X: {host}\r\n")), "{text}");
    }
    assert_eq!(store.figures().wasted_bytes, 0);
}

#[test]
fn an_object_that_nobody_wants_is_dropped_after_a_minute() {
    let (mut store, now) = filled("");
    store.sweep(now + LIFE - Duration::from_millis(1));
    assert!(store.bytes() > 0);
    let asked = request("/a", "Cookie: a=1\r\n");
    assert_eq!(store.ask(now + LIFE, &0, &asked), Asked::Absent);
    assert_eq!((store.bytes(), store.figures().expired), (0, 1));
}

/// An object of whose page something has come last at `moment`, the first bytes of one of its objects included.
fn promised(moment: Instant) -> Asked {
    Asked::Promised {
        moved: moment,
        turned: moment,
        endless: None,
    }
}

#[test]
fn a_promise_holds_its_request_until_it_is_kept_or_not() {
    let asked = request("/a", "");
    for failure in [Some(Frame::Failed { id: 1 }), None] {
        let (mut store, now) = (Store::default(), start());
        let page = store.begin(0, request("/", ""));
        assert!(store.on_frame(now, page, promise(1, "/a")));
        assert_eq!(store.ask(now, &0, &asked), promised(now));
        assert!(store.on_frame(now, page, head(1, "")));
        assert_eq!(store.ask(now, &0, &asked), promised(now));
        match failure {
            Some(failure) => assert!(store.on_frame(now, page, failure)),
            None => store.end(page),
        }
        assert_eq!(store.ask(now, &0, &asked), Asked::Absent);
        assert_eq!((store.bytes(), store.figures().failed), (0, 1));
    }
}

#[test]
fn who_waits_hears_when_something_has_come_last() {
    let (mut store, start) = (Store::default(), start());
    let page = store.begin(0, request("/", ""));
    let at = |seconds| start + Duration::from_secs(seconds);
    assert!(store.on_frame(at(0), page, promise(1, "/a")));
    assert!(store.on_frame(at(1), page, promise(2, "/b")));
    assert!(store.on_frame(at(1), page, promise(3, "/c")));
    let moments =
        |store: &mut Store<u8>, target: &str| match store.ask(at(9), &0, &request(target, "")) {
            Asked::Promised { moved, turned, .. } => {
                [moved, turned].map(|it| (it - start).as_secs())
            }
            other => panic!("{other:?}"),
        };
    assert_eq!(
        moments(&mut store, "/a"),
        [1, 1],
        "another promise of the page"
    );
    assert!(store.on_frame(at(2), page, head(1, "")));
    assert!(store.on_frame(at(4), page, head(2, "")));
    assert_eq!(
        moments(&mut store, "/a"),
        [2, 2],
        "that of another is none of it"
    );
    let more = |id| Frame::Data {
        id,
        bytes: Bytes::from_static(b"more"),
    };
    assert!(store.on_frame(at(5), page, more(1)));
    assert_eq!(moments(&mut store, "/a"), [5, 5]);
    // What goes on and on brings nobody's turn nearer.
    assert_eq!(moments(&mut store, "/c"), [5, 4]);
    assert!(store.on_frame(at(6), page, Frame::Failed { id: 2 }));
    assert!(store.on_frame(at(7), page, more(1)));
    assert_eq!(moments(&mut store, "/c"), [7, 6]);
}

#[test]
fn who_waits_hears_since_when_an_object_comes_that_may_never_end() {
    let page = request("/", "");
    for (fields, endless) in [
        ("Content-Length: 9\r\n", false),
        ("Transfer-Encoding: chunked\r\n", true),
        ("", true),
    ] {
        let (mut store, start) = (Store::default(), start());
        let at = |seconds| start + Duration::from_secs(seconds);
        let page = store.begin(0, page.clone());
        let since = |store: &mut Store<u8>| match store.ask(at(9), &0, &request("/a", "")) {
            Asked::Promised { endless, .. } => endless,
            other => panic!("{other:?}"),
        };
        assert!(store.on_frame(at(0), page, promise(1, "/a")));
        assert_eq!(since(&mut store), None, "nothing has come");
        let bytes = format!("HTTP/1.1 200 OK\r\n{fields}\r\n").into();
        assert!(store.on_frame(at(1), page, Frame::Head { id: 1, bytes }));
        assert!(store.on_frame(at(2), page, data(1, 2)));
        assert_eq!(since(&mut store), endless.then_some((at(1), 1)), "{fields}");
        assert!(store.on_frame(at(2), page, promise(2, "/b")));
        let bytes = "HTTP/1.1 200 OK\r\n\r\n".into();
        assert!(store.on_frame(at(3), page, Frame::Head { id: 2, bytes }));
        assert_eq!(since(&mut store), endless.then_some((at(1), 2)), "{fields}");
    }
}

#[test]
fn nobody_waits_for_what_is_not_for_him() {
    let (mut store, now) = (Store::default(), start());
    let page = store.begin(0, request("/", ""));
    store.on_frame(now, page, promise(1, "/a"));
    let asked = request("/a", "Accept: image/*\r\n");
    assert_eq!(store.ask(now, &0, &asked), promised(now));
    store.on_frame(now, page, head(1, "Vary: Accept\r\n"));
    assert_eq!(
        store.ask(now, &0, &asked),
        Asked::Absent,
        "the head says so"
    );
    store.on_frame(now, page, data(1, 2));
    assert_eq!((store.bytes(), store.figures().unequal), (0, 1));
}

#[test]
fn promises_that_break_the_protocol_are_refused() {
    let (mut store, now) = (Store::default(), start());
    let page = store.begin(0, request("/", ""));
    assert!(store.on_frame(now, page, promise(5, "/a")));
    let promised = store.bytes();
    for frame in [
        promise(5, "/b"),
        promise(4, "/b"),
        promise(MAX_OBJECTS + 1, "/b"),
        promise(6, "no path"),
        promise(6, "/a\r\nX: y"),
        Frame::Request(Bytes::new()),
    ] {
        assert!(!store.on_frame(now, page, frame.clone()), "{frame:?}");
    }
    assert!(
        store.on_frame(now, page, data(9, 100)),
        "of nothing promised: not kept"
    );
    assert_eq!(store.bytes(), promised);
    store.end(page);
    assert_eq!(store.bytes(), 0);
}

#[test]
fn a_byte_of_an_object_holds_no_more_than_itself() {
    let (mut store, now) = (Store::default(), start());
    let page = store.begin(0, request("/", ""));
    store.on_frame(now, page, promise(1, "/a"));
    store.on_frame(now, page, head(1, ""));
    for _ in 0..2 {
        // What was read of the stream in one go, in which a byte of the object stands.
        let read = Bytes::from(vec![b'x'; 16 * 1024]);
        let bytes = read.slice(100..101);
        store.on_frame(now, page, Frame::Data { id: 1, bytes });
        assert!(read.is_unique(), "the store holds all of it");
    }
    let close = Closing::Open;
    store.on_frame(now, page, Frame::End { id: 1, close });
    let Asked::Ready(answer) = store.ask(now, &0, &request("/a", "")) else {
        panic!("it is there");
    };
    assert!(answer.bytes.ends_with(b"\r\n\r\nxx"));
}

#[test]
fn no_server_fills_the_store() {
    let (mut store, now) = (Store::default(), start());
    for owner in 0..20 {
        let page = store.begin(owner, request("/", ""));
        for id in 1..=MAX_OBJECTS {
            store.on_frame(now, page, promise(id, &format!("/{id}")));
            for _ in 0..MAX_OBJECT / (1 << 20) + 1 {
                store.on_frame(now, page, data(id, 1 << 20));
                assert!(store.bytes() <= MAX_STORED);
            }
            store.on_frame(
                now,
                page,
                Frame::End {
                    id,
                    close: Closing::Open,
                },
            );
        }
        store.end(page);
    }
    store.sweep(now + LIFE);
    assert_eq!(store.bytes(), 0);
}

#[test]
fn memory_is_counted_and_not_length_alone() {
    let (mut store, now) = (Store::default(), start());
    let cookie = format!("Cookie: {}\r\n", "x".repeat(8000));
    let page = store.begin(0, request("/", &cookie));
    store.on_frame(now, page, promise(1, "/a"));
    assert!(
        store.bytes() > 2 * 8000,
        "the assumed request, and its fields"
    );
    let before = store.bytes();
    store.on_frame(now, page, head(1, ""));
    let length = 100_000;
    for _ in 0..length / 1000 {
        store.on_frame(now, page, data(1, 1000));
    }
    let room: u64 = store
        .objects
        .values()
        .map(|one| one.bytes.capacity() as u64)
        .sum();
    assert!(room > length as u64 + 1000, "room for more: {room}");
    assert_eq!(store.bytes(), before + room);
    let close = Closing::Open;
    store.on_frame(now, page, Frame::End { id: 1, close });
    let whole: u64 = store.objects.values().map(Object::size).sum();
    assert!(
        store.bytes() <= before + whole + 1000,
        "{} held",
        store.bytes()
    );
}

#[test]
fn no_server_fills_the_store_with_objects_without_bytes() {
    let (mut store, now) = (Store::default(), start());
    let cookie = format!("Cookie: {}\r\n", "x".repeat(15_000));
    for owner in 0..200_u8 {
        let page = store.begin(owner, request("/", &cookie));
        for id in 1..=MAX_OBJECTS {
            assert!(store.on_frame(now, page, promise(id, &format!("/{id}"))));
            store.on_frame(now, page, head(id, ""));
            let close = Closing::Open;
            store.on_frame(now, page, Frame::End { id, close });
            assert!(store.bytes() <= MAX_STORED);
        }
        store.end(page);
    }
    assert!(store.figures().failed > 0, "there was room for all");
    store.sweep(now + LIFE);
    assert_eq!((store.bytes(), store.objects.len()), (0, 0));
}

/// Pages, frames and requests in any order: the account is kept, and what comes out is whole.
#[test]
fn in_any_order_bytes_are_whole_and_counted() {
    for seed in 0..300 {
        let mut random = Pcg32::seed_from_u64(seed);
        let mut draw = |below: u32| random.next_u32() % below;
        let (mut store, mut now) = (Store::<u8>::default(), start());
        let mut pages: Vec<_> = (0..2)
            .map(|one| store.begin(one, request("/", "")))
            .collect();
        for step in 0..200 {
            now += Duration::from_millis(u64::from(draw(1500)));
            let page = pages[draw(2) as usize];
            let id = u64::from(draw(6)) + 1;
            let target = format!("/{}", draw(4));
            let frame = match draw(7) {
                0 => promise(id, &target),
                1 => head(id, ""),
                2 => data(id, draw(9) as usize),
                3 => Frame::End {
                    id,
                    close: Closing::Open,
                },
                4 => Frame::Failed { id },
                5 if step % 50 == 0 => {
                    pages.into_iter().for_each(|page| store.end(page));
                    pages = (0..2)
                        .map(|one| store.begin(one, request("/", "")))
                        .collect();
                    continue;
                }
                _ => {
                    let owner = u8::try_from(draw(2)).unwrap();
                    if let Asked::Ready(answer) = store.ask(now, &owner, &request(&target, "")) {
                        assert!(answer.bytes.starts_with(b"HTTP/1.1 200"), "{seed}");
                    }
                    continue;
                }
            };
            store.on_frame(now, page, frame);
            let held: u64 = store.objects.values().map(Object::held).sum();
            assert_eq!(store.bytes(), held, "{seed}");
        }
        pages.into_iter().for_each(|page| store.end(page));
        store.sweep(now + LIFE);
        assert_eq!((store.bytes(), store.objects.len()), (0, 0), "{seed}");
    }
}

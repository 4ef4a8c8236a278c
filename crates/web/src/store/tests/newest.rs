//! Objects of which there are two, and those that are waited for too long: a browser is given no answer that is older than another one.

use super::*;

/// Brings all of `/a`, whose body is `body`, for a page that is asked for now.
fn bring(store: &mut Store<u8>, now: Instant, body: &'static [u8]) {
    let page = store.begin(0, request("/", ""));
    let end = Frame::End {
        id: 1,
        close: Closing::Open,
    };
    let bytes = Bytes::from_static(body);
    for frame in [
        promise(1, "/a"),
        head(1, ""),
        Frame::Data { id: 1, bytes },
        end,
    ] {
        assert!(store.on_frame(now, page, frame));
    }
    store.end(page);
}

#[test]
fn a_page_that_is_loaded_again_is_given_what_is_new() {
    let (mut store, now) = (Store::default(), start());
    bring(&mut store, now, b"xx");
    let older = store.figures();
    bring(&mut store, now + Duration::from_secs(5), b"yy");
    let later = now + Duration::from_secs(6);
    let Asked::Ready(answer) = store.ask(later, &0, &request("/a", "")) else {
        panic!("it is there");
    };
    assert!(answer.bytes.ends_with(b"yy"), "the older answer");
    let figures = store.figures();
    assert_eq!((older.expired, figures.expired), (0, 1));
    assert_eq!(figures.wasted_bytes, figures.used_bytes);
    assert_eq!(store.bytes(), 0);
}

#[test]
fn of_two_pages_that_are_loaded_at_one_time_the_first_ones_object_answers() {
    let (mut store, now) = (Store::default(), start());
    let pages = [0; 2].map(|owner| store.begin(owner, request("/", "")));
    for page in pages {
        assert!(store.on_frame(now, page, promise(1, "/a")));
        assert!(store.on_frame(now, page, head(1, "")));
        assert!(store.on_frame(now, page, data(1, 2)));
    }
    let close = Closing::Open;
    assert!(store.on_frame(now, pages[0], Frame::End { id: 1, close }));
    let got = store.ask(now, &0, &request("/a", ""));
    assert!(matches!(got, Asked::Ready(_)), "{got:?}");
    assert_eq!(store.figures().expired, 0);
}

#[test]
fn what_was_given_up_answers_nobody_when_it_comes_after_all() {
    let (mut store, now) = (Store::default(), start());
    let page = store.begin(0, request("/", ""));
    assert!(store.on_frame(now, page, promise(1, "/a")));
    assert!(store.on_frame(now, page, head(1, "")));
    let asked = request("/a", "");
    store.give_up(&1, &asked);
    assert_eq!(store.figures().failed, 0, "another host's");
    store.give_up(&0, &asked);
    store.give_up(&0, &asked);
    assert_eq!(store.bytes(), 0);
    assert!(store.on_frame(now, page, data(1, 2)));
    let close = Closing::Open;
    assert!(store.on_frame(now, page, Frame::End { id: 1, close }));
    assert_eq!(store.ask(now, &0, &asked), Asked::Absent);
    let figures = store.figures();
    assert_eq!((figures.failed, figures.used, store.bytes()), (1, 0, 0));
    assert!(figures.wasted_bytes > 2);
}

#[test]
fn a_reload_takes_nothing_that_was_there_before_it() {
    let asked = request("/a", "Cache-Control: max-age=3\r\n");
    for (seconds, taken) in [(0, true), (13, true), (14, false)] {
        let (mut store, now) = (Store::default(), start());
        bring(&mut store, now, b"xx");
        let later = now + Duration::from_secs(seconds);
        let got = store.ask(later, &0, &asked);
        assert_eq!(matches!(got, Asked::Ready(_)), taken, "{seconds} s");
        assert_eq!(store.bytes(), 0);
    }
}

//! Heads that browsers take although RFC 9112 does not: who asks on behind such an answer waits for nothing.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bentpipe_testbed::peer::{payload, read_exactly};
use bentpipe_testbed::privileged;

use super::browser::{Browser, get};
use super::cases::on_both;
use super::origin::answer;
use super::sealed::{AS_IT_SHOULD_BE, Sealed};
use super::speech::Speech;

/// Time within which whoever asks on hears something: a round trip, and the machine's own time.
const SOON: Duration = Duration::from_secs(5);

/// Body of an answer.
pub(super) const ODD: &[u8] = b"an odd one";

/// Heads that tell where the answer ends, and behind which the connection goes on.
pub(super) const TOLD: [&str; 3] = ["blank", "folded", "many"];

/// Answer of the origin below `/odd/`.
pub(super) fn odd_answer(kind: &str) -> Vec<u8> {
    let length = ODD.len();
    let (fields, body) = match kind {
        "blank" => (format!("Content-Length : {length}\r\n"), ODD.to_vec()),
        "folded" => (
            format!("X: a\r\n b\r\nContent-Length: {length}\r\n"),
            ODD.to_vec(),
        ),
        "many" => {
            let many: String = (0..120).map(|n| format!("X-{n}: a\r\n")).collect();
            (format!("{many}Content-Length: {length}\r\n"), ODD.to_vec())
        }
        "both" => {
            let chunks = [b"A\r\n", ODD, b"\r\n0\r\n\r\n"].concat();
            let fields = "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n";
            (fields.to_owned(), chunks)
        }
        "pause" => (String::new(), payload(1000)),
        // A line that no program knows what to do with.
        _ => (
            format!("in-house web server\r\nContent-Length: {length}\r\n"),
            ODD.to_vec(),
        ),
    };
    let head = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
    [head.into_bytes(), body].concat()
}

/// Asks for an answer of this kind, and hears all of it.
fn hear(browser: &Browser, kind: &str) -> Result<Speech> {
    let mut stream = browser.connect()?;
    let target = format!("/odd/{kind}");
    stream.write_all(get(&target, "").as_bytes())?;
    let expected = odd_answer(kind);
    let heard = read_exactly(&mut stream, expected.len())?;
    ensure!(heard == expected, "{kind}: another answer");
    Ok(stream)
}

/// Asks for more on a connection, or by another one if that ends in order; says whether it did.
fn ask_on(browser: &Browser, stream: &mut Speech, kind: &str) -> Result<bool> {
    let (head, began) = (get("/o/1", ""), Instant::now());
    stream.write_all(head.as_bytes())?;
    let expected = answer(&head);
    let mut first = [0; 1];
    let ended = stream.read(&mut first)? == 0;
    let took = began.elapsed();
    ensure!(took < SOON, "{kind}: the next request waited for {took:?}");
    let heard = match ended {
        false => {
            let rest = read_exactly(stream, expected.len() - 1)?;
            [&first[..], &rest].concat()
        }
        true => {
            let mut other = browser.connect()?;
            other.write_all(head.as_bytes())?;
            read_exactly(&mut other, expected.len())?
        }
    };
    ensure!(heard == expected, "{kind}: another answer behind it");
    Ok(ended)
}

fn odd_heads_hold_up_nobody(browser: &Browser) -> Result<()> {
    for kind in TOLD {
        let ended = ask_on(browser, &mut hear(browser, kind)?, kind)?;
        ensure!(!ended, "{kind}: the connection ended");
    }
    let ended = ask_on(browser, &mut hear(browser, "line")?, "line")?;
    ensure!(
        ended,
        "the connection went on behind an end that was guessed"
    );
    let (mut stream, began) = (hear(browser, "both")?, Instant::now());
    ensure!(stream.read(&mut [0; 1])? == 0, "more than was asked for");
    let took = began.elapsed();
    ensure!(took < SOON, "the end of two lengths took {took:?}");
    Ok(())
}

#[test]
fn who_asks_on_behind_an_odd_head_is_answered() {
    on_both("odd heads", Duration::ZERO, |_, _, browser| {
        odd_heads_hold_up_nobody(browser)
    });
}

#[test]
fn who_asks_on_behind_an_odd_head_of_a_sealed_page_is_answered() {
    if privileged("odd heads behind an origin") {
        Sealed::start(&AS_IT_SHOULD_BE)
            .expect("a site")
            .run(|it| odd_heads_hold_up_nobody(&it.browser));
    }
}

#[test]
fn an_answer_that_pauses_is_whole_though_more_was_asked_for() {
    on_both("an answer that pauses", Duration::ZERO, |_, _, browser| {
        let words = get("/odd/pause", "") + &get("/o/1", "");
        let (bytes, _) = browser.hear(words.as_bytes())?;
        ensure!(bytes == odd_answer("pause"), "{} bytes", bytes.len());
        Ok(())
    });
}

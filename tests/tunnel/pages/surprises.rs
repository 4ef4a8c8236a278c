//! Responses that nobody has asked for: none passes for the answer to the next request.

use std::io::Write as _;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use bentpipe_testbed::peer::read_exactly;
use bentpipe_testbed::privileged;

use super::browser::{Browser, get};
use super::cases::{BOTH, as_it_is, on_site};
use super::origin::answer;
use super::sealed::{AS_IT_SHOULD_BE, Sealed};

/// Asks for a target that the origin says more behind, while the connection waits, and then for others.
fn expect_answers(browser: &Browser) -> Result<()> {
    let mut stream = browser.connect()?;
    for target in ["/surprise", "/o/1", "/surprise", "/redirect", "/o/2"] {
        let head = get(target, "");
        let expected = answer(&head);
        stream.write_all(head.as_bytes())?;
        let heard = read_exactly(&mut stream, expected.len())?;
        let begins = String::from_utf8_lossy(&heard[..heard.len().min(200)]);
        ensure!(heard == expected, "{target}: {begins:?}");
        thread::sleep(Duration::from_secs(1));
    }
    Ok(())
}

#[test]
fn what_an_origin_says_unasked_answers_no_request() {
    for over in BOTH {
        on_site(
            "responses that nobody asked for",
            over,
            as_it_is,
            Duration::ZERO,
            |_, _, browser| expect_answers(browser),
        );
    }
}

#[test]
fn what_a_web_server_says_unasked_answers_no_request_of_a_sealed_page() {
    if !privileged("unasked responses behind an origin") {
        return;
    }
    Sealed::start(&AS_IT_SHOULD_BE)
        .expect("a site")
        .run(|it| expect_answers(&it.browser));
}

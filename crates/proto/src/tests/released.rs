//! Test vectors of releases that are in use, which no change of the code and its page may break.

use crate::tunnel::{ALPN, VERSION};

use super::vectors::{bytes, hex};

/// The vector called `name` among those of `text`.
pub(crate) fn find(text: &str, name: &str) -> Option<Vec<u8>> {
    let section = text.split_once(&format!("\n**{name}**"))?.1;
    let block = section.split("```").nth(1).expect("a code block");
    let digits = block.trim_start_matches("text").split_whitespace();
    Some(bytes(&digits.collect::<String>()))
}

/// Appendices of the releases that are in use; CONTRIBUTING.md says when one is added.
const RELEASED: [(&str, &str); 1] = [("0.1.0", include_str!("released/0.1.0.txt"))];

/// Peers of a release understand what is `encoded`, for they wrote the same.
pub(crate) fn check(name: &str, encoded: &[u8]) {
    for (release, text) in RELEASED {
        if let Some(written) = find(text, name) {
            assert_eq!(
                hex(encoded),
                hex(&written),
                "{name}: {release} writes (right), and reads, something else than today's code"
            );
        }
    }
}

/// No vector of a release is left out, and the handshake is that of version 1.
#[test]
fn releases_are_held_to_their_word() {
    let names = |text: &'static str| text.lines().filter_map(|line| line.strip_prefix("**"));
    let here = include_str!("vectors.rs");
    for (release, text) in RELEASED {
        assert!(names(text).count() > 20, "{release}");
        for line in names(text) {
            let name = line.split("**").next().expect("a name");
            assert!(here.contains(&format!("\"{name}\"")), "{release}: {name}");
        }
    }
    assert_eq!((ALPN, VERSION), (b"bentpipe/1".as_slice(), 1));
}

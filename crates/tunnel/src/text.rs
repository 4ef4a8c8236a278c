//! Text that somebody else wrote, for logs and `status`.

use std::fmt::Display;

/// Longest text of a peer's that is repeated, in bytes, before the mark that something was left out.
const MOST: usize = 128;

/// Text of a peer's as one line of at most 128 bytes and a mark: control characters, line ends and what cannot be printed are escaped.
#[must_use]
pub fn printable(text: impl Display) -> String {
    let text = text.to_string();
    let mut shown = String::with_capacity(text.len().min(MOST));
    for character in text.chars() {
        let escaped = character.escape_debug();
        // Quotation marks harm nothing outside of a literal.
        let plain = matches!(character, '\'' | '"');
        let length = if plain {
            1
        } else {
            escaped.clone().map(char::len_utf8).sum()
        };
        if shown.len() + length > MOST {
            shown.push('…');
            break;
        }
        if plain {
            shown.push(character);
        } else {
            shown.extend(escaped);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_line_and_moves_no_cursor() {
        let forged = "bye\n2026-11-25T09:00:00Z  INFO ready\r\t\x1b[2J\u{9b}31m\u{202e}\0 don't";
        assert_eq!(
            printable(forged),
            "bye\\n2026-11-25T09:00:00Z  INFO ready\\r\\t\\u{1b}[2J\\u{9b}31m\\u{202e}\\0 don't"
        );
        assert_eq!(printable("Grüße, 世界"), "Grüße, 世界");
    }

    #[test]
    fn a_text_is_cut_where_a_character_ends() {
        assert_eq!(printable("x".repeat(MOST)), "x".repeat(MOST));
        for (text, length) in [
            ("x", 128),
            ("é", 128),
            ("世", 126),
            ("\n", 128),
            ("\u{1b}", 126),
        ] {
            let shown = printable(text.repeat(1000));
            let shown = shown.strip_suffix('…').expect("something was left out");
            assert_eq!(shown.len(), length, "{text:?}");
        }
    }
}

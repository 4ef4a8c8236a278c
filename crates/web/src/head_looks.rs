//! Looks at a head that comes in pieces: each look is at all of it from its beginning, so there are few.

use crate::{MAX_PIECES, MAX_RESPONSE};

/// Treatment of bytes that begin with a response's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadLook {
    /// More has to come first.
    Wait,
    /// The bytes are to be looked at.
    Now,
    /// Bytes that have been looked at too often are no head.
    Over,
}

/// Looks at one response's head so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadLooks {
    looks: usize,
    /// Bytes in which the end of the head was looked for.
    seen: usize,
}

impl HeadLooks {
    /// Treatment of `unread`, of which more has come. The first pieces of a head show what it is; if there are many, the rest is
    /// looked at when it ends.
    pub fn next(&mut self, unread: &[u8]) -> HeadLook {
        let new = &unread[self.seen.saturating_sub(3).min(unread.len())..];
        let ends =
            new.windows(2).any(|it| it == b"\n\n") || new.windows(3).any(|it| it == b"\n\r\n");
        self.seen = unread.len();
        if unread.is_empty() || self.looks >= MAX_PIECES && !ends && unread.len() < MAX_RESPONSE {
            return HeadLook::Wait;
        }
        self.looks += 1;
        match self.looks {
            // Empty lines before a head look like its end.
            looks if looks > 2 * MAX_PIECES => HeadLook::Over,
            _ => HeadLook::Now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Response;

    /// Looks at `text`, which comes byte by byte, until it is whole or given up.
    fn looks(text: &str) -> (usize, HeadLook) {
        let (mut looks, mut count) = (HeadLooks::default(), 0);
        for end in 0..=text.len() {
            match looks.next(&text.as_bytes()[..end]) {
                HeadLook::Wait => {}
                HeadLook::Now => {
                    count += 1;
                    if !matches!(Response::parse(&text.as_bytes()[..end]), Ok(None)) {
                        return (count, HeadLook::Now);
                    }
                }
                HeadLook::Over => return (count, HeadLook::Over),
            }
        }
        (count, HeadLook::Wait)
    }

    #[test]
    fn a_head_in_many_pieces_is_seen_when_it_ends_and_few_times_before() {
        let long = "x".repeat(60_000);
        for end in ["\r\n\r\n", "\n\n", "\r\n\n", "\n\r\n"] {
            let head = format!("HTTP/1.1 200 OK\r\nA: {long}{end}");
            assert_eq!(looks(&head), (MAX_PIECES + 1, HeadLook::Now), "{end:?}");
        }
        assert_eq!(looks("HTTP/1.1 200 OK\r\n\r\n").1, HeadLook::Now);
        assert_eq!(looks("220 ftp\r\n").1, HeadLook::Now, "it is none");
        let endless = format!("HTTP/1.1 200 OK\r\nA: {}", "x".repeat(MAX_RESPONSE));
        assert_eq!(looks(&endless), (MAX_PIECES + 1, HeadLook::Now), "too long");
        let lines = "\r\n".repeat(30_000);
        assert_eq!(looks(&lines), (2 * MAX_PIECES, HeadLook::Over));
    }
}

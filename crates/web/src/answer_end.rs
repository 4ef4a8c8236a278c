//! Ends of answers that their heads do not tell: a browser may know such an end all the same, and ask on.

use crate::{Body, Response};

/// End of an answer that a browser is given while it comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnswerEnd {
    /// Nothing of the answer has come.
    #[default]
    Unbegun,
    /// The head says where the body ends.
    Told,
    /// The end of the connection is that of the body, as far as the head can be read.
    Untold,
    /// The same, of an answer that further requests were waiting for when it began: what else is asked says nothing of its end.
    Pipelined,
}

impl AnswerEnd {
    /// Takes in the next bytes of the answer, which are a `head` or others; `asked_on` is true if the browser has asked for more already.
    pub fn on_bytes(&mut self, head: Option<&[u8]>, asked_on: impl FnOnce() -> bool) {
        let response = head.and_then(|head| Response::parse(head).ok().flatten());
        *self = match (*self, response) {
            (now, Some((response, _))) if response.is_interim() => now,
            (_, Some((response, _))) if response.body() != Body::UntilClose => Self::Told,
            (Self::Unbegun, _) if asked_on() => Self::Pipelined,
            (Self::Unbegun, _) => Self::Untold,
            (now, _) => now,
        };
    }

    /// True if a browser that asks on now has seen an end that nobody else has.
    #[must_use]
    pub fn is_untold(self) -> bool {
        self == Self::Untold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_that_asks_on_has_seen_an_end_that_the_head_does_not_tell() {
        let ok = "HTTP/1.1 200 OK\r\n";
        let (told, open) = (
            format!("{ok}Content-Length: 9\r\n\r\n"),
            format!("{ok}\r\n"),
        );
        let hints = "HTTP/1.1 103 Hints\r\n\r\n".to_owned();
        let cases: [(&[Option<&String>], bool, AnswerEnd); 7] = [
            (&[], false, AnswerEnd::Unbegun),
            (&[Some(&hints)], false, AnswerEnd::Unbegun),
            (&[Some(&hints), Some(&told), None], false, AnswerEnd::Told),
            (&[Some(&told), None], true, AnswerEnd::Told),
            (&[Some(&open), None], false, AnswerEnd::Untold),
            (&[Some(&open), None], true, AnswerEnd::Pipelined),
            // What is no head that can be read comes without one.
            (&[None], false, AnswerEnd::Untold),
        ];
        for (pieces, asked_on, expected) in cases {
            let mut end = AnswerEnd::default();
            for (number, head) in pieces.iter().enumerate() {
                // What is asked later changes nothing.
                end.on_bytes(head.map(String::as_bytes), || asked_on || number > 1);
            }
            assert_eq!(end, expected, "{pieces:?}");
        }
    }
}

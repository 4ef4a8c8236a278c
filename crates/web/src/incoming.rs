//! One response as it comes from an origin: heads, and the body up to its end.

use bytes::{Bytes, BytesMut};

use crate::{Body, BodyReader, MAX_DATA, MAX_INTERIM, Malformed, Response};

/// Part of a response.
#[derive(Debug)]
pub enum Part {
    /// Head of an interim response.
    Interim(Bytes),
    /// Head of the response.
    Head(Response, Bytes),
    /// Bytes of the body as they cross, and what they hold without chunks.
    Body(Bytes, Vec<u8>),
    /// The body is whole; true if the connection ends with it.
    End(bool),
}

/// Place in a response.
enum Within {
    /// Before the final head; so many interim ones have come.
    Heads(usize),
    /// Reader of the body, whether the connection ends with it, and whether it ends with the connection.
    Body(BodyReader, bool, bool),
    Over,
}

/// Reader of one response out of a connection's bytes.
pub struct Incoming(Within);

impl Default for Incoming {
    fn default() -> Self {
        Self(Within::Heads(0))
    }
}

impl Incoming {
    /// Takes the next part off `unread`; `None`: more bytes are needed, or the response is over. What is no response, or has no
    /// end that can be told, is the body of one that ends with the connection.
    pub fn read(&mut self, unread: &mut BytesMut) -> Option<Part> {
        match self.try_read(unread) {
            Ok(part) => part,
            Err(Malformed) => {
                // Of a body whose end was to be told bytes may be missing.
                let open = matches!(self.0, Within::Heads(_));
                self.0 = Within::Body(BodyReader::new(Body::UntilClose), true, open);
                self.try_read(unread).unwrap_or_default()
            }
        }
    }

    fn try_read(&mut self, unread: &mut BytesMut) -> Result<Option<Part>, Malformed> {
        match &mut self.0 {
            Within::Heads(interim) => {
                let Some((response, used)) = Response::parse(unread)? else {
                    return Ok(None);
                };
                if response.is_interim() && *interim == MAX_INTERIM {
                    return Err(Malformed);
                }
                let head = unread.split_to(used).freeze();
                if response.is_interim() {
                    *interim += 1;
                    return Ok(Some(Part::Interim(head)));
                }
                let reader = BodyReader::new(response.body());
                let open = response.body() == Body::UntilClose;
                self.0 = Within::Body(reader, response.closes(), open);
                Ok(Some(Part::Head(response, head)))
            }
            Within::Body(reader, closes, _) if reader.is_done() => {
                let closes = *closes;
                self.0 = Within::Over;
                Ok(Some(Part::End(closes)))
            }
            Within::Body(reader, ..) => {
                let (mut payload, piece) = (Vec::new(), unread.len().min(MAX_DATA));
                if piece == 0 {
                    return Ok(None);
                }
                let held = |bytes: &[u8]| payload.extend_from_slice(bytes);
                let used = reader.read(&unread[..piece], held)?;
                Ok(Some(Part::Body(unread.split_to(used).freeze(), payload)))
            }
            Within::Over => Ok(None),
        }
    }

    /// The connection has ended; true if the response is whole with that.
    #[must_use]
    pub fn ends_here(&self) -> bool {
        match &self.0 {
            Within::Heads(_) => false,
            Within::Body(_, _, open) => *open,
            Within::Over => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kinds of the parts that `bytes` have, in pieces of `size`, and the body.
    fn parts(bytes: &[u8], size: usize) -> (String, Vec<u8>) {
        let (mut incoming, mut unread) = (Incoming::default(), BytesMut::new());
        let (mut kinds, mut body) = (String::new(), Vec::new());
        for piece in bytes.chunks(size) {
            unread.extend_from_slice(piece);
            while let Some(part) = incoming.read(&mut unread) {
                let kind = match part {
                    Part::Interim(_) => 'i',
                    Part::Head(..) => 'h',
                    Part::Body(_, payload) => {
                        body.extend(payload);
                        continue;
                    }
                    Part::End(closes) => {
                        if closes {
                            'c'
                        } else {
                            'e'
                        }
                    }
                };
                kinds.push(kind);
            }
        }
        (kinds, body)
    }

    #[test]
    fn parts_come_in_their_order_however_they_are_cut() {
        for (text, kinds, body) in [
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
                "he",
                "abc",
            ),
            (
                "HTTP/1.1 103 E\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
                "ihe",
                "ab",
            ),
            ("HTTP/1.1 204 N\r\nConnection: close\r\n\r\n", "hc", ""),
            ("HTTP/1.1 200 OK\r\n\r\nabc", "h", "abc"),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz",
                "h",
                "xyz",
            ),
            ("no response\r\n", "", "no response\r\n"),
        ] {
            for size in [1, 5, 500] {
                let found = parts(text.as_bytes(), size);
                assert_eq!(
                    found,
                    (kinds.to_owned(), body.as_bytes().to_vec()),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn interim_responses_are_counted() {
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
        for (interim, kinds) in [(MAX_INTERIM, "he"), (MAX_INTERIM + 1, "")] {
            let text = "HTTP/1.1 103 E\r\n\r\n".repeat(interim) + answer;
            let (found, body) = parts(text.as_bytes(), 7);
            assert_eq!(found, "i".repeat(MAX_INTERIM) + kinds);
            // What is no response any more crosses as it is.
            let crosses = if kinds.is_empty() {
                text.len() - 18 * MAX_INTERIM
            } else {
                1
            };
            assert_eq!(body.len(), crosses);
        }
    }
}

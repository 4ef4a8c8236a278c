//! Frames of a page's stream (`PROTOCOL.md` §19.1): one request up, and down the page, promises and objects.
//!
//! Read from the tunnel, therefore from a peer that may be hostile: a length is refused before its bytes have come.

use bentpipe_proto::tunnel::varint;
use bytes::{Buf as _, Bytes, BytesMut};

/// Number that frames of a stream's own page have, and those of a relay (`PROTOCOL.md` §19).
pub const PAGE: u64 = 0;

/// Longest body of a frame, bytes: the head of a response, and its number.
pub const MAX_FRAME: usize = super::MAX_RESPONSE + 16;

/// Most payload that a sender puts into one DATA, bytes: a few milliseconds of a slow link.
pub const MAX_DATA: usize = 16 * 1024;

const REQUEST: u8 = 0;
const PROMISE: u8 = 2;
const HEAD: u8 = 3;
const DATA: u8 = 4;
const END: u8 = 5;
const FAILED: u8 = 6;
const TLS: u8 = 7;
const RELAY: u8 = 8;
const HUB: u8 = 9;
const READY: u8 = 10;

/// End of a connection that a response or a direction ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// None: the connection goes on.
    Open,
    /// In order: by FIN, in TLS behind close_notify.
    InOrder,
    /// In TLS by FIN alone, so that bytes may be missing and whoever gets them has to know.
    Cut,
}

impl Closing {
    /// True if the connection ends.
    #[must_use]
    pub fn closes(self) -> bool {
        self != Self::Open
    }
}

/// One frame. Object 0 is the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Client: head of the browser's request, as it came.
    Request(Bytes),
    /// Client: what follows is for a connection in TLS with the host of this name, in lower case; before all else.
    Tls(Bytes),
    /// Client: the browser says other things than a request that may be answered ahead: its bytes and the origin's follow as
    /// [`Self::Data`], [`Self::End`] and [`Self::Failed`] of object 0, both ways.
    Relay,
    /// Client: the server is the hub of a connection to the host of [`Self::Tls`]: it connects there, and once the name of a session
    /// stands here, asks for its key (`PROTOCOL.md` §21.5).
    Hub(Bytes),
    /// Server: proof that it has that key.
    Ready(Bytes),
    /// Server: object `id` will follow; the browser would ask for it by `target`.
    Promise {
        /// Number of the object, above those before.
        id: u64,
        /// Path and query.
        target: Bytes,
    },
    /// Server: head of a response, as it came; of the page also those of interim responses.
    Head {
        /// Number of the object.
        id: u64,
        /// Bytes up to the empty line.
        bytes: Bytes,
    },
    /// Server: bytes of a body as they crossed the origin's connection, chunks included.
    Data {
        /// Number of the object.
        id: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// Server: the response is whole.
    End {
        /// Number of the object.
        id: u64,
        /// End of the origin's connection, and so of the browser's.
        close: Closing,
    },
    /// Server: there is no response, or not all of it.
    Failed {
        /// Number of the object.
        id: u64,
    },
}

/// Fault in a peer's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A body is longer than [`MAX_FRAME`].
    #[error("a frame of {0} bytes")]
    TooLong(u64),
    /// No frame has this type.
    #[error("a frame of unknown type {0}")]
    Type(u8),
    /// A body that does not hold what its type says.
    #[error("a frame of type {0} with another body")]
    Body(u8),
}

impl Frame {
    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut number = Vec::with_capacity(8);
        let (kind, id, rest): (u8, Option<u64>, &[u8]) = match self {
            Self::Request(head) => (REQUEST, None, head),
            Self::Tls(name) => (TLS, None, name),
            Self::Relay => (RELAY, None, &[]),
            Self::Hub(session) => (HUB, None, session),
            Self::Ready(proof) => (READY, None, proof),
            Self::Promise { id, target } => (PROMISE, Some(*id), target),
            Self::Head { id, bytes } => (HEAD, Some(*id), bytes),
            Self::Data { id, bytes } => (DATA, Some(*id), bytes),
            Self::End { id, close } => {
                let close: &[u8] = match close {
                    Closing::Open => &[0],
                    Closing::InOrder => &[1],
                    Closing::Cut => &[2],
                };
                (END, Some(*id), close)
            }
            Self::Failed { id } => (FAILED, Some(*id), &[]),
        };
        if let Some(id) = id {
            varint::encode(id, &mut number);
        }
        out.push(kind);
        let length = number.len() + rest.len();
        varint::encode(u64::try_from(length).unwrap_or(varint::MAX), out);
        out.extend_from_slice(&number);
        out.extend_from_slice(rest);
    }

    /// Number of the object that the frame is about; what a client begins with is about none.
    #[must_use]
    pub fn id(&self) -> Option<u64> {
        match self {
            Self::Request(_) | Self::Tls(_) | Self::Relay | Self::Hub(_) | Self::Ready(_) => None,
            Self::Promise { id, .. }
            | Self::Head { id, .. }
            | Self::Data { id, .. }
            | Self::End { id, .. }
            | Self::Failed { id } => Some(*id),
        }
    }

    fn decode(kind: u8, mut body: Bytes) -> Result<Self, FrameError> {
        let fault = FrameError::Body(kind);
        match kind {
            REQUEST => return Ok(Self::Request(body)),
            TLS => return Ok(Self::Tls(body)),
            HUB => return Ok(Self::Hub(body)),
            READY => return Ok(Self::Ready(body)),
            RELAY if body.is_empty() => return Ok(Self::Relay),
            RELAY => return Err(fault),
            _ => {}
        }
        if !(PROMISE..=FAILED).contains(&kind) {
            return Err(FrameError::Type(kind));
        }
        let (id, used) = varint::decode(&body).ok_or(fault)?;
        body.advance(used);
        match kind {
            PROMISE if id > 0 => Ok(Self::Promise { id, target: body }),
            HEAD => Ok(Self::Head { id, bytes: body }),
            DATA => Ok(Self::Data { id, bytes: body }),
            END => match &body[..] {
                [0] => Ok(Self::End {
                    id,
                    close: Closing::Open,
                }),
                [1] => Ok(Self::End {
                    id,
                    close: Closing::InOrder,
                }),
                [2] => Ok(Self::End {
                    id,
                    close: Closing::Cut,
                }),
                _ => Err(fault),
            },
            FAILED if body.is_empty() => Ok(Self::Failed { id }),
            _ => Err(fault),
        }
    }
}

/// Frames out of a stream's bytes, however they are cut.
#[derive(Debug, Default)]
pub struct FrameReader {
    unread: BytesMut,
}

impl FrameReader {
    /// Adds what the stream has brought.
    pub fn push(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
    }

    /// Next frame that is whole; `None`: more bytes are needed.
    ///
    /// # Errors
    /// [`FrameError`]: the stream cannot be read any further.
    pub fn read(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some((&kind, rest)) = self.unread.split_first() else {
            return Ok(None);
        };
        let Some((length, used)) = varint::decode(rest) else {
            return Ok(None);
        };
        let len = usize::try_from(length).unwrap_or(usize::MAX);
        if len > MAX_FRAME {
            return Err(FrameError::TooLong(length));
        }
        if rest.len() < used + len {
            return Ok(None);
        }
        self.unread.advance(1 + used);
        Frame::decode(kind, self.unread.split_to(len).freeze()).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> Vec<Frame> {
        vec![
            Frame::Request(Bytes::from_static(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")),
            Frame::Promise {
                id: 1,
                target: Bytes::from_static(b"/a.css"),
            },
            Frame::Head {
                id: 0,
                bytes: Bytes::from_static(b"HTTP/1.1 200 OK\r\n\r\n"),
            },
            Frame::Data {
                id: 300,
                bytes: vec![7; MAX_DATA].into(),
            },
            Frame::End {
                id: 0,
                close: Closing::InOrder,
            },
            Frame::Failed { id: 1 },
            Frame::Tls(Bytes::from_static(b"a.example")),
            Frame::Relay,
            Frame::End {
                id: 0,
                close: Closing::Cut,
            },
        ]
    }

    #[test]
    fn frames_are_read_however_they_are_cut() {
        let mut bytes = Vec::new();
        frames().iter().for_each(|frame| frame.encode(&mut bytes));
        for cut in [1, 2, 3, 1000, bytes.len()] {
            let (mut reader, mut read) = (FrameReader::default(), Vec::new());
            for piece in bytes.chunks(cut) {
                reader.push(piece);
                while let Some(frame) = reader.read().unwrap() {
                    read.push(frame);
                }
            }
            assert_eq!(read, frames(), "{cut}");
        }
    }

    /// The vectors of `PROTOCOL.md` §19.4.
    #[test]
    fn frames_are_as_the_protocol_says() {
        let page = include_str!("../../../PROTOCOL.md");
        let section = page.split("### 19.4").nth(1).expect("the section");
        let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
        for frame in frames() {
            if matches!(frame, Frame::Data { .. }) {
                continue;
            }
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            let flat: String = section.split_whitespace().collect();
            assert!(flat.contains(&hex(&bytes)), "{frame:?}: {}", hex(&bytes));
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let read = |bytes: &[u8]| {
            let mut reader = FrameReader::default();
            reader.push(bytes);
            reader.read()
        };
        assert_eq!(read(&[11, 0]), Err(FrameError::Type(11)));
        assert_eq!(read(&[RELAY, 1, 0]), Err(FrameError::Body(RELAY)));
        assert_eq!(read(&[1, 0]), Err(FrameError::Type(1)));
        assert_eq!(read(&[DATA, 0]), Err(FrameError::Body(DATA)));
        assert_eq!(read(&[PROMISE, 1, 0]), Err(FrameError::Body(PROMISE)));
        assert_eq!(read(&[END, 2, 0, 3]), Err(FrameError::Body(END)));
        assert_eq!(read(&[FAILED, 2, 0, 0]), Err(FrameError::Body(FAILED)));
        let long = [DATA, 0x80, 0x10, 0, 0];
        assert_eq!(read(&long), Err(FrameError::TooLong(0x10_0000)));
    }
}

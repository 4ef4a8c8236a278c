//! Bodies of requests and responses that go through the proxy, as their heads say how they end.

use std::io;

use bentpipe_proto::proxy::forward::{Chunks, Framing};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};

/// Bytes moved at once.
const STEP: usize = 16 * 1024;

/// Body on its way.
pub(super) enum Body {
    Length(u64),
    Chunked(Chunks),
    End(bool),
}

impl Body {
    /// Body of a message whose head says this about its length.
    pub(super) fn new(framing: Framing) -> Self {
        match framing {
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => Self::Chunked(Chunks::default()),
            Framing::End => Self::End(false),
        }
    }

    /// True once all of the body has been moved.
    pub(super) fn is_done(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(chunks) => chunks.is_done(),
            Self::End(ended) => *ended,
        }
    }

    /// Number of these bytes that belong to the body.
    fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(match self {
            Self::Length(left) => {
                let here = usize::try_from(*left)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len());
                *left -= here as u64;
                here
            }
            Self::Chunked(chunks) => chunks.take(bytes).ok_or(io::ErrorKind::InvalidData)?,
            Self::End(_) => bytes.len(),
        })
    }

    /// Moves the rest of the body: first what of it is in `buffer`, which keeps what follows it.
    pub(super) async fn copy(
        &mut self,
        buffer: &mut Vec<u8>,
        from: &mut ReadHalf<'_>,
        to: &mut WriteHalf<'_>,
    ) -> io::Result<()> {
        loop {
            let here = self.take(buffer)?;
            to.write_all(&buffer[..here]).await?;
            buffer.drain(..here);
            if self.is_done() {
                return Ok(());
            }
            buffer.reserve(STEP);
            if from.read_buf(buffer).await? == 0 {
                return match self {
                    Self::End(ended) => {
                        *ended = true;
                        Ok(())
                    }
                    _ => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }
}

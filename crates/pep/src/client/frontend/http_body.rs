//! Bodies of requests and responses that go through the proxy, as their heads say how they end.

use std::io;

use bentpipe_proto::proxy::forward::{Chunks, Framing};
use tokio::net::TcpStream;

use crate::relay;

/// Bytes moved at once.
const STEP: usize = 16 * 1024;

/// Socket that bytes are read from.
#[derive(Clone, Copy)]
pub(super) struct BodySource<'a> {
    pub(super) socket: &'a TcpStream,
    /// Socket of an application that waits for the bytes: once that one is gone, reading ends.
    pub(super) awaited_by: Option<&'a TcpStream>,
}

impl BodySource<'_> {
    /// Reads on into `buffer`; 0: the other end has ended in order. The error `ConnectionAborted` says that nobody waits any more.
    pub(super) async fn read(self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let Some(application) = self.awaited_by else {
            return read(self.socket, buffer).await;
        };
        tokio::select! {
            biased;
            read = read(self.socket, buffer) => read,
            () = relay::abandoned(application) => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}

async fn read(socket: &TcpStream, buffer: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        socket.readable().await?;
        buffer.reserve(STEP);
        match socket.try_read_buf(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return read,
        }
    }
}

/// Writes all of `bytes`.
pub(super) async fn write_all(socket: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        socket.writable().await?;
        match socket.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Side on which a body broke off.
pub(super) enum BrokenOff {
    /// Socket that the body is read from, or what it says.
    Source(io::Error),
    /// Socket that the body is written to.
    Sink,
}

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
        from: BodySource<'_>,
        to: &TcpStream,
    ) -> Result<(), BrokenOff> {
        loop {
            let here = self.take(buffer).map_err(BrokenOff::Source)?;
            let written = write_all(to, &buffer[..here]).await;
            written.map_err(|_| BrokenOff::Sink)?;
            buffer.drain(..here);
            if self.is_done() {
                return Ok(());
            }
            if from.read(buffer).await.map_err(BrokenOff::Source)? == 0 {
                return match self {
                    Self::End(ended) => {
                        *ended = true;
                        Ok(())
                    }
                    _ => Err(BrokenOff::Source(io::ErrorKind::UnexpectedEof.into())),
                };
            }
        }
    }
}

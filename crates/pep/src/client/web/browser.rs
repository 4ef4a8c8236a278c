//! A browser's connection: requests out of its bytes, answers into it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_proto::tunnel::Destination;
use bentpipe_web::{Frame, MAX_REQUEST, Request, Verdict, judge};
use bytes::{Bytes, BytesMut};
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::Owner;
use crate::relay::Outcome;

/// Time for which a connection that says nothing may be a browser's that was opened ahead; then it is a flow, for its server may
/// be the one to speak first.
const SILENCE: Duration = Duration::from_secs(2);

/// Time for which a connection waits for the next request, as at many origins.
const IDLE: Duration = Duration::from_secs(60);

/// Next thing that a browser says.
pub(super) enum Next {
    Get(Request),
    /// Something else.
    Plain,
    /// Nothing more.
    End,
    /// A reset.
    Lost,
}

/// The connection cannot go on; to be reset.
pub(super) struct Gone(pub(super) Outcome);

/// A browser's connection.
pub(crate) struct Browser {
    socket: TcpStream,
    destination: Destination,
    source: Option<SocketAddr>,
    /// Bytes that are to be judged.
    unread: BytesMut,
    /// True once a request was answered.
    answered: bool,
}

impl Browser {
    /// A connection of `source` to `destination` whose first bytes are `first`.
    pub(crate) fn new(
        socket: TcpStream,
        (destination, source): (Destination, Option<SocketAddr>),
        first: &[u8],
    ) -> Self {
        Self {
            socket,
            destination,
            source,
            unread: first.into(),
            answered: false,
        }
    }

    /// The socket, and what has been read and not been answered.
    pub(crate) fn into_parts(self) -> (TcpStream, Destination, Bytes) {
        (self.socket, self.destination, self.unread.freeze())
    }

    pub(super) fn owner(&self) -> Owner {
        (
            self.source.map(|source| source.ip()),
            self.destination.clone(),
        )
    }

    pub(super) fn destination(&self) -> &Destination {
        &self.destination
    }

    pub(super) fn source(&self) -> Option<SocketAddr> {
        self.source
    }

    /// Waits for the next request.
    pub(super) async fn next_request(&mut self) -> Next {
        loop {
            match judge(&self.unread) {
                Verdict::Get(request, used) => {
                    let _ = self.unread.split_to(used);
                    return Next::Get(request);
                }
                Verdict::Plain => return Next::Plain,
                Verdict::Incomplete => {}
            }
            let idle = self.answered && self.unread.is_empty();
            let patience = if idle { IDLE } else { SILENCE };
            self.unread.reserve(MAX_REQUEST);
            match timeout(patience, self.socket.read_buf(&mut self.unread)).await {
                Err(_) | Ok(Ok(0)) if idle => return Next::End,
                Err(_) | Ok(Ok(0)) => return Next::Plain,
                Ok(Ok(_)) => {}
                Ok(Err(_)) => return Next::Lost,
            }
        }
    }

    /// A request was read that is not to be answered here.
    pub(super) fn put_back(&mut self, request: &Request) {
        let behind = self.unread.split();
        self.unread.extend_from_slice(request.head());
        self.unread.extend_from_slice(&behind);
    }

    /// Gives the browser an answer that is there.
    pub(super) async fn write_all(&mut self, pieces: &[Bytes]) -> Result<(), Gone> {
        self.answered = true;
        for piece in pieces {
            self.write(piece).await?;
        }
        Ok(())
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        let lost = |_: io::Error| Gone(Outcome::LanReset);
        self.socket.write_all(bytes).await.map_err(lost)
    }

    /// Gives the browser a response while it comes; says whether the connection ends with it, or nothing if the response does
    /// not come whole.
    pub(super) async fn deliver(
        &mut self,
        mut frames: mpsc::Receiver<Frame>,
    ) -> Result<Option<bool>, Gone> {
        self.answered = true;
        loop {
            let frame = tokio::select! {
                frame = frames.recv() => frame,
                _ = self.socket.ready(Interest::ERROR) => return Err(Gone(Outcome::LanReset)),
            };
            match frame {
                Some(Frame::Head { bytes, .. } | Frame::Data { bytes, .. }) => {
                    self.write(&bytes).await?;
                }
                Some(Frame::End { close, .. }) => return Ok(Some(close)),
                Some(_) => return Err(Gone(Outcome::PeerReset)),
                None => return Ok(None),
            }
        }
    }

    /// Lets the kernel end the connection in order.
    pub(super) fn close(&self) -> Outcome {
        let _ = SockRef::from(&self.socket).set_linger(None);
        Outcome::Closed
    }
}

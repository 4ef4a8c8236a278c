//! A browser's connection: requests out of its bytes, answers into it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_proto::tunnel::Destination;
use bentpipe_web::{Closing, Frame, MAX_REQUEST, Request, Scheme, Verdict, judge};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use super::Owner;
use crate::relay::over_tcp::{OverTcp, is_cut};
use crate::relay::{Outcome, delivered};

/// Time for which a connection that says nothing may be a browser's that was opened ahead; then it is a flow, for its server may
/// be the one to speak first.
const SILENCE: Duration = Duration::from_secs(2);

/// Time for which a connection waits for the next request, as at many origins.
const IDLE: Duration = Duration::from_secs(60);

/// Time for which a browser may hold up the end of its connection.
const PARTING: Duration = Duration::from_secs(5);

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

/// Stream on which a browser speaks HTTP.
enum Speech {
    Clear(TcpStream),
    /// In TLS that is ended here, for the host of this name.
    Trusted(Box<TlsStream<TcpStream>>, String),
}

impl Speech {
    fn stream(&mut self) -> &mut dyn OverTcp {
        match self {
            Self::Clear(socket) => socket,
            Self::Trusted(tls, _) => &mut **tls,
        }
    }

    /// True if the browser has agreed to speak first: HTTP/1.1 by ALPN (RFC 7301).
    fn is_http(&self) -> bool {
        match self {
            Self::Clear(_) => false,
            Self::Trusted(tls, _) => tls.get_ref().1.alpn_protocol().is_some(),
        }
    }

    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Clear(socket) => socket,
            Self::Trusted(tls, _) => tls.tcp(),
        }
    }
}

/// A browser's connection.
pub(crate) struct Browser {
    speech: Speech,
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
            speech: Speech::Clear(socket),
            destination,
            source,
            unread: first.into(),
            answered: false,
        }
    }

    /// A connection of `source` to `destination` on which this side speaks TLS as the host `name`.
    pub(super) fn trusted(
        tls: TlsStream<TcpStream>,
        (destination, source): (Destination, Option<SocketAddr>),
        name: String,
    ) -> Self {
        Self {
            speech: Speech::Trusted(Box::new(tls), name),
            destination,
            source,
            unread: BytesMut::new(),
            answered: false,
        }
    }

    /// Parts of the connection, with what has been read and not been answered.
    pub(crate) fn into_parts(self) -> Parts {
        let unread = self.unread.freeze();
        match self.speech {
            Speech::Clear(socket) => Parts::Clear(socket, self.destination, unread),
            Speech::Trusted(tls, name) => Parts::Trusted(TrustedParts {
                tls,
                name,
                place: (self.destination, self.source),
                unread,
            }),
        }
    }

    /// Host that this side speaks TLS as, if it does.
    pub(super) fn name(&self) -> Option<&str> {
        match &self.speech {
            Speech::Clear(_) => None,
            Speech::Trusted(_, name) => Some(name),
        }
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
            let scheme = match self.name() {
                Some(_) => Scheme::Https,
                None => Scheme::Http,
            };
            match judge(scheme, &self.unread) {
                // Answered by another host than the one that the browser has seen the certificate of.
                Verdict::Get(request, _)
                    if self.name().is_some_and(|name| !request.is_for(name)) =>
                {
                    return Next::Plain;
                }
                Verdict::Get(request, used) => {
                    let _ = self.unread.split_to(used);
                    return Next::Get(request);
                }
                Verdict::Plain => return Next::Plain,
                Verdict::Incomplete => {}
            }
            let idle = self.unread.is_empty() && (self.answered || self.speech.is_http());
            let patience = if idle { IDLE } else { SILENCE };
            self.unread.reserve(MAX_REQUEST);
            let reading = self.speech.stream().read_buf(&mut self.unread);
            let read = match timeout(patience, reading).await {
                Ok(Err(error)) if is_cut(&error) => Ok(Ok(0)),
                read => read,
            };
            match read {
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
        let stream = self.speech.stream();
        stream.write_all(bytes).await.map_err(lost)?;
        stream.flush().await.map_err(lost)
    }

    /// Gives the browser a response while it comes; says how the connection ends with it, or nothing if the response does not
    /// come whole.
    pub(super) async fn deliver(
        &mut self,
        mut frames: mpsc::Receiver<Frame>,
    ) -> Result<Option<Closing>, Gone> {
        self.answered = true;
        loop {
            let frame = tokio::select! {
                frame = frames.recv() => frame,
                _ = self.speech.tcp().ready(Interest::ERROR) => return Err(Gone(Outcome::LanReset)),
            };
            match frame {
                Some(Frame::Head { bytes, .. } | Frame::Data { bytes, .. }) => {
                    self.write(&bytes).await?;
                }
                Some(Frame::End { close, .. }) => return Ok(Some(close)),
                Some(_) => {
                    delivered(self.speech.tcp()).await;
                    return Err(Gone(Outcome::PeerReset));
                }
                None => return Ok(None),
            }
        }
    }

    /// Ends the connection as an origin has ended its own.
    pub(super) async fn end(&mut self, close: Closing) -> Outcome {
        if close == Closing::Cut {
            self.speech.tcp().close_in_order();
        } else {
            self.close().await;
        }
        Outcome::Closed
    }

    /// Ends the connection in order, in TLS by close_notify.
    pub(super) async fn close(&mut self) -> Outcome {
        if let Speech::Trusted(tls, _) = &mut self.speech {
            // Whoever does not read has no right to wait for the end.
            let _ = timeout(PARTING, tls.shutdown()).await;
        }
        self.speech.tcp().close_in_order();
        Outcome::Closed
    }
}

/// What is left of a browser's connection that goes on otherwise.
pub(crate) enum Parts {
    /// The socket, its destination, and bytes for it.
    Clear(TcpStream, Destination, Bytes),
    /// Inside of TLS.
    Trusted(TrustedParts),
}

/// Connection inside of TLS.
pub(crate) struct TrustedParts {
    pub(super) tls: Box<TlsStream<TcpStream>>,
    pub(super) name: String,
    pub(super) place: (Destination, Option<SocketAddr>),
    pub(super) unread: Bytes,
}

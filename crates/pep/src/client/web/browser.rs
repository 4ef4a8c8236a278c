//! A browser's connection: requests out of its bytes, answers into it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_proto::tunnel::Destination;
use bentpipe_web::{
    AnswerEnd, Closing, Frame, MAX_PIECES, MAX_REQUEST, Request, Scheme, Verdict, judge,
};
use bytes::{Bytes, BytesMut};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_rustls::server::TlsStream;

use super::super::attendance::Attendance;
use super::Owner;
use super::piped::NearEnd;
use super::speech::Speech;
use super::trusted::Trusted;
use crate::relay::Outcome;
use crate::relay::over_tcp::is_cut;

/// Time for which a connection that says nothing may be a browser's that was opened ahead; then it is a flow, for its server may
/// be the one to speak first.
const SILENCE: Duration = Duration::from_secs(2);

/// Time for which a connection waits for the next request, as at many origins.
const IDLE: Duration = Duration::from_secs(60);

/// Time for which the end of an answer is waited for when all of it has been read.
const LAST_WORD: Duration = Duration::from_secs(2);

/// Time for which nothing more may have come of an answer without an end, to which the browser asks on, before its connection ends.
const LULL: Duration = Duration::from_secs(1);

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
    speech: Speech,
    destination: Destination,
    source: Option<SocketAddr>,
    /// Bytes that are to be judged.
    unread: BytesMut,
    /// True once a request was answered.
    answered: bool,
    /// True if nobody on the way reads its pages.
    sealed: bool,
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
            sealed: false,
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
            sealed: false,
        }
    }

    /// A request of HTTP/2 that `source` has sent on a connection to `destination` on which this side speaks TLS as the host `name`.
    pub(super) fn piped(
        pipe: NearEnd,
        (destination, source): (Destination, Option<SocketAddr>),
        name: String,
    ) -> Self {
        Self {
            speech: Speech::Piped(Box::new(pipe), name),
            destination,
            source,
            unread: BytesMut::new(),
            answered: false,
            sealed: false,
        }
    }

    /// The host is an origin of DSSL.
    pub(super) fn sealed(mut self) -> Self {
        self.sealed = true;
        self
    }

    /// True if nobody on the way reads its pages.
    pub(super) fn is_sealed(&self) -> bool {
        self.sealed
    }

    /// Parts of the connection, with what has been read and not been answered.
    pub(crate) fn into_parts(self) -> Parts {
        let unread = self.unread.freeze();
        match self.speech {
            Speech::Clear(socket) => Parts::Clear(socket, self.destination, unread),
            speech @ (Speech::Trusted(..) | Speech::Piped(..)) => Parts::Trusted(TrustedParts {
                speech,
                place: (self.destination, self.source),
                unread,
                sealed: self.sealed,
            }),
        }
    }

    /// True if all that the browser has said was answered, and something was.
    fn is_answered(&self) -> bool {
        self.answered && self.unread.is_empty()
    }

    /// Host that this side speaks TLS as, if it does.
    pub(super) fn name(&self) -> Option<&str> {
        self.speech.name()
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

    /// Waits for the next request; whoever has an answer makes none any more once the client is about to stop.
    pub(super) async fn next_request(&mut self, attendance: &Attendance) -> Next {
        let answered = self.is_answered();
        tokio::select! {
            next = self.hear() => next,
            () = attendance.ending(), if answered => Next::End,
        }
    }

    /// Waits for what the browser says next.
    async fn hear(&mut self) -> Next {
        let mut pieces = 0;
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
                Verdict::Incomplete if pieces == MAX_PIECES => return Next::Plain,
                Verdict::Incomplete => pieces += 1,
            }
            let idle = self.is_answered() || self.unread.is_empty() && self.speech.is_http();
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
    pub(super) async fn write_all(&mut self, answer: &[u8]) -> Result<(), Gone> {
        self.answered = true;
        self.write(answer).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        let lost = |_: io::Error| Gone(Outcome::LanReset);
        self.speech.write(bytes).await.map_err(lost)
    }

    /// Waits until the browser has reset the connection.
    pub(super) async fn lost(&mut self) {
        self.speech.lost().await;
    }

    /// Waits until the browser is gone, which waits for an answer.
    pub(super) async fn left(&self) {
        self.speech.abandoned().await;
    }

    /// Waits until the browser has asked for more at the end of a lull.
    async fn asks_on(&self) {
        loop {
            sleep(LULL).await;
            if self.speech.has_spoken() {
                return;
            }
        }
    }

    /// Gives the browser a response while it comes, of whose head `trusted` hears; says how the connection ends with it, or nothing if the response does not
    /// come whole.
    pub(super) async fn deliver(
        &mut self,
        mut frames: mpsc::Receiver<Frame>,
        trusted: Option<&Trusted>,
    ) -> Result<Option<Closing>, Gone> {
        self.answered = true;
        let mut end = AnswerEnd::default();
        loop {
            let frame = tokio::select! {
                frame = frames.recv() => frame,
                () = self.left() => return self.last_word(frames).await,
                () = self.asks_on(), if end.is_untold() => return Ok(Some(self.break_off().await)),
            };
            let asked_on = || !self.unread.is_empty() || self.speech.has_spoken();
            match &frame {
                Some(Frame::Head { bytes, .. }) => end.on_bytes(Some(bytes), asked_on),
                _ => end.on_bytes(None, asked_on),
            }
            match frame {
                Some(Frame::Head { bytes, .. }) => {
                    if let (Some(name), Some(trusted)) = (self.speech.name(), trusted) {
                        trusted.look_at(name, &bytes);
                    }
                    self.write(&bytes).await?;
                }
                Some(Frame::Data { bytes, .. }) => self.write(&bytes).await?,
                Some(Frame::End { close, .. }) => return Ok(Some(close)),
                Some(_) => {
                    self.speech.delivered().await;
                    return Err(Gone(Outcome::PeerReset));
                }
                None => return Ok(None),
            }
        }
    }

    /// Ends an answer whose end nobody has told, because the browser asks on: to the browser the answer is over, and the next one comes by
    /// another connection.
    async fn break_off(&mut self) -> Closing {
        // Bytes that nobody has read would make a reset of the end.
        self.unread.reserve(MAX_REQUEST);
        let reading = self.speech.stream().read_buf(&mut self.unread);
        let _ = timeout(Duration::ZERO, reading).await;
        Closing::InOrder
    }

    /// Answer's end, of which a browser that has gone may have known all the same: a pipe's far end leaves with the last byte.
    async fn last_word(&self, mut frames: mpsc::Receiver<Frame>) -> Result<Option<Closing>, Gone> {
        let last = match self.speech {
            Speech::Piped(..) => timeout(LAST_WORD, frames.recv()).await.ok().flatten(),
            Speech::Clear(_) | Speech::Trusted(..) => None,
        };
        match last {
            Some(Frame::End { close, .. }) => Ok(Some(close)),
            _ => Err(Gone(Outcome::LanReset)),
        }
    }

    /// Ends the connection as an origin has ended its own.
    pub(super) async fn end(&mut self, close: Closing) -> Outcome {
        if close == Closing::Cut {
            self.speech.cut();
        } else {
            self.speech.close().await;
        }
        Outcome::Closed
    }

    /// Ends the connection in order, in TLS by close_notify.
    pub(super) async fn close(&mut self) -> Outcome {
        self.speech.close().await;
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
    pub(super) speech: Speech,
    pub(super) place: (Destination, Option<SocketAddr>),
    pub(super) unread: Bytes,
    /// True if nobody on the way reads what is said.
    pub(super) sealed: bool,
}

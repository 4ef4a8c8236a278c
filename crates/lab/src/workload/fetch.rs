//! Fetching and sending: one object over a connection, with its length and SHA-256 checked.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::client::conn::http2;
use hyper::header::{ACCEPT, HOST};
use hyper::http::request::Builder;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::content::{Digest, Expected, Hasher, MARKER};

/// Header of a response with the SHA-256 of the request's content.
pub(super) const REQUEST_DIGEST: &str = "request-sha-256";

/// Fetches `expected` in clear over a new connection to `address`; the time from calling `connect` to the last byte.
/// `progress` is told how many bytes have come, whenever some do.
///
/// # Errors
/// The connection failed, the server refused, or the body is not the expected one.
pub async fn get(
    address: SocketAddr,
    host: &str,
    expected: &Expected,
    progress: impl FnMut(u64),
) -> Result<Duration> {
    get_over(connect(address), host, expected, progress)
        .await
        .with_context(|| format!("{} from {address}", expected.object.path()))
}

/// Fetches `expected` as [`get`] does, over the connection that `connecting` makes, through a proxy perhaps.
///
/// # Errors
/// As [`get`].
pub async fn get_over(
    connecting: impl Future<Output = Result<TcpStream>>,
    host: &str,
    expected: &Expected,
    mut progress: impl FnMut(u64),
) -> Result<Duration> {
    let start = Instant::now();
    let mut connection = Connection::open(connecting.await?, host).await?;
    connection.fetch(&expected.into(), &mut progress).await?;
    Ok(start.elapsed())
}

/// Fetches `expected` in clear `count` times, one after another over one connection to `address`; the time from calling
/// `connect` to the last byte of the last.
///
/// # Errors
/// The connection failed, the server refused, or a body is not the expected one.
pub async fn get_in_turn(
    address: SocketAddr,
    host: &str,
    expected: &Expected,
    count: u32,
) -> Result<Duration> {
    let start = Instant::now();
    let mut connection = Connection::open(connect(address).await?, host).await?;
    for number in 1..=count {
        let fetched = connection.fetch(&expected.into(), &mut |_| ()).await;
        fetched.with_context(|| format!("file {number} of {count} from {address}"))?;
    }
    Ok(start.elapsed())
}

/// Sends `expected` in clear over a new connection to `address`; the time from calling `connect` to the server's word that it
/// has all of it.
///
/// # Errors
/// The connection failed, the server refused, or what it got is not what was sent.
pub async fn put(address: SocketAddr, host: &str, expected: &Expected) -> Result<Duration> {
    put_over(connect(address), host, expected)
        .await
        .with_context(|| format!("{} to {address}", expected.object.path()))
}

/// Sends `expected` as [`put`] does, over the connection that `connecting` makes, through a proxy perhaps.
///
/// # Errors
/// As [`put`].
pub async fn put_over(
    connecting: impl Future<Output = Result<TcpStream>>,
    host: &str,
    expected: &Expected,
) -> Result<Duration> {
    let start = Instant::now();
    let mut connection = Connection::open(connecting.await?, host).await?;
    connection.send(expected).await?;
    Ok(start.elapsed())
}

/// A TCP connection that sends what it is given at once.
pub(super) async fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).await.context("connect")?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Object that is asked for and must come.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    /// Path at which the host has it.
    pub(super) path: String,
    /// Bytes of its body.
    pub(super) length: u64,
    /// SHA-256 of the bytes.
    pub(super) digest: Digest,
    /// Media types that are asked for, as browsers do for an object of its kind.
    pub(super) accept: &'static str,
}

impl Wanted {
    /// Request for the object, whose place the connection's version of HTTP calls `uri`.
    pub(super) fn request(&self, uri: &str) -> Builder {
        request(Method::GET, uri).header(ACCEPT, self.accept)
    }
}

impl From<&Expected> for Wanted {
    fn from(expected: &Expected) -> Self {
        Self {
            path: expected.object.path(),
            length: expected.object.length,
            digest: expected.digest,
            accept: "*/*",
        }
    }
}

/// An HTTP/1.1 connection to one host; closed when dropped.
pub(super) struct Connection {
    sender: SendRequest<BoxBody<Bytes, Infallible>>,
    host: String,
}

impl Connection {
    pub(super) async fn open(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        host: &str,
    ) -> Result<Self> {
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // Its errors reach the sender as well, which is where they are told.
        tokio::spawn(connection);
        Ok(Self {
            sender,
            host: host.to_owned(),
        })
    }

    /// One request and its whole response.
    pub(super) async fn fetch(
        &mut self,
        wanted: &Wanted,
        progress: &mut impl FnMut(u64),
    ) -> Result<()> {
        let request = wanted.request(&wanted.path);
        let answer = self.answered(request, Empty::new().boxed()).await?;
        receive(body_of(answer)?, wanted, progress).await
    }

    /// One request with the whole object, and the server's answer to it.
    async fn send(&mut self, expected: &Expected) -> Result<()> {
        let content = expected.object.content().boxed();
        let request = request(Method::PUT, &expected.object.path());
        let body = body_of(self.answered(request, content).await?)?;
        let answer = body.collect().await.context("answer")?.to_bytes();
        ensure!(
            answer == expected.digest.to_string(),
            "its SHA-256 is wrong: the content was changed on the way"
        );
        Ok(())
    }

    /// One request with the whole of one object, and another object in response.
    pub(super) async fn exchange(&mut self, request: &Expected, response: &Expected) -> Result<()> {
        let content = request.object.content().boxed();
        let asking = self::request(Method::POST, &response.object.path());
        let answer = self.answered(asking, content).await?;
        let digest = answer.headers().get(REQUEST_DIGEST);
        ensure!(
            digest.is_some_and(|digest| digest.as_bytes() == request.digest.to_string().as_bytes()),
            "the SHA-256 of the request is wrong: it was changed on the way"
        );
        receive(body_of(answer)?, &response.into(), &mut |_| ()).await
    }

    async fn answered(
        &mut self,
        request: Builder,
        body: BoxBody<Bytes, Infallible>,
    ) -> Result<Response<Incoming>> {
        let request = request
            .header(HOST, &self.host)
            .body(body)
            .context("request")?;
        self.sender.ready().await.context("connection lost")?;
        self.sender.send_request(request).await.context("request")
    }
}

/// HTTP/2 connection to one host, for any number of requests at once; closed when its last clone is dropped.
#[derive(Clone)]
pub(super) struct Multiplexed {
    sender: http2::SendRequest<Empty<Bytes>>,
    host: String,
}

impl Multiplexed {
    pub(super) async fn open(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        host: &str,
    ) -> Result<Self> {
        let executor = TokioExecutor::new();
        let (sender, connection) = http2::handshake(executor, TokioIo::new(stream)).await?;
        // Errors of the connection reach the sender as well, which is where they are told.
        tokio::spawn(connection);
        Ok(Self {
            sender,
            host: host.to_owned(),
        })
    }

    /// One request and its whole response.
    pub(super) async fn fetch(
        &mut self,
        wanted: &Wanted,
        progress: &mut impl FnMut(u64),
    ) -> Result<()> {
        let uri = format!("https://{}{}", self.host, wanted.path);
        let request = wanted.request(&uri).body(Empty::new()).context("request")?;
        self.sender.ready().await.context("connection lost")?;
        let response = self.sender.send_request(request).await.context("request")?;
        receive(body_of(response)?, wanted, progress).await
    }
}

/// A request that captures of the link would show, if it crossed in clear.
fn request(method: Method, uri: &str) -> Builder {
    Request::builder()
        .method(method)
        .uri(uri)
        .header("marker", &MARKER[..])
}

fn body_of(response: Response<Incoming>) -> Result<Incoming> {
    let status = response.status();
    ensure!(status == StatusCode::OK, "the server says {status}");
    Ok(response.into_body())
}

/// Takes a whole body, which has to be the `wanted` one; `progress` is told how many of its bytes have come.
async fn receive(
    mut body: Incoming,
    wanted: &Wanted,
    progress: &mut impl FnMut(u64),
) -> Result<()> {
    let mut received = Received::new(wanted);
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.context("body")?.into_data() {
            progress(received.take(&data));
        }
    }
    received.finish()
}

/// Body of a response so far.
pub(super) struct Received<'a> {
    wanted: &'a Wanted,
    length: u64,
    hasher: Hasher,
}

impl<'a> Received<'a> {
    /// Nothing of the `wanted` one yet.
    pub(super) fn new(wanted: &'a Wanted) -> Self {
        Self {
            wanted,
            length: 0,
            hasher: Hasher::new(),
        }
    }

    /// Takes the next bytes; returns how many there are with them.
    pub(super) fn take(&mut self, data: &[u8]) -> u64 {
        self.length += data.len() as u64;
        self.hasher.update(data);
        self.length
    }

    /// Judges the body, which is whole.
    ///
    /// # Errors
    /// Another one than the wanted one has come.
    pub(super) fn finish(self) -> Result<()> {
        let (length, wanted) = (self.length, self.wanted.length);
        ensure!(length == wanted, "{length} bytes came, not {wanted}");
        ensure!(
            self.hasher.finish() == self.wanted.digest,
            "its SHA-256 is wrong: the content was changed on the way"
        );
        Ok(())
    }
}

//! HTTP/1.1 on a TCP port for what a daemon tells of itself: metrics and the page.
//!
//! ```text
//! browser, Prometheus ── GET ──► one of 8 places ── answer() ──► response, and the connection ends
//! ```
//!
//! Whoever reaches the port takes little of the daemon's time and memory: a place has one connection at a time, for no longer
//! than [`PATIENCE`], and rests for [`REST`] after it. All places together answer some 160 times a second, at most.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_config::Placed;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::process::{self, RunError, canonical};
use crate::throttle::Throttle;

/// Time that a connection has from its first byte to the last of the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Rest of a place after a connection.
const REST: Duration = Duration::from_millis(50);

/// Pause of a place after an error of accepting, such as no descriptors.
const PAUSE: Duration = Duration::from_secs(10);

/// Bytes of a request's head, at most; hyper takes no less.
const LONGEST_HEAD: usize = 8192;

/// Request whose body is not read.
pub(crate) type Request = hyper::Request<Incoming>;

/// Response that is in memory whole.
pub(crate) type Response = hyper::Response<Full<Bytes>>;

/// Server of GET requests; serves nothing where no address is configured.
#[derive(Debug)]
pub(crate) struct Web {
    listener: Option<TcpListener>,
    /// Name in the log of what is served.
    what: &'static str,
    /// Throttle of the line about failures to accept: every place has the same.
    told: Throttle,
}

impl Web {
    /// Binds `listen`. To be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`RunError::Bind`] if the address cannot be had.
    pub(crate) fn bind(
        listen: Option<&Placed<SocketAddr>>,
        what: &'static str,
    ) -> Result<Self, RunError> {
        let bind = |listen: &Placed<SocketAddr>| {
            let address = **listen;
            let listener = std::net::TcpListener::bind(address).and_then(|listener| {
                listener.set_nonblocking(true)?;
                TcpListener::from_std(listener)
            });
            listener.map_err(|source| RunError::Bind {
                place: listen.place.clone(),
                address,
                what: "TCP",
                source,
            })
        };
        let listener = listen.map(bind).transpose()?;
        Ok(Self {
            listener,
            what,
            told: Throttle::new(),
        })
    }

    /// True if there is an address to serve.
    pub(crate) fn is_bound(&self) -> bool {
        self.listener.is_some()
    }

    /// Has `answer` answer each GET request, given the sender's address; never ends.
    pub(crate) async fn serve(&self, answer: impl Fn(&Request, SocketAddr) -> Response) {
        let Some(listener) = &self.listener else {
            return std::future::pending().await;
        };
        let place = || self.serve_in_turn(listener, &answer);
        tokio::join!(
            place(),
            place(),
            place(),
            place(),
            place(),
            place(),
            place(),
            place()
        );
    }

    /// One place: a connection after the other.
    async fn serve_in_turn(
        &self,
        listener: &TcpListener,
        answer: &impl Fn(&Request, SocketAddr) -> Response,
    ) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let _ = timeout(PATIENCE, self.converse(stream, canonical(peer), answer)).await;
                    sleep(REST).await;
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    if !process::tell_of_files(&error) && self.told.is_due(process::now()) {
                        tracing::warn!("cannot serve the {}: {error}", self.what);
                    }
                    sleep(PAUSE).await;
                }
            }
        }
    }

    async fn converse(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        answer: &impl Fn(&Request, SocketAddr) -> Response,
    ) {
        let service = service_fn(|request: Request| async move {
            Ok::<_, Infallible>(match *request.method() {
                Method::GET => answer(&request, peer),
                _ => text(StatusCode::METHOD_NOT_ALLOWED, "only GET is served\n"),
            })
        });
        let connection = http1::Builder::new()
            .keep_alive(false)
            .max_buf_size(LONGEST_HEAD)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(error) = connection.await {
            tracing::debug!("a request for the {} failed: {error}", self.what);
        }
    }
}

/// A response of plain text.
pub(crate) fn text(status: StatusCode, text: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

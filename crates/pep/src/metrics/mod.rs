//! Figures for Prometheus: `[metrics] listen` serves the status report as OpenMetrics over HTTP/1.1.
//!
//! ```text
//! Prometheus ── GET /metrics ──► serve() ── snapshot() ──► export.rs ──► text
//! ```
//!
//! One connection is served at a time and for no longer than [`PATIENCE`], so that whoever reaches the port takes little of
//! the daemon's time and memory.

mod export;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_config::Placed;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::process::RunError;
use crate::status::StatusReport;
use export::Export;

/// Time that a connection has from its first byte to the last of the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Pause after an error of accepting, such as no descriptors.
const PAUSE: Duration = Duration::from_secs(1);

/// Bytes of a request's head, at most; hyper takes no less.
const LONGEST_HEAD: usize = 8192;

/// Media type of OpenMetrics 1.0.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Server of metrics; serves nothing where none is configured.
#[derive(Debug)]
pub(crate) struct Metrics(Option<TcpListener>);

impl Metrics {
    /// Binds `listen`. To be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`RunError::Bind`] if the address cannot be had.
    pub(crate) fn bind(listen: Option<&Placed<SocketAddr>>) -> Result<Self, RunError> {
        let Some(listen) = listen else {
            return Ok(Self(None));
        };
        let address = **listen;
        let listener = std::net::TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        });
        let listener = listener.map_err(|source| RunError::Bind {
            place: listen.place.clone(),
            address,
            what: "TCP",
            source,
        })?;
        if !address.ip().is_loopback() {
            tracing::warn!(
                "whoever reaches {address} reads the metrics, names of clients among them"
            );
        }
        tracing::info!("metrics at http://{address}/metrics");
        Ok(Self(Some(listener)))
    }

    /// Answers with what `snapshot` gives at that moment; never ends.
    pub(crate) async fn serve(&self, snapshot: impl Fn() -> StatusReport) {
        let Some(listener) = &self.0 else {
            return std::future::pending().await;
        };
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let _ = timeout(PATIENCE, converse(stream, &snapshot)).await;
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!("cannot serve metrics: {error}");
                    sleep(PAUSE).await;
                }
            }
        }
    }
}

async fn converse(stream: TcpStream, snapshot: &impl Fn() -> StatusReport) {
    let service =
        service_fn(|request| async move { Ok::<_, Infallible>(answer(&request, snapshot)) });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(LONGEST_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!("a request for metrics failed: {error}");
    }
}

fn answer(
    request: &Request<Incoming>,
    snapshot: &impl Fn() -> StatusReport,
) -> Response<Full<Bytes>> {
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "metrics are at /metrics\n");
    }
    if request.method() != Method::GET {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET is served\n");
    }
    match Export::new(&snapshot()).into_text() {
        Ok(text) => {
            let mut response = Response::new(Full::from(text));
            let kind = hyper::header::HeaderValue::from_static(OPENMETRICS);
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        Err(error) => {
            tracing::error!("internal error: the metrics cannot be written: {error}");
            plain(
                StatusCode::INTERNAL_SERVER_ERROR,
                "cannot write the metrics\n",
            )
        }
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}

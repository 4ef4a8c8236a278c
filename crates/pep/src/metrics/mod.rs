//! Figures for Prometheus: `[metrics] listen` serves the status report as OpenMetrics over HTTP/1.1.
//!
//! ```text
//! Prometheus ── GET /metrics ──► web.rs ── snapshot() ──► export.rs ──► text
//! ```

mod export;

use std::net::SocketAddr;

use bentpipe_config::Placed;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue};

use crate::process::RunError;
use crate::status::StatusReport;
use crate::web::{Request, Response, Web, text};
use export::Export;

/// Media type of OpenMetrics 1.0.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Server of metrics; serves nothing where none is configured.
#[derive(Debug)]
pub(crate) struct Metrics(Web);

impl Metrics {
    /// Binds `listen`. To be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`RunError::Bind`] if the address cannot be had.
    pub(crate) fn bind(listen: Option<&Placed<SocketAddr>>) -> Result<Self, RunError> {
        let web = Web::bind(listen, "metrics")?;
        if let Some(address) = listen.map(|listen| **listen) {
            if !address.ip().is_loopback() {
                tracing::warn!(
                    "whoever reaches {address} reads the metrics, names of clients among them"
                );
            }
            tracing::info!("metrics at http://{address}/metrics");
        }
        Ok(Self(web))
    }

    /// Answers with what `snapshot` gives at that moment; never ends.
    pub(crate) async fn serve(&self, snapshot: impl Fn() -> StatusReport) {
        self.0.serve(|request, _| answer(request, &snapshot)).await;
    }
}

fn answer(request: &Request, snapshot: &impl Fn() -> StatusReport) -> Response {
    if request.uri().path() != "/metrics" {
        return text(StatusCode::NOT_FOUND, "metrics are at /metrics\n");
    }
    match Export::new(&snapshot()).into_text() {
        Ok(figures) => {
            let mut response = text(StatusCode::OK, figures);
            let kind = HeaderValue::from_static(OPENMETRICS);
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        Err(error) => {
            tracing::error!("internal error: the metrics cannot be written: {error}");
            text(
                StatusCode::INTERNAL_SERVER_ERROR,
                "cannot write the metrics\n",
            )
        }
    }
}

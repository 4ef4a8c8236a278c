//! Figures for Prometheus: `[metrics] listen` serves the status report as OpenMetrics over HTTP/1.1.
//!
//! ```text
//! Prometheus ── GET /metrics ──► web.rs ── snapshot() ──► export.rs ──► text
//!                      each second ── snapshot() ──► distributions.rs ──┘
//! ```

mod distributions;
mod export;

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_config::Placed;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use tokio::time::{MissedTickBehavior, interval};

use crate::process::RunError;
use crate::status::StatusReport;
use crate::web::{Request, Response, Web, text};
use distributions::Distributions;
use export::Export;

pub(crate) use distributions::FirstByte;

/// Media type of OpenMetrics 1.0.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// From one look at what has a distribution to the next.
const LOOK: Duration = Duration::from_secs(1);

/// Server of metrics; serves nothing where none is configured.
#[derive(Debug)]
pub(crate) struct Metrics {
    web: Web,
    distributions: Distributions,
}

impl Metrics {
    /// Binds `listen`; `first_byte` is served too. To be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`RunError::Bind`] if the address cannot be had.
    pub(crate) fn bind(
        listen: Option<&Placed<SocketAddr>>,
        first_byte: Option<FirstByte>,
    ) -> Result<Self, RunError> {
        let web = Web::bind(listen, "metrics")?;
        if let Some(address) = listen.map(|listen| **listen) {
            if !address.ip().is_loopback() {
                tracing::warn!(
                    "whoever reaches {address} reads the metrics, names of clients among them"
                );
            }
            tracing::info!("metrics at http://{address}/metrics");
        }
        Ok(Self {
            web,
            distributions: Distributions::new(first_byte),
        })
    }

    /// Answers with what `snapshot` gives at that moment; never ends.
    pub(crate) async fn serve(&self, snapshot: impl Fn() -> StatusReport) {
        if !self.web.is_bound() {
            return std::future::pending().await;
        }
        let figures = || Export::new(&snapshot(), self.distributions.families()).into_text();
        let served = self.web.serve(|request, _| answer(request, &figures));
        tokio::join!(served, self.observe(&snapshot));
    }

    async fn observe(&self, snapshot: &impl Fn() -> StatusReport) {
        let mut tick = interval(LOOK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            self.distributions.observe(&snapshot());
        }
    }
}

fn answer(request: &Request, figures: &impl Fn() -> Result<String, fmt::Error>) -> Response {
    if request.uri().path() != "/metrics" {
        return text(StatusCode::NOT_FOUND, "metrics are at /metrics\n");
    }
    match figures() {
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

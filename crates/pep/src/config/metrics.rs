//! `[metrics]`: where figures are served for Prometheus.

use std::net::SocketAddr;

use bentpipe_config::{Placed, Source};
use serde::Deserialize;
use toml::Spanned;

use super::value;

/// `[metrics]` as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MetricsTable {
    listen: Spanned<value::TextAddress>,
}

/// TCP address that serves the metrics, if there is to be one.
pub(super) fn listen(source: &Source, metrics: Option<MetricsTable>) -> Option<Placed<SocketAddr>> {
    let listen = metrics?.listen;
    let span = listen.span();
    Some(source.placed(Spanned::new(span, listen.into_inner().0)))
}

//! `status_socket`, `[metrics]` and `[page]`: where a daemon tells about itself.

use std::net::SocketAddr;
use std::path::PathBuf;

use bentpipe_config::{Placed, Source};
use toml::Spanned;

use super::ConfigError;
use super::metrics::{self, MetricsTable};
use super::page::{self, Page};

/// Longest path that a socket can have, bytes.
const MAX_PATH: usize = 107;

/// Places at which a daemon tells about itself.
#[derive(Clone, Debug)]
pub struct Monitoring {
    /// Socket at which `bentpipe status` finds this daemon, instead of one in the run directory.
    pub status_socket: Option<Placed<PathBuf>>,
    /// TCP address that serves figures for Prometheus.
    pub metrics: Option<Placed<SocketAddr>>,
    /// Address of the page, and the token that opens it.
    pub page: Option<Page>,
}

impl Monitoring {
    /// The places that a file names by its keys `status_socket`, `metrics` and `page`.
    pub(super) fn checked(
        source: &Source,
        status_socket: Option<Spanned<PathBuf>>,
        metrics: Option<MetricsTable>,
        page: Option<page::PageTable>,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            status_socket: socket(source, status_socket)?,
            metrics: metrics::listen(source, metrics),
            page: page::checked(source, page)?,
        })
    }
}

/// The path of a status socket, which must be one that a socket can have.
pub(super) fn socket(
    source: &Source,
    path: Option<Spanned<PathBuf>>,
) -> Result<Option<Placed<PathBuf>>, ConfigError> {
    let Some(path) = path else {
        return Ok(None);
    };
    super::check_path(source, "status_socket", &path)?;
    let span = path.span();
    let path = source.resolve_placed(path);
    let length = path.as_os_str().len();
    if length > MAX_PATH {
        let text = format!(
            "`status_socket` is {}, a path of {length} bytes; a socket's may have {MAX_PATH}: set a shorter one",
            path.display()
        );
        return Err(source.error(&span, text));
    }
    Ok(Some(path))
}

//! Way to the server, and what stands at its other end, as pages ask for it.

use std::net::SocketAddr;

use bentpipe_proto::tunnel::Destination;
use bytes::Bytes;

use crate::relay::{FlowHandle, Outcome};

/// Way to the server, as pages use it.
pub(crate) trait PageRoad {
    /// True if the server knows pages; `None` if there is no server for now.
    async fn carries_pages(&self) -> Option<bool>;

    /// True if the server knows pages over TLS that was ended here; waits for a server.
    async fn carries_trusted(&self) -> bool;

    /// Opens a flow for frames of a page, with `first` in the packet of OPEN.
    ///
    /// # Errors
    /// How the browser's connection ends for want of it.
    async fn open_page(
        &self,
        destination: &Destination,
        source: Option<SocketAddr>,
        first: Bytes,
    ) -> Result<FlowHandle, Outcome>;

    /// Hub of DSSL at the other end.
    fn hub(&self) -> HubAtHand;

    /// Opens a flow of bytes.
    ///
    /// # Errors
    /// As with [`Self::open_page`].
    async fn open_flow(
        &self,
        destination: &Destination,
        source: Option<SocketAddr>,
    ) -> Result<FlowHandle, Outcome>;
}

/// Hub of DSSL at the tunnel's other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HubAtHand {
    /// Notes that no tunnel is up now.
    NoTunnel,
    /// The server is no hub.
    NoHub,
    /// The server is a hub with this key.
    Here([u8; 32]),
}

//! Flows of the tunnel for frames of pages.

use std::net::SocketAddr;

use bentpipe_proto::tunnel::Destination;
use bytes::Bytes;

use super::carrier::{NotOpened, open_handle};
use super::session::Session;
use super::web::{HubAtHand, PageRoad};
use crate::relay::{FlowHandle, Outcome};

impl PageRoad for Session {
    async fn carries_pages(&self) -> Option<bool> {
        let tunnel = self.tunnel().await.ok()?;
        self.shard().peek(|engine| {
            let connection = engine.peek(tunnel)?;
            Some(connection.tunnel.agreement().carries_pages())
        })
    }

    async fn carries_trusted(&self) -> bool {
        let Ok(tunnel) = self.tunnel().await else {
            return false;
        };
        let carries = self.shard().peek(|engine| {
            let connection = engine.peek(tunnel)?;
            Some(connection.tunnel.agreement().carries_trusted())
        });
        carries.unwrap_or(false)
    }

    async fn open_page(
        &self,
        destination: &Destination,
        source: Option<SocketAddr>,
        first: Bytes,
    ) -> Result<FlowHandle, Outcome> {
        let opened = open_handle(self, (destination, source), &first, true).await;
        opened.map_err(outcome)
    }

    fn hub(&self) -> HubAtHand {
        let carries = self
            .tunnels()
            .look(|connection| Some(connection.tunnel.agreement().carries_dssl()));
        match (carries, self.server_key()) {
            (Some(true), Some(key)) => HubAtHand::Here(key.to_bytes()),
            (Some(_), _) => HubAtHand::NoHub,
            (None, _) => HubAtHand::NoTunnel,
        }
    }

    async fn open_flow(
        &self,
        destination: &Destination,
        source: Option<SocketAddr>,
    ) -> Result<FlowHandle, Outcome> {
        let opened = open_handle(self, (destination, source), &Bytes::new(), false).await;
        opened.map_err(outcome)
    }
}

/// End of a browser's connection for want of a flow.
fn outcome(failure: NotOpened) -> Outcome {
    match failure {
        NotOpened::Application => Outcome::LanReset,
        NotOpened::NoServer => Outcome::TunnelLost,
        NotOpened::Code(code) => Outcome::Refused(code),
    }
}

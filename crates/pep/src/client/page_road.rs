//! Flows of the tunnel for frames of pages.

use std::net::SocketAddr;

use bentpipe_proto::tunnel::Destination;
use bytes::Bytes;

use super::carrier::{NotOpened, open_handle};
use super::session::Session;
use super::web::PageRoad;
use crate::relay::{FlowHandle, Outcome};

impl PageRoad for Session {
    async fn carries_pages(&self) -> Option<bool> {
        let tunnel = self.tunnel().await.ok()?;
        self.shard().peek(|engine| {
            let connection = engine.peek(tunnel)?;
            Some(connection.tunnel.carries_pages())
        })
    }

    async fn carries_trusted(&self) -> bool {
        let Ok(tunnel) = self.tunnel().await else {
            return false;
        };
        let carries = self.shard().peek(|engine| {
            let connection = engine.peek(tunnel)?;
            Some(connection.tunnel.carries_trusted())
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
        opened.map_err(|failure| match failure {
            NotOpened::Application => Outcome::LanReset,
            NotOpened::NoServer => Outcome::TunnelLost,
            NotOpened::Code(code) => Outcome::Refused(code),
        })
    }
}

//! Ports of the server that deliver to hosts behind the client: asking for them, and opening flows from the server's side
//! (`PROTOCOL.md` §15).

use std::net::SocketAddr;

use bentpipe_proto::tunnel::{Control, Inbound, MAX_PUBLISHED, Publish, PublishCode, capability};
use bytes::Bytes;
use quinn_proto::{Connection, Side};

use super::event::{Fault, OpenError, TunnelEvent};
use super::flow::FlowKey;
use super::tunnel::Tunnel;

impl Tunnel {
    /// Both sides know of published ports.
    pub fn publishes(&self) -> bool {
        self.has(capability::PUBLISH)
    }

    /// Client: asks for a port; what comes of it are [`TunnelEvent::Published`]s.
    pub fn publish(&mut self, publish: Publish) {
        self.send_control(&Control::Publish(publish));
    }

    /// Server: tells the client what came of the port that it knows as `entry`.
    pub fn published(&mut self, entry: u64, code: PublishCode) {
        self.send_control(&Control::Published { entry, code });
    }

    pub(super) fn on_publish(&mut self, publish: Publish) -> Result<(), Fault> {
        if self.side == Side::Client || !self.publishes() || publish.entry >= MAX_PUBLISHED {
            return Err(Fault::Violation("a port that cannot be asked for"));
        }
        self.events.push_back(TunnelEvent::Publish(publish));
        Ok(())
    }

    pub(super) fn on_published(&mut self, entry: u64, code: PublishCode) -> Result<(), Fault> {
        if self.side == Side::Server || !self.publishes() {
            return Err(Fault::Violation(
                "an answer about a port that nobody asked for",
            ));
        }
        self.events.push_back(TunnelEvent::Published(entry, code));
        Ok(())
    }

    /// Opens a flow for a connection of `source` to `destination`, a port that the client knows as `entry` (server).
    pub fn open_inbound(
        &mut self,
        quic: &mut Connection,
        entry: u64,
        source: Option<SocketAddr>,
        destination: Option<SocketAddr>,
    ) -> Result<FlowKey, OpenError> {
        self.begin(quic, Bytes::new(), |flow, credit, header| {
            let inbound = Inbound {
                flow,
                entry,
                source,
                destination,
                credit,
            };
            inbound.encode(header);
        })
    }
}

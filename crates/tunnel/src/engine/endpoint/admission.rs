//! How connections begin, those this side starts and those it takes, and how they are forgotten.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use bentpipe_proto::tunnel::capability;
use quinn_proto::crypto::ClientConfig as ClientCrypto;
use quinn_proto::{
    ClientConfig, ConnectError, ConnectionHandle, EndpointEvent, Incoming, QlogStream,
    ServerConfig, Side,
};

use super::super::connection::Connection;
use super::super::connection::streams::{StreamLimit, streams_for};
use super::super::gate::Gate;
use super::super::handshakes::Verdict;
use super::super::profile::{AckPolicy, Link, Path};
use super::super::settings::SendControl;
use super::super::{cid, tuning};
use super::{ConnectionId, Engine};
use crate::text::printable;
use crate::transport::Tunnel;

impl Engine {
    fn trace(&mut self, now: Instant) -> Option<QlogStream> {
        self.tracer.as_mut()?(now)
    }

    /// Starts a connection to `remote` (client) over `link`.
    pub fn connect(
        &mut self,
        now: Instant,
        crypto: Arc<dyn ClientCrypto>,
        remote: SocketAddr,
        link: impl Into<Link>,
    ) -> Result<ConnectionId, ConnectError> {
        let link = link.into();
        let wishes = self.config.wishes;
        let path = Path {
            link,
            ipv6: is_ipv6(remote.ip()),
            asks: AckPolicy::of(link, wishes.ack_packets),
            asked: AckPolicy::of(link, link.forward_ack_packets),
        };
        let gate = self.gate(path, now);
        let mut client = ClientConfig::new(crypto);
        let streams = self.max_inbound();
        let mut transport = tuning::transport(path, gate.clone(), StreamLimit::at_first(streams));
        transport.qlog_stream(self.trace(now));
        client.transport_config(Arc::new(transport));
        let hint = link.hint();
        client.initial_dst_cid_provider(Arc::new(move || cid::initial_cid(hint)));
        let (handle, quic) = self.endpoint.connect(now, client, remote, "bentpipe")?;
        Ok(self.adopt(now, handle, quic, gate, path, streams))
    }

    /// Flows that a server may hold open here: none, unless ports are published, or segments are relayed.
    fn max_inbound(&self) -> u32 {
        let opened = capability::PUBLISH | capability::SEGMENTS;
        match self.config.hello.capabilities & opened {
            0 => 0,
            _ => self.max_flows(),
        }
    }

    fn max_flows(&self) -> u32 {
        u32::try_from(self.config.hello.max_flows).unwrap_or(u32::MAX)
    }

    fn gate(&self, path: Path, now: Instant) -> Gate {
        let wishes = self.config.wishes;
        Gate::new(wishes.controller, wishes.config(path.link, path.ipv6), now)
    }

    fn adopt(
        &mut self,
        now: Instant,
        handle: ConnectionHandle,
        quic: quinn_proto::Connection,
        gate: Gate,
        path: Path,
        streams: u32,
    ) -> ConnectionId {
        let side = if quic.side().is_client() {
            Side::Client
        } else {
            Side::Server
        };
        let mut hello = self.config.hello.clone();
        hello.acks = Some(path.asks.announced());
        let control = SendControl::new(gate, path, self.config.wishes);
        let streams = StreamLimit::new(streams);
        let config = &self.config;
        let id = self.connections.add(|id| {
            let seed = config.seed.stream(&format!("connection {}", id.0));
            let tunnel = Tunnel::new(side, hello, config.memory, config.pool.clone(), seed);
            Connection::new(handle, quic, control, tunnel, streams, seed, now)
        });
        self.dirty.insert(id);
        id
    }

    /// `incoming` began with a datagram of `size` bytes.
    pub(super) fn accept(&mut self, now: Instant, incoming: Incoming, size: usize) {
        let Some(setup) = self.config.server.clone() else {
            return self.endpoint.ignore(incoming);
        };
        let source = incoming.remote_address().ip();
        match self
            .handshakes
            .admit(now, source, incoming.remote_address_validated())
        {
            Verdict::Take { instead_of } => {
                if let Some(id) = instead_of {
                    self.forget(id);
                }
            }
            Verdict::Prove => {
                let mut buf = Vec::new();
                if let Ok(transmit) = self.endpoint.retry(incoming, &mut buf) {
                    self.respond(transmit, buf);
                }
                return;
            }
            Verdict::Ignore => return self.endpoint.ignore(incoming),
        }
        let first = *incoming.orig_dst_cid();
        let link = Link::from_hint(&first);
        let path = Path {
            link,
            ipv6: is_ipv6(incoming.remote_address().ip()),
            asks: AckPolicy::of(link, link.forward_ack_packets),
            asked: AckPolicy::of(link, None),
        };
        let gate = self.gate(path, now);
        let mut server = ServerConfig::new(setup.crypto, setup.token_key);
        let streams = streams_for(self.max_flows());
        let mut transport = tuning::transport(path, gate.clone(), StreamLimit::at_first(streams));
        transport.qlog_stream(self.trace(now));
        server.transport_config(Arc::new(transport)).migration(true);
        let mut buf = Vec::new();
        match self
            .endpoint
            .accept(incoming, now, &mut buf, Some(Arc::new(server)))
        {
            Ok((handle, quic)) => {
                let id = self.adopt(now, handle, quic, gate, path, streams);
                self.handshakes.enter(now, id, source);
                if let Some((shard, placement)) = &self.placement {
                    placement.opened(*shard, &first);
                }
                if let Some(connection) = self.connections.get_mut(id) {
                    connection.began_with(size);
                }
            }
            Err(error) => {
                tracing::debug!("handshake refused: {}", printable(&error.cause));
                if let Some(transmit) = error.response {
                    self.respond(transmit, buf);
                }
            }
        }
    }

    /// Lets go of a connection, in whatever state it is.
    pub(super) fn forget(&mut self, id: ConnectionId) {
        self.timers.set(id, None);
        self.dirty.remove(id);
        self.handshakes.forget(id);
        let Some((mut connection, own_handle)) = self.connections.remove(id) else {
            return;
        };
        self.past += connection.totals();
        if let Some((shard, placement)) = &self.placement {
            placement.closed(*shard);
        }
        if !own_handle {
            return;
        }
        let handle = connection.handle;
        while let Some(event) = connection.quic.poll_endpoint_events() {
            self.endpoint.handle_event(handle, event);
        }
        if !connection.quic.is_drained() {
            self.endpoint.handle_event(handle, EndpointEvent::drained());
        }
    }
}

fn is_ipv6(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => address.to_ipv4_mapped().is_none(),
    }
}

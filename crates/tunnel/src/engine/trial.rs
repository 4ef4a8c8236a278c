//! One handshake with a server, to learn whether it answers and knows the client's key; no tunnel comes of it.
//!
//! HELLO is not said, so the server takes the trial for no new process of the client, and leaves a tunnel that is up alone.
//! That the server has accepted the client's key shows in HANDSHAKE_DONE: a TLS 1.3 client is done before.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bentpipe_proto::tunnel::CloseCode;
use bytes::{Bytes, BytesMut};
use quinn_proto::crypto::ClientConfig as ClientCrypto;
use quinn_proto::{
    ClientConfig, ConnectError, Connection, ConnectionError, ConnectionHandle, DatagramEvent,
    Endpoint, Event, Transmit, TransportConfig, VarInt,
};

use super::profile::Link;
use super::{cid, identity, tuning};
use crate::text::printable;

/// Outcome of a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrialOutcome {
    /// The server has the configured key and knows the client's.
    Known {
        /// Round-trip time of the path.
        rtt: Duration,
    },
    /// The server has the configured key and does not know the client's.
    UnknownClient,
    /// Another key than the configured one was shown.
    WrongServer,
    /// The server, with the configured key, ended the connection for this reason.
    Closed(String),
    /// A peer that has not shown the configured key ended the connection; the reason is its own.
    ClosedByStranger(String),
}

/// A handshake under way, as a state machine.
pub struct HandshakeTrial {
    endpoint: Endpoint,
    handle: ConnectionHandle,
    quic: Connection,
    remote: SocketAddr,
    established: bool,
    heard: bool,
    outcome: Option<TrialOutcome>,
}

impl HandshakeTrial {
    /// Begins a handshake with `remote` over `link`; `reset_key` is of the client's own key.
    ///
    /// # Errors
    /// `remote` is no address that can be connected to.
    pub fn new(
        now: Instant,
        crypto: Arc<dyn ClientCrypto>,
        reset_key: Arc<dyn quinn_proto::crypto::HmacKey>,
        remote: SocketAddr,
        link: Link,
    ) -> Result<Self, ConnectError> {
        let settings = tuning::endpoint(reset_key, None, None);
        let mut endpoint = Endpoint::new(Arc::new(settings), None, true, None);
        let mut transport = TransportConfig::default();
        transport
            .initial_rtt(link.initial_rtt())
            .mtu_discovery_config(None)
            .max_concurrent_bidi_streams(VarInt::from_u32(0))
            .max_concurrent_uni_streams(VarInt::from_u32(0));
        let mut config = ClientConfig::new(crypto);
        config.transport_config(Arc::new(transport));
        let hint = link.hint();
        config.initial_dst_cid_provider(Arc::new(move || cid::initial_cid(hint)));
        let (handle, quic) = endpoint.connect(now, config, remote, "bentpipe")?;
        Ok(Self {
            endpoint,
            handle,
            quic,
            remote,
            established: false,
            heard: false,
            outcome: None,
        })
    }

    /// Takes a datagram of the server's.
    pub fn handle_datagram(&mut self, now: Instant, datagram: &[u8]) {
        let data = BytesMut::from(datagram);
        let event = self
            .endpoint
            .handle(now, self.remote, None, None, data, &mut Vec::new());
        if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
            self.heard = true;
            self.quic.handle_event(event);
        }
        self.follow();
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.quic.handle_timeout(now);
        self.follow();
    }

    /// Instant at which [`Self::handle_timeout`] wants to be called next.
    pub fn poll_timeout(&mut self) -> Option<Instant> {
        self.quic.poll_timeout()
    }

    /// The next datagram for the server, written to `buf`, which must be empty.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.quic.poll_transmit(now, 1, buf)
    }

    /// The outcome, once there is one.
    pub fn outcome(&self) -> Option<&TrialOutcome> {
        self.outcome.as_ref()
    }

    /// True if anything was heard that belongs to the handshake.
    pub fn is_answered(&self) -> bool {
        self.heard
    }

    /// Ends the connection; what [`Self::poll_transmit`] then gives tells the server.
    pub fn close(&mut self, now: Instant) {
        let code = VarInt::from_u64(CloseCode::NoError.code()).unwrap_or_default();
        self.quic.close(now, code, Bytes::new());
    }

    fn follow(&mut self) {
        while let Some(event) = self.quic.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.quic.handle_event(event);
            }
        }
        while let Some(event) = self.quic.poll() {
            match event {
                Event::Connected => self.established = true,
                Event::ConnectionLost { reason } if self.outcome.is_none() => {
                    self.outcome = Some(explained(&reason, self.established));
                }
                _ => {}
            }
        }
        if self.quic.stats().frame_rx.handshake_done > 0 && self.outcome.is_none() {
            let rtt = self.quic.rtt();
            self.outcome = Some(TrialOutcome::Known { rtt });
        }
    }
}

/// Only a peer that has `proven` the server's key is believed.
fn explained(reason: &ConnectionError, proven: bool) -> TrialOutcome {
    if identity::is_wrong_server(reason) {
        TrialOutcome::WrongServer
    } else if !proven {
        TrialOutcome::ClosedByStranger(printable(reason))
    } else if identity::is_unknown_client(reason) {
        TrialOutcome::UnknownClient
    } else {
        TrialOutcome::Closed(printable(reason))
    }
}
